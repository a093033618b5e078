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
from tacit.auditing.attacks.optimiser import Optimiser, SignedAdam
from tacit.auditing.attacks.randomized import invert_randomized
from tacit.auditing.options import AttackOptions
from tacit.tasks.flat import ModuleLoss

SHORTCUT_METHOD = "exact shortcut"
SMOOTHNESS = 1e-2  # weight of the total variation beside the cosine distance
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
    matching_loss, optimiser, method = choose_search(loss, observation, spec, clipped=clipped)
    found = invert(
        loss,
        observation,
        spec,
        matching_loss=matching_loss,
        optimiser=optimiser,
        restarts=options.restarts,
        seed=options.seed,
        budget_seconds=options.seconds,
        progress=lambda i, of, _: progress(i, of),
    )
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


def choose_search(
    loss: ModuleLoss, observation: Observation, spec: DataSpec, *, clipped: bool
) -> tuple[MatchingLoss, Optimiser, str]:
    """The distance by which the attacker compares guesses, the optimiser, and both in words."""
    single = spec.batch == 1 and observation.batches == 1
    # L-BFGS on the squared distance needs a smooth loss and known lengths of gradients.
    if not clipped and (single or "ReLU" not in activations(loss.flat.module)):
        # Values that are known together have different lengths.
        return L2(relative=not observation.is_single), LBFGS(), "L2, L-BFGS"
    if single:
        return CosineDistance(), LBFGS(), "cosine, L-BFGS"
    # The total variation is defined for images only.
    if len(spec.shape) != 3:
        return CosineDistance(), SignedAdam(), "cosine, signed Adam"
    matching_loss = CosineDistance(total_variation=SMOOTHNESS)
    return matching_loss, SignedAdam(), "cosine, total variation, signed Adam"
