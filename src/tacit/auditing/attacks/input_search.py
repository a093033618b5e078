"""Guessed inputs behind an observation: in closed form where possible, by a search otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.auditing.attacks.closed_forms import labels_by_rows, read_inputs, recover_labels
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.evidence import Kind, RandomStep
from tacit.auditing.attacks.gradient_matching import (
    L2,
    CosineDistance,
    DeclaredDensity,
    MatchingLoss,
    MatchingProblems,
)
from tacit.auditing.attacks.guesses import GuessLayout, KnownLabels
from tacit.auditing.attacks.inversion import InversionResult, invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.linear_layers import activations
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.attacks.optimiser import Optimiser, SignedAdam
from tacit.auditing.options import AttackOptions
from tacit.tasks.flat import FlatModule, ModuleLoss

SHORTCUT_METHOD = "exact shortcut"
SMOOTHNESS = 1e-2  # weight of the total variation beside the cosine distance
# The same beside a log density, which is in nats per coordinate.
SMOOTHNESS_OF_DENSITY = 0.1
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

    With `step` it is what this random step made of a gradient. Labels cannot be read exactly from a
    noisy last layer then. Several estimates are tried, and for each victim the guess under which
    the values are most likely is taken.
    """
    if step is None and observation.is_single:
        short = read_inputs(loss.flat, observation, spec)
        if short is not None and bool(short.exact().all()):
            assumptions = [SHORTCUT, f"batch size known: {spec.batch}"]
            return Guess(short.inputs.cpu(), None, SHORTCUT_METHOD, assumptions, 0.0, False)
    loss = loss.to(observation.values.device)
    matching_loss, optimiser, method = choose_search(
        loss, observation, spec, clipped=clipped, step=step
    )
    estimates = [] if step is None else _estimated_labels(loss.flat, observation, spec)
    found = invert(
        loss,
        observation,
        spec,
        labels=estimates or (None if step is None else "optimise"),
        matching_loss=matching_loss,
        optimiser=optimiser,
        restarts=options.restarts,
        seed=options.seed,
        budget_seconds=options.seconds,
        progress=lambda i, of, _: progress(i, of),
    )
    if estimates:
        found = _or_closed_form(loss, observation, spec, matching_loss, estimates, found)
    inputs = found.inputs.reshape(len(observation.values), -1, *spec.shape).cpu()
    each = () if spec.numbers is None else spec.numbers.shape
    guessed = found.labels.reshape(*inputs.shape[:2], *each).cpu()
    return Guess(inputs, guessed, method, found.assumptions, found.seconds, found.cut_short)


def choose_search(
    loss: ModuleLoss,
    observation: Observation,
    spec: DataSpec,
    *,
    clipped: bool,
    step: RandomStep | None = None,
) -> tuple[MatchingLoss, Optimiser, str]:
    """The distance by which the attacker compares guesses, the optimiser, and both in words."""
    single = spec.batch == 1 and observation.batches == 1
    # The total variation is defined for images only.
    is_image = len(spec.shape) == 3
    if step is not None:
        # Far from the inputs a density is not convex, and a line search stops at once.
        smoothness = SMOOTHNESS_OF_DENSITY if is_image else 0.0
        matching_loss: MatchingLoss = DeclaredDensity(step, not clipped, total_variation=smoothness)
        prior = ", total variation" if is_image else ""
        return matching_loss, SignedAdam(), f"likelihood{prior}, signed Adam"
    # L-BFGS on the squared distance needs a smooth loss and known lengths of gradients.
    if not clipped and (single or "ReLU" not in activations(loss.flat.module)):
        # Values that are known together have different lengths.
        return L2(relative=not observation.is_single), LBFGS(), "L2, L-BFGS"
    if single:
        return CosineDistance(), LBFGS(), "cosine, L-BFGS"
    if not is_image:
        return CosineDistance(), SignedAdam(), "cosine, signed Adam"
    matching_loss = CosineDistance(total_variation=SMOOTHNESS)
    return matching_loss, SignedAdam(), "cosine, total variation, signed Adam"


