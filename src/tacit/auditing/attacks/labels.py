"""Labels read off the last layer's gradient; every answer comes with what was assumed for it.

For cross-entropy averaged over a batch of b samples and a last layer z = W h + b, with pᵢ = softmax(zᵢ):

    G_b = (1/b) Σᵢ (pᵢ − yᵢ),   G_W = (1/b) Σᵢ (pᵢ − yᵢ) hᵢᵀ
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from tacit.auditing.attacks.layers import LinearLayer, last_linear
from tacit.auditing.attacks.observation import Observation
from tacit.tasks.flat import FlatModule

DUMMIES = 64  # random inputs, to guess what the model predicts on average


@dataclass(frozen=True, eq=False)
class RecoveredLabels:
    """What was read off: labels [V, (K,) batch] in no particular order within [(K,) batch], or None."""

    labels: Tensor | None
    assumption: str  # what they rest on; where there are none, why


def recover_labels(
    flat: FlatModule,
    observation: Observation,
    *,
    shape: Sequence[int],
    batch: int = 1,
    box: tuple[float, float] | None = (0.0, 1.0),
) -> RecoveredLabels:
    """The labels behind an observation of cross-entropy gradients, as far as the last layer tells them.

    A single sample's gradient tells its label (`single_label`); that of a batch, or a sum over clients, tells about
    how often each class occurs (`label_counts`); a difference about which class was learnt (`risen_label`).
    """
    layer = last_linear(flat, shape)
    if layer is None:
        return RecoveredLabels(
            None, "labels not recovered: the model does not end in a linear layer of its own"
        )
    samples = batch * observation.batches
    if not bool((observation.coefficients > 0).all()):
        bias = layer.bias_of(observation.values)
        if bias is None or samples > 1:
            return RecoveredLabels(
                None, "labels not recovered: a difference tells labels of one sample, by its bias"
            )
        earlier = observation.weights[:, observation.coefficients < 0]
        expected = _mean_predictions(flat, earlier, shape, box).mean(1)
        learnt = (
            "labels recovered as arg max Δp/p̄, assuming that between the two gradients the model learnt the sample's "
            "own class, and that it predicted on the sample about what it predicts on random inputs"
        )
        return RecoveredLabels(risen_label(bias, expected)[:, None], learnt)
    if samples == 1:
        certain = "labels recovered from the last layer's gradient (exact for cross-entropy and one sample)"
        return RecoveredLabels(single_label(layer, observation.values)[:, None], certain)
    bias = layer.bias_of(observation.values)
    if bias is None:
        return RecoveredLabels(
            None, "labels not recovered: counts need the gradient of the last layer's bias"
        )
    expected = observation.coefficients @ _mean_predictions(flat, observation.weights, shape, box)
    counts = label_counts(bias, expected, batch, observation.batches)
    classes = torch.arange(counts.shape[1], device=counts.device)
    labels = torch.stack([classes.repeat_interleave(row) for row in counts])
    assumption = (
        "label counts recovered from the last layer's bias, assuming that the model predicts on the victim's batch, on "
        "average, what it predicts on random inputs (true near the initialisation)"
    )
    if not observation.same_data:
        labels = labels.reshape(-1, observation.batches, batch)
    return RecoveredLabels(labels, assumption)


def single_label(layer: LinearLayer, gradients: Tensor) -> Tensor:
    """The label of each one-sample gradient [V, P]: [V] (iDLG; Zhao et al. 2020).

    G_b = p − y is negative at the label only. Without a bias, row c of G_W is (p_c − y_c)·h; as 1 − p_y is the sum
    of the other p_c, the longest row is the label's. Of two classes both rows are as long: then the smaller row
    sum, which takes features h ≥ 0 (after a sigmoid or a ReLU).
    """
    bias = layer.bias_of(gradients)
    if bias is not None:
        return bias.argmin(1)
    weight = layer.weight_of(gradients)
    return weight.sum(2).argmin(1) if layer.outputs == 2 else weight.norm(dim=2).argmax(1)


def risen_label(bias: Tensor, expected: Tensor) -> Tensor:
    """The class whose probability rose most in proportion, arg max_c Δp_c / p̄_c: [V].

    Of differences [V, C] of the last bias's gradient, (p¹ − y) − (p⁰ − y) = Δp: the label itself cancels. A step
    towards the label raises its logit alone, so that p_c changes in proportion to p_c; p̄ [V, C] is expected of p.
    """
    return (bias / expected.clamp_min(1e-6)).argmax(1)


def label_counts(bias: Tensor, expected: Tensor, batch: int, batches: int = 1) -> Tensor:
    """n_c ≈ b·(p̄_c − G_b,c): whole numbers [V, C] that sum to all samples.

    bias [V, C] is summed over `batches` means over `batch` samples, and p̄ (`expected` [V, C]) likewise. Classes
    with G_b,c < 0 occur at least ⌈−b·G_b,c⌉ times, whatever p̄ is; the rest goes where most is missing.
    """
    samples = batch * batches
    share = batch * (expected - bias)
    counts = (-batch * bias - 1e-4).ceil().clamp_min(0)  # less what rounding can do to a gradient
    while bool((missing := samples - counts.sum(1)).any()):
        rows = (missing > 0).nonzero()[:, 0]
        most = (share - counts)[rows].argmax(1)
        counts[rows, most] += 1
        rows = (missing < 0).nonzero()[
            :, 0
        ]  # more than fit: the values are no such gradient, but end anyway
        least = (share - counts).masked_fill(counts == 0, torch.inf)[rows].argmin(1)
        counts[rows, least] -= 1
    return counts.long()


def _mean_predictions(
    flat: FlatModule, weights: Tensor, shape: Sequence[int], box: tuple[float, float] | None
) -> Tensor:
    """Mean of softmax over random inputs at weights [V, K, P]: [V, K, C]."""
    draw = torch.Generator().manual_seed(0)
    uniform = torch.rand(DUMMIES, *shape, generator=draw, dtype=torch.float64)
    inputs = torch.special.ndtri(uniform) if box is None else box[0] + (box[1] - box[0]) * uniform
    inputs = inputs.to(weights)

    def predict(theta: Tensor) -> Tensor:
        return flat(theta, inputs).softmax(1).mean(0)

    with torch.no_grad():
        rows: Tensor = vmap(predict, chunk_size=16)(weights.flatten(0, 1))
    return rows.reshape(*weights.shape[:2], -1)
