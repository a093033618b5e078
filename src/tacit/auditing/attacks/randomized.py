"""Inversion of what a random step with a known density made of one gradient.

Labels cannot be read exactly from a noisy last layer. Several estimates are tried, and for each
victim the guess under which the values are most likely is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import grad

from tacit.auditing.attacks.closed_forms import labels_by_rows, read_inputs, recover_labels
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.evidence import RandomStep
from tacit.auditing.attacks.gradient_matching import DeclaredDensity
from tacit.auditing.attacks.guesses import LABELS_KNOWN, Labels
from tacit.auditing.attacks.inversion import InversionResult, invert
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.attacks.optimiser import SignedAdam
from tacit.auditing.options import AttackOptions
from tacit.tasks.flat import FlatModule, ModuleLoss

# Weight of the total variation beside a log density, which is in nats per coordinate.
SMOOTHNESS = 0.1


def invert_randomized(
    loss: ModuleLoss,
    observation: Observation,
    spec: DataSpec,
    step: RandomStep,
    *,
    clipped: bool,
    options: AttackOptions,
    progress: Callable[[int, int], None],
) -> tuple[InversionResult, str]:
    """The most likely inputs, and how they were found.

    Far from the inputs a density is not convex, and a line search stops at once; so the search is
    signed Adam. The arguments are those of `guess_inputs`.
    """
    loss = loss.to(observation.values.device)
    smoothness = SMOOTHNESS if len(spec.shape) == 3 else 0.0
    matching = DeclaredDensity(step, not clipped, total_variation=smoothness)
    candidates = _labels(loss.flat, observation, spec)
    found = []
    for number, (labels, source) in enumerate(candidates):

        def report(done: int, of: int, _: Tensor, before: int = number) -> None:
            progress(before * of + done, len(candidates) * of)

        searched = invert(
            loss,
            observation,
            spec,
            labels=labels,
            label_source=source,
            matching_loss=matching,
            optimiser=SignedAdam(),
            restarts=options.restarts,
            seed=options.seed,
            budget_seconds=options.seconds / len(candidates),
            progress=report,
        )
        if isinstance(labels, Tensor):
            searched = _or_closed_form(loss, observation, spec, matching, searched)
        found.append(searched)
    method = "likelihood, total variation, signed Adam" if smoothness else "likelihood, signed Adam"
    return _most_likely(found), method


def _labels(flat: FlatModule, observation: Observation, spec: DataSpec) -> list[tuple[Labels, str]]:
    """Estimates of the labels that differ, and what they rest on."""
    if spec.numbers is not None:
        return [("optimise", LABELS_KNOWN)]
    estimates: list[tuple[Labels, str]] = []
    for estimate in (recover_labels, labels_by_rows):
        labels, source = estimate(flat, observation, spec)
        known = [other for other, _ in estimates if isinstance(other, Tensor)]
        if labels is not None and not any(torch.equal(labels, other) for other in known):
            estimates.append((labels, source))
    return estimates or [("optimise", LABELS_KNOWN)]


def _or_closed_form(
    loss: ModuleLoss,
    observation: Observation,
    spec: DataSpec,
    matching: DeclaredDensity,
    found: InversionResult,
) -> InversionResult:
    """What was found, with the closed form of single samples where that is more likely."""
    short = read_inputs(loss.flat, observation, spec)
    if short is None or observation.keys is not None:
        return found
    closed = spec.clamp(short.inputs)
    inputs, losses = found.inputs.clone(), found.losses.clone()
    for victim, value in enumerate(observation.values[:, 0]):
        gradient = grad(loss)(observation.weights[victim, 0], closed[victim], found.labels[victim])
        distance = matching(gradient, value, closed[victim])
        if bool(distance < losses[victim].min()):
            inputs[victim], losses[victim, found.chosen[victim]] = closed[victim], distance
    return replace(found, inputs=inputs, losses=losses)


def _most_likely(found: list[InversionResult]) -> InversionResult:
    """For each victim the guess with the least matching loss."""
    best = torch.stack([one.losses.amin(1) for one in found]).argmin(0)
    victims = torch.arange(len(best), device=best.device)
    chosen = [found[number] for number in best.tolist()]
    return InversionResult(
        torch.stack([one.inputs for one in found])[best, victims],
        torch.stack([one.labels for one in found])[best, victims],
        torch.stack([one.losses for one in found])[best, victims],
        torch.stack([one.chosen for one in found])[best, victims],
        torch.stack([one.iterations for one in found])[best, victims],
        torch.stack([one.evaluations for one in found])[best, victims],
        sum(one.seconds for one in found),
        list(dict.fromkeys(text for one in chosen for text in one.assumptions)),
        any(one.cut_short for one in found),
    )