def _estimated_labels(
    flat: FlatModule, observation: Observation, spec: DataSpec
) -> list[KnownLabels]:
    """Estimates of the labels that differ, and what they rest on; empty if there are none."""
    estimates: list[KnownLabels] = []
    for estimate in (recover_labels, labels_by_rows) if spec.numbers is None else ():
        labels, source = estimate(flat, observation, spec)
        if labels is not None and not any(torch.equal(labels, other) for other, _ in estimates):
            estimates.append((labels, source))
    return estimates


def _or_closed_form(
    loss: ModuleLoss,
    observation: Observation,
    spec: DataSpec,
    matching_loss: MatchingLoss,
    labels: Sequence[KnownLabels],
    found: InversionResult,
) -> InversionResult:
    """What was found, with the closed form of single samples where that is more likely."""
    short = read_inputs(loss.flat, observation, spec)
    if short is None or observation.keys is not None:
        return found
    closed = spec.clamp(short.inputs)
    # Guesses [V, 1 + L, ...]: what was found, and the closed form with each of L estimates.
    inputs = torch.stack([found.inputs, *(closed for _ in labels)], 1)
    classes = torch.stack([found.labels, *(estimate for estimate, _ in labels)], 1)
    losses = _matching_losses(loss, observation, spec, matching_loss, inputs, classes)
    victims, best = torch.arange(len(closed), device=losses.device), losses.argmin(1)
    return replace(found, inputs=inputs[victims, best], labels=classes[victims, best])


def best_guess(
    loss: ModuleLoss,
    observation: Observation,
    spec: DataSpec,
    searched: Guess,
    others: Sequence[tuple[Kind, Tensor, Tensor | None]],
    *,
    clipped: bool,
) -> Guess:
    """The guess with the smallest matching loss on everything known.

    Args:
        loss: The loss of the attacked model.
        observation: Everything known about one victim.
        spec: What the attacker knows about the data.
        searched: The guess of the joint inversion.
        others: The kind of evidence, the guess [b, *shape] and the labels [b] of inversions of
            single pieces. If labels are not known, all classes of one sample are tried.
        clipped: Whether gradients were multiplied by unknown factors.
    """
    assert searched.labels is not None  # a search has labels
    shape = searched.inputs.shape[1:]
    guesses: list[tuple[str, Tensor, Tensor]] = [
        (searched.method, searched.inputs[0], searched.labels[0])
    ]
    for kind, inputs, labels in others:
        if inputs.shape == shape and labels is not None:
            guesses.append((f"as from the {kind}", inputs, labels))
        elif inputs.shape == shape and len(inputs) == 1:
            classes = torch.arange(spec.classes)[:, None]
            guesses += [(f"as from the {kind}", inputs, label) for label in classes]
    methods, every_input, every_label = zip(*guesses, strict=True)
    matching_loss, _, _ = choose_search(loss, observation, spec, clipped=clipped)
    (losses,) = _matching_losses(
        loss,
        observation,
        spec,
        matching_loss,
        torch.stack(every_input)[None],
        torch.stack(every_label)[None],
    )
    best = int(losses.argmin())
    remark = (
        f"best of {len(set(methods))} guesses by the matching loss of everything known, "
        f"{float(losses[best]):.3g}"
    )
    return replace(
        searched,
        inputs=every_input[best][None],
        labels=every_label[best][None],
        method=methods[best],
        assumptions=[*searched.assumptions, remark],
    )


def _matching_losses(
    loss: ModuleLoss,
    observation: Observation,
    spec: DataSpec,
    matching_loss: MatchingLoss,
    inputs: Tensor,
    labels: Tensor,
) -> Tensor:
    """The matching loss [V, G] of guessed inputs [V, G, T·b, *shape] with labels [V, G, T·b]."""
    victims, guesses = inputs.shape[:2]
    layout = GuessLayout(observation.batches, spec, soft=False)
    values = observation.values
    rows = inputs.to(values).reshape(victims * guesses, -1)
    every = torch.arange(len(rows), device=values.device)
    labels = labels.to(values.device)
    matching = MatchingProblems(
        loss.to(values.device),
        observation,
        matching_loss,
        layout,
        labels.view(victims, guesses, observation.batches, spec.batch, *labels.shape[3:]),
        every,
        guesses,
    )
    losses, _ = matching(rows, every)
    return losses.view(victims, guesses).nan_to_num(nan=torch.inf)
