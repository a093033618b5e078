"""Inputs and labels that a gradient reveals in closed form, without a search.

Inputs, for one sample and a first layer z = W x + b, with δ = ∂L/∂z:

    G_W = δ xᵀ,   G_b = δ,   so   x = G_W[k] / G_b[k]   for every unit k with G_b[k] ≠ 0.

A linear combination of such gradients of one sample has the same form, with Σₖ cₖδₖ for δ, so
differences reveal the input as well. In logistic regression the first layer is also the last.

Labels, for cross-entropy averaged over b samples and a last layer z = W h + b, p = softmax(z):

    G_b = (1/b) Σᵢ (pᵢ − yᵢ),   G_W = (1/b) Σᵢ (pᵢ − yᵢ) hᵢᵀ
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.linear_layers import LinearLayer, first_linear, last_linear
from tacit.auditing.attacks.observation import Observation
from tacit.tasks.flat import FlatModule

TOLERANCE = 1e-3  # residual up to which inputs are exact
RANDOM_INPUTS = 64  # to estimate what the model predicts on average


@dataclass(frozen=True, eq=False)
class Shortcut:
    """Inputs in closed form, and how well they explain the observed values."""

    inputs: Tensor  # [V, 1, *shape]
    residual: Tensor  # ‖G_W − G_b xᵀ‖ / ‖G_W‖, [V]; zero up to rounding if the inputs are exact

    def exact(self) -> Tensor:
        """For which victims the inputs are exact [V], without knowing the truth."""
        return self.residual <= TOLERANCE


def read_inputs(flat: FlatModule, observation: Observation, spec: DataSpec) -> Shortcut | None:
    """x̂ = G_Wᵀ G_b / ‖G_b‖²: the quotients G_W[k]/G_b[k] of all units, weighted by G_b[k]².

    That is the least-squares solution of G_W = G_b xᵀ, in which units with a large |G_b[k]| count
    most. None if more than one sample is behind a value, or the model does not begin with a linear
    layer that has a bias.
    """
    layer = first_linear(flat, spec.shape)
    if layer is None or layer.bias is None or spec.batch != 1 or observation.batches != 1:
        return None
    values = observation.values[:, 0]
    weight, bias = layer.weight_of(values), values[:, layer.bias]
    strength = bias.square().sum(1)
    inputs = (weight * bias[:, :, None]).sum(1) / strength[:, None]
    left = (weight - bias[:, :, None] * inputs[:, None, :]).flatten(1).norm(dim=1)
    residual = left / weight.flatten(1).norm(dim=1)
    # G_b = 0 reveals nothing.
    empty = ~(residual.isfinite() & inputs.isfinite().all(1))
    return Shortcut(
        inputs.masked_fill(empty[:, None], 0.0).reshape(-1, 1, *spec.shape),
        residual.masked_fill(empty, torch.inf),
    )


# Labels [V, (K,) batch], unordered within [(K,) batch], and what they rest on; or none, and why.
RecoveredLabels = tuple[Tensor | None, str]


def recover_labels(flat: FlatModule, observation: Observation, spec: DataSpec) -> RecoveredLabels:
    """The labels behind an observation of cross-entropy gradients.

    The gradient of a single sample determines its label (`single_label`). That of a batch, or a sum
    over clients, approximately determines how often each class occurs (`label_counts`).

    Args:
        flat: The attacked model.
        observation: The observed values, of gradients or sums.
        spec: What is known about the data; not the number of classes.
    """
    layer = last_linear(flat, spec.shape)
    if layer is None:
        return _none("the model does not end in a linear layer of its own")
    samples = spec.batch * observation.batches
    bias = layer.bias_of(observation.values[:, 0])
    if samples == 1:
        certain = (
            "labels recovered from the last layer's gradient (exact for cross-entropy and one "
            "sample)"
        )
        return single_label(layer, observation.values[:, 0])[:, None], certain
    if bias is None:
        return _none("counts need the gradient of the last layer's bias")
    expected = _mean_predictions(flat, observation, spec)
    counts = label_counts(bias, expected, spec.batch, observation.batches)
    labels = _listed(counts)
    assumption = (
        "label counts recovered from the last layer's bias, assuming that the model predicts on "
        "the victim's batch, on average, what it predicts on random inputs (true near the "
        "initialisation)"
    )
    if not observation.same_data:
        labels = labels.reshape(-1, observation.batches, spec.batch)
    return labels, assumption


def labels_by_rows(flat: FlatModule, observation: Observation, spec: DataSpec) -> RecoveredLabels:
    """The labels behind gradients in which each coordinate has noise of its own.

    A bias is one noisy number. Row c of G_W adds up to about G_b,c·H, where H is the sum of the
    features; most noise averages out if they have one sign (after a sigmoid or a ReLU). Where there
    is little noise, `recover_labels` is better: features of random inputs are not those of data.
    """
    layer = last_linear(flat, spec.shape)
    if layer is None:
        return _none("the model does not end in a linear layer of its own")
    if observation.batches != 1:
        return _none("more than one batch is behind a value")
    expected = _mean_predictions(flat, observation, spec)
    inputs = _random_inputs(spec).to(observation.weights)
    # The gradient of a class's output by its own row is the features.
    gradients = vmap(grad(lambda theta: flat(theta, inputs)[:, 0].mean()), chunk_size=16)(
        observation.weights[:, 0]
    )
    features = layer.weight_of(gradients)[:, 0].sum(1)
    sums = layer.weight_of(observation.values[:, 0]).sum(2)
    counts = label_counts(sums / features[:, None], expected, spec.batch, exact=False)
    return (
        _listed(counts),
        "label counts recovered from the sums over rows of the last layer, assuming features and "
        "predictions as on random inputs",
    )


def single_label(layer: LinearLayer, gradients: Tensor) -> Tensor:
    """The label of each one-sample gradient [V, P]: [V] (iDLG; Zhao et al. 2020).

    G_b = p − y is negative at the label only. Without a bias, row c of G_W is (p_c − y_c)·h. As
    1 − p_y is the sum of the other p_c, the longest row is the label's. Of two classes both rows
    have the same length; then the smaller row sum is the label's if the features h are ≥ 0 (after
    a sigmoid or a ReLU).
    """
    bias = layer.bias_of(gradients)
    if bias is not None:
        return bias.argmin(1)
    weight = layer.weight_of(gradients)
    return weight.sum(2).argmin(1) if weight.shape[1] == 2 else weight.norm(dim=2).argmax(1)


def label_counts(
    bias: Tensor, expected: Tensor, batch: int, batches: int = 1, *, exact: bool = True
) -> Tensor:
    """n_c ≈ b·(p̄_c − G_b,c): whole numbers [V, C] that sum to all samples.

    bias [V, C] is a sum over `batches` means over `batch` samples, and so is p̄, `expected` [V, C].
    If G_b is exact, classes with G_b,c < 0 occur at least ⌈−b·G_b,c⌉ times, whatever p̄ is. The
    rest goes to the classes where most is missing.
    """
    samples = batch * batches
    share = batch * (expected - bias)
    # 1e-4 allows for the rounding of a gradient.
    counts = (-batch * bias - 1e-4).ceil().clamp_min(0) if exact else torch.zeros_like(bias)
    while bool((missing := samples - counts.sum(1)).any()):
        rows = (missing > 0).nonzero()[:, 0]
        most = (share - counts)[rows].argmax(1)
        counts[rows, most] += 1
        # Too many: the values are not such a gradient, but the loop must end.
        rows = (missing < 0).nonzero()[:, 0]
        least = (share - counts).masked_fill(counts == 0, torch.inf)[rows].argmin(1)
        counts[rows, least] -= 1
    return counts.long()


def _listed(counts: Tensor) -> Tensor:
    """Labels [V, samples] in order, each class as often as counted [V, C]."""
    classes = torch.arange(counts.shape[1], device=counts.device)
    return torch.stack([classes.repeat_interleave(row) for row in counts])


def _none(reason: str) -> RecoveredLabels:
    return None, f"labels not recovered: {reason}"


def _random_inputs(spec: DataSpec) -> Tensor:
    generator, box = torch.Generator().manual_seed(0), spec.box
    uniform = torch.rand(RANDOM_INPUTS, *spec.shape, generator=generator, dtype=torch.float64)
    return torch.special.ndtri(uniform) if box is None else box[0] + (box[1] - box[0]) * uniform


def _mean_predictions(flat: FlatModule, observation: Observation, spec: DataSpec) -> Tensor:
    """Mean of softmax over random inputs, combined over models as gradients are: [V, C]."""
    weights = observation.weights
    inputs = _random_inputs(spec).to(weights)

    def predict(theta: Tensor) -> Tensor:
        return flat(theta, inputs).softmax(1).mean(0)

    with torch.no_grad():
        rows: Tensor = vmap(predict, chunk_size=16)(weights.flatten(0, 1))
    return observation.coefficients[0] @ rows.reshape(*weights.shape[:2], -1)
