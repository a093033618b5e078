"""Guessed inputs behind an observation: in closed form where possible, by a search otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from tacit.auditing.attacks.closed_forms import read_inputs
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.evidence import RandomStep
from tacit.auditing.attacks.gradient_matching import L2, CosineDistance, MatchingLoss
from tacit.auditing.attacks.inversion import InversionResult, invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.linear_layers import activations
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.attacks.optimiser import SignedAdam
from tacit.auditing.attacks.randomized import invert_randomized
from tacit.auditing.options import AttackOptions
from tacit.tasks.flat import ModuleLoss

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
    observation: Observation,
    spec: DataSpec,
    *,
    clipped: bool,
    options: AttackOptions,
    progress: Callable[[int, int], None],
    step: RandomStep | None = None,
) -> Guess:
    """Guess the inputs behind an observation, without the truth.

    With `step` it is what this random step made of a gradient.
    """
    if step is not None:
        assert observation.is_single  # of one gradient
        found, method = invert_randomized(
            loss,
            observation,
            spec,
            step,
            clipped=clipped,
            options=options,
            progress=progress,
        )
        return _guess(observation, spec, found, method)
    if observation.is_single:
        short = read_inputs(loss.flat, observation, spec)
        if short is not None and bool(short.exact().all()):
            assumptions = [SHORTCUT, f"batch size known: {spec.batch}"]
            return Guess(short.inputs.cpu(), None, SHORTCUT_METHOD, assumptions, 0.0, False)
    single = spec.batch == 1 and observation.batches == 1
    smooth = _smoothness(observation, spec)
    plain = _is_plain(loss, observation, spec, clipped)
    found = invert(
        loss,
        observation,
        spec,
        matching_loss=matching_loss_for(loss, observation, spec, clipped=clipped),
        optimiser=LBFGS() if plain or single else SignedAdam(),
        restarts=options.restarts,
        seed=options.seed,
        budget_seconds=options.seconds,
        progress=lambda i, of, _: progress(i, of),
    )
    search = "L-BFGS" if plain or single else "signed Adam"
    search = f"total variation, {search}" if smooth and not plain else search
    method = f"{'L2' if plain else 'cosine'}, {search}"
    return _guess(observation, spec, found, method)


def _guess(
    observation: Observation,
    spec: DataSpec,
    found: InversionResult,
    method: str,
) -> Guess:
    inputs = found.inputs.reshape(len(observation.values), -1, *spec.shape).cpu()
    each = () if spec.numbers is None else spec.numbers.shape
    labels = found.labels.reshape(*inputs.shape[:2], *each).cpu()
    return Guess(inputs, labels, method, found.assumptions, found.seconds, found.cut_short)


def matching_loss_for(
    loss: ModuleLoss,
    observation: Observation,
    spec: DataSpec,
    *,
    clipped: bool,
) -> MatchingLoss:
    """The distance by which the attacker compares guesses."""
    if _is_plain(loss, observation, spec, clipped):
        # Values that are known together have different lengths.
        return L2(relative=not observation.is_single)
    return CosineDistance(total_variation=_smoothness(observation, spec))


def _is_plain(loss: ModuleLoss, observation: Observation, spec: DataSpec, clipped: bool) -> bool:
    """L-BFGS on the squared distance needs a smooth loss and known lengths of gradients."""
    single = spec.batch == 1 and observation.batches == 1
    return not clipped and (single or "ReLU" not in activations(loss.flat.module))


def _smoothness(observation: Observation, spec: DataSpec) -> float:
    """Weight of the total variation, which is defined for images only."""
    single = spec.batch == 1 and observation.batches == 1
    return 0.0 if single or len(spec.shape) != 3 else 1e-2
