"""The guarantee for releases in turn, each from a state that earlier messages determine.

The ledger has one release, all audited iterations together; the bound of a whole run has one for
each kind of iteration, and how many are like it. What a release costs is the same whatever the
earlier ones were, so the costs compose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tacit.auditing.bounds.added_noise import Bound, NoiseLoss, noise_loss, total_bound
from tacit.auditing.bounds.sampled_noise import SampledLoss, sampled_loss
from tacit.auditing.bounds.secret_rows import NoBound, SecretRows
from tacit.auditing.bounds.threat import Threat
from tacit.privacy.accounting.randomized_response import (
    response_epsilon,
    response_method,
    response_pure_epsilon,
)

DECLARED = "Each non-linear step is as private as the algorithm declares; that is not checked."

# What is seen, ε of each coordinate of the non-linear steps, and how many others are like it.
Release = tuple[SecretRows, list[float], int]


def composed_bound(releases: Iterable[Release], threat: Threat, uses: int | None = None) -> Bound:
    """The bound for all releases.

    Args:
        releases: What is released.
        threat: What the bound is about.
        uses: In how many releases the secret takes part at most; None if in all of them.

    Raises:
        NoBound: A release has no bound, or they are of several kinds.
    """
    clip, parameters, delta, count = threat.clip, threat.parameters, threat.delta, 0
    budgets: list[tuple[list[float], int]] = []
    losses: list[tuple[NoiseLoss, int]] = []
    sampled: list[SampledLoss] = []
    for view, spent, times in releases:
        count += times
        if spent:
            budgets.append((spent, times))
        is_sampled = [gradient.when in view.run.samplings for gradient in view.gradients]
        if any(is_sampled):
            if not all(is_sampled):
                raise NoBound(
                    "gradients of samples and of batches are both sent: no bound is proved"
                )
            cost = sampled_loss(view, parameters)
            sampled.append(replace(cost, releases=cost.releases * times))
        elif view.gradients:
            if clip is None:
                raise NoBound("gradients are not clipped, so one client's influence is not bounded")
            losses.append((noise_loss(clip, view.signal, view.added, view.laws), times))
    if sum(map(bool, (budgets, losses, sampled))) > 1:
        raise NoBound("gradients of the victim are sent in different ways: no bound is proved")
    if sampled:
        return _worst_sampled(sampled).bound(delta)
    uses = count if uses is None else uses
    if budgets:
        spent = [budget for each, times in budgets for budget in each * times]
        if uses < count:
            most = max(len(each) for each, _ in budgets)
            spent = sorted(spent, reverse=True)[: uses * most]
        return _response_bound(spent, parameters, delta)
    if not losses:
        return Bound(0.0, 0.0, "no message depends on the victim's data")
    assert clip is not None  # checked above
    if uses < count:
        losses = [(_worst([loss for loss, _ in losses]), uses)]
    return total_bound(losses, clip, delta)


def _response_bound(budgets: list[float], parameters: int, delta: float) -> Bound:
    """The bound from these ε per coordinate that non-linear steps declare."""
    largest, count = max(budgets), len(budgets)
    uses = count * parameters
    pure = response_pure_epsilon(largest, parameters, count)
    epsilon = response_epsilon(delta, largest, uses)
    why = (
        f"randomized response with ε = {largest:g} per coordinate, {parameters:,} coordinates, "
        f"{count} times: pure ε = {pure:.4g}"
    )
    if epsilon >= pure:
        return Bound(pure, 0.0, why, (DECLARED,))
    return Bound(epsilon, delta, f"{why}; with δ by {response_method(uses)}", (DECLARED,))


def _worst_sampled(losses: list[SampledLoss]) -> SampledLoss:
    """Releases that cost at least as much as these in turn, all with the same noise."""
    return SampledLoss(
        min(loss.noise_multiplier for loss in losses),
        max(loss.sampling_rate for loss in losses),
        sum(loss.releases for loss in losses),
        any(loss.ideal for loss in losses),
    )


def _worst(losses: list[NoiseLoss]) -> NoiseLoss:
    """A release that costs at least as much as any of these."""
    dearest = max(losses, key=lambda loss: float(loss.ratios.sum()))
    return NoiseLoss(
        dearest.gradients,
        max(loss.mu for loss in losses),
        dearest.ratios,
        # Costs that are distributed otherwise over the gradients of an iteration do not compare.
        all(loss.disjoint and loss.gradients == 1 for loss in losses),
    )
