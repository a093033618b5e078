"""From evidence about several victims to the observations that an inversion takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.data_spec import reuses_batches
from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.attacks.observation import Observation
from tacit.core.errors import Misuse
from tacit.record.unknowns import Unknown
from tacit.tasks import Objective
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.cells import MeasureContext

NO_IMAGES = ("This task has no images to reconstruct.", "Name a dataset of images and a model.")


@dataclass(frozen=True, eq=False)
class VictimObservations:
    """Evidence of one shape about several victims, inverted at once."""

    kind: str
    victim: int  # the first
    observation: Observation
    batches: list[tuple[Unknown, ...]]  # per victim, a gradient of each batch that is searched
    rounding: float  # the largest


def separate_observations(
    task: Objective, evidence: Sequence[Evidence], context: MeasureContext
) -> list[VictimObservations]:
    """One piece of evidence per victim; those with equally many gradients are inverted at once."""
    groups: dict[int, list[Evidence]] = {}
    for one in evidence:
        groups.setdefault(len(one.terms), []).append(one)
    return [_group(task, group, context) for group in groups.values()]


def _group(task: Objective, group: list[Evidence], context: MeasureContext) -> VictimObservations:
    first, coefficients = group[0], torch.tensor(group[0].coefficients)
    same_data = len(coefficients) == 1 or (first.kind != "sum" and reuses_batches(task))
    points = torch.stack([_points(one) for one in group])
    values = torch.stack([one.values for one in group])
    points, coefficients, values = _on_device(task, context, points, coefficients, values)
    return VictimObservations(
        first.kind,
        first.victim,
        Observation.single(points, coefficients, values, same_data),
        [(min(one.terms, key=lambda u: u.when),) if same_data else one.terms for one in group],
        max(one.rounding for one in group),
    )


def joint_observation(
    task: Objective,
    evidence: Sequence[tuple[Sequence[Evidence], Evidence]],
    context: MeasureContext,
) -> VictimObservations:
    """Per victim, the differences of all gradients in a sum, and the sum; all of one size."""
    if not reuses_batches(task):
        raise Misuse(
            "Every iteration takes gradients of other data.",
            "Let a batch be all data of a client.",
        )
    for differences, total in evidence:
        if [one.terms[1] for one in differences] != list(total.terms):
            raise Misuse(
                f"The differences are not of the gradients in {total}.", "Give them in its order."
            )
    later, earlier = (
        torch.stack([torch.stack([_points(one)[k] for one in each]) for each, _ in evidence])
        for k in (0, 1)
    )
    changes = torch.stack([torch.stack([one.values for one in each]) for each, _ in evidence])
    sums = torch.stack([total.values for _, total in evidence])
    tensors = _on_device(task, context, later, earlier, changes, sums)
    return VictimObservations(
        "changes and sum",
        evidence[0][1].victim,
        _changes_and_sum(*tensors),
        [total.terms for _, total in evidence],
        max(one.rounding for differences, total in evidence for one in (*differences, total)),
    )


def _changes_and_sum(later: Tensor, earlier: Tensor, changes: Tensor, total: Tensor) -> Observation:
    """∇L(θₖ¹; xₖ, yₖ) − ∇L(θₖ⁰; xₖ, yₖ) of each of K clients, and Σₖ ∇L(θₖ⁰; xₖ, yₖ).

    Weights `later` θ¹ and `earlier` θ⁰ and changes are [V, K, P], the total is [V, P].
    """
    clients = later.shape[1]
    unit = torch.eye(clients, dtype=later.dtype, device=later.device)
    total_row = torch.cat((torch.zeros_like(unit[:1]), torch.ones_like(unit[:1])), 1)
    rows = torch.cat((torch.cat((unit, -unit), 1), total_row))
    values = torch.cat((changes, total[:, None]), 1)
    data = (*range(clients), *range(clients))
    return Observation(torch.cat((later, earlier), 1), rows, values, data)


def _points(one: Evidence) -> Tensor:
    if one.points is None:
        raise Misuse(f"The models of {one} are not known.", "Give other evidence.")
    return one.points


def _on_device(task: Objective, context: MeasureContext, *tensors: Tensor) -> list[Tensor]:
    if not isinstance(task.loss, ModuleLoss):
        raise Misuse(*NO_IMAGES)
    return [tensor.to(context.device, task.loss.flat.dtype) for tensor in tensors]
