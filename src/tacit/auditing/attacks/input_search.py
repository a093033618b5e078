"""Guessed inputs behind an observation: in closed form where possible, by a search otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from tacit.auditing.attacks.closed_forms import labels_by_rows, read_inputs
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.gradient_matching import (
    L2,
    CosineDistance,
    DeclaredDensity,
    MatchingLoss,
)
from tacit.auditing.attacks.guesses import KNOWN
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.linear_layers import activations
from tacit.auditing.attacks.observation import JointObservation, Observation
from tacit.auditing.attacks.optimiser import SignedAdam
from tacit.core.here import LogDensity
from tacit.tasks.flat import ModuleLoss

# Weight of the total variation beside a likelihood, which is in nats per coordinate.
LIKELY = 0.1
SHORTCUT_METHOD = "exact shortcut"
SHORTCUT = (
    "computed from the first layer: exact for one sample per value; the residual shows whether it "
    "was one"
)


@dataclass(frozen=True, eq=False)
class Guess:
    """Guessed inputs, and how they were found."""

    inputs: Tensor  # [V, T·b, *shape]: T batches one after another
    labels: Tensor | None  # classes or numbers [V, T·b]
    method: str
    assumptions: list[str]
    seconds: float
    cut_short: bool


def guess_inputs(
    loss: ModuleLoss,
    observation: Observation | JointObservation,
    spec: DataSpec,
    *,
    clipped: bool,
    restarts: int,
    seed: int,
    seconds: float,
    progress: Callable[[int, int], None],
    log_density: LogDensity | None = None,
) -> Guess:
    """Guess the inputs behind an observation, without the truth.

    With `log_density` it was made from the gradient by a random step with this density.
    """
    shape, batch = spec.shape, spec.batch
    if isinstance(observation, Observation) and log_density is None:
        short = read_inputs(loss.flat, observation, shape=shape, batch=batch)
        if short is not None and bool(short.exact().all()):
            assumptions = [SHORTCUT, f"batch size known: {batch}"]
            return Guess(short.inputs.cpu(), None, SHORTCUT_METHOD, assumptions, 0.0, False)
    single = batch == 1 and observation.batches == 1
    smooth = _smoothness(observation, spec)
    plain = log_density is None and _is_plain(loss, observation, spec, clipped)
    matching_loss = matching_loss_for(loss, observation, spec, clipped=clipped)
    if log_density is not None:
        smooth = LIKELY if len(spec.shape) == 3 else 0.0
        matching_loss = DeclaredDensity(log_density, smooth, knows_length=not clipped)
    # Far from the inputs a density is not convex, and a line search stops at once.
    direct = log_density is None and (plain or single)
    labels, reason = None, ""
    if log_density is not None and spec.numbers is None:
        assert isinstance(observation, Observation)  # a random step is taken on one gradient
        recovered = labels_by_rows(loss.flat, observation, shape=shape, batch=batch, box=spec.box)
        labels, reason = recovered.labels, recovered.assumption
    found = invert(
        loss,
        observation,
        shape=shape,
        batch=batch,
        classes=spec.classes,
        labels="optimise" if labels is None and log_density is not None else labels,
        matching_loss=matching_loss,
        optimiser=LBFGS() if direct else SignedAdam(),
        restarts=restarts,
        seed=seed,
        box=spec.box,
        numbers=spec.numbers,
        budget_seconds=seconds,
        progress=lambda i, of, _: progress(i, of),
    )
    search = "L-BFGS" if direct else "signed Adam"
    search = f"total variation, {search}" if smooth and not plain else search
    distance = "cosine" if log_density is None else "likelihood"
    method = f"{'L2' if plain else distance}, {search}"
    assumptions = [reason or one if one == KNOWN else one for one in found.assumptions]
    inputs = found.inputs.reshape(len(observation.values), -1, *shape).cpu()
    each = () if spec.numbers is None else spec.numbers.shape
    guessed = found.labels.reshape(*inputs.shape[:2], *each).cpu()
    return Guess(inputs, guessed, method, assumptions, found.seconds, found.cut_short)


def matching_loss_for(
    loss: ModuleLoss,
    observation: Observation | JointObservation,
    spec: DataSpec,
    *,
    clipped: bool,
) -> MatchingLoss:
    """The distance by which the attacker compares guesses."""
    if _is_plain(loss, observation, spec, clipped):
        # Values that are known together have different lengths.
        return L2(relative=isinstance(observation, JointObservation))
    return CosineDistance(total_variation=_smoothness(observation, spec))


def _is_plain(
    loss: ModuleLoss, observation: Observation | JointObservation, spec: DataSpec, clipped: bool
) -> bool:
    """L-BFGS on the squared distance needs a smooth loss and known lengths of gradients."""
    single = spec.batch == 1 and observation.batches == 1
    return not clipped and (single or "ReLU" not in activations(loss.flat.module))


def _smoothness(observation: Observation | JointObservation, spec: DataSpec) -> float:
    """Weight of the total variation, which is defined for images only."""
    single = spec.batch == 1 and observation.batches == 1
    return 0.0 if single or len(spec.shape) != 3 else 1e-2
