"""From evidence on several victims to what an inversion takes: each piece alone, or several known together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.attacks.observation import JointObservation, Observation
from tacit.auditing.attacks.reconstructions import repeats
from tacit.core.errors import Misuse
from tacit.record.unknowns import Unknown
from tacit.tasks import Task
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.artifact import MeasureContext


@dataclass(frozen=True, eq=False)
class Observed:
    """Evidence of one shape on some victims, inverted at once."""

    kind: str
    victim: int  # the first
    observation: Observation | JointObservation
    batches: list[tuple[Unknown, ...]]  # per victim, a gradient of each batch that is searched
    rounding: float  # the largest


def each_alone(task: Task, held: Sequence[Evidence], place: MeasureContext) -> list[Observed]:
    """One piece per victim; those with equally many gradients at once."""
    groups: dict[int, list[Evidence]] = {}
    for one in held:
        groups.setdefault(len(one.terms), []).append(one)
    return [_alone(task, group, place) for group in groups.values()]


def _alone(task: Task, held: list[Evidence], place: MeasureContext) -> Observed:
    coefficients = torch.tensor(held[0].coefficients)
    one_batch = len(coefficients) == 1 or (held[0].kind != "sum" and repeats(task))
    points = torch.stack([_points(one) for one in held])
    values = torch.stack([one.values for one in held])
    where, what, value = _placed(task, place, points, coefficients, values)
    terms = [(min(one.terms, key=lambda u: u.when),) if one_batch else one.terms for one in held]
    observation = Observation(where, what, value, one_batch)
    return Observed(
        held[0].kind, held[0].victim, observation, terms, max(one.rounding for one in held)
    )


def changes_and_sum(
    task: Task, held: Sequence[tuple[Sequence[Evidence], Evidence]], place: MeasureContext
) -> Observed:
    """Of each victim the changes of all gradients in a sum, and the sum: of components of one size."""
    if not repeats(task):
        raise Misuse(
            "Gradients are of other data in every iteration.",
            "Let batches be all of a client's data.",
        )
    for changes, total in held:
        if [change.terms[1] for change in changes] != list(total.terms):
            raise Misuse(
                f"The changes are not those of the gradients in {total}.", "Give them in its order."
            )
    later, earlier = (
        torch.stack([torch.stack([_points(one)[k] for one in changes]) for changes, _ in held])
        for k in (0, 1)
    )
    change = torch.stack([torch.stack([one.values for one in changes]) for changes, _ in held])
    whole = torch.stack([total.values for _, total in held])
    observation = JointObservation.changes_and_sum(
        *_placed(task, place, later, earlier, change, whole)
    )
    rounding = max(one.rounding for changes, total in held for one in (*changes, total))
    return Observed(
        "changes and sum", held[0][1].victim, observation, [s.terms for _, s in held], rounding
    )


def _points(one: Evidence) -> Tensor:
    if one.points is None:
        raise Misuse(
            f"It is not known where the gradients of {one} were taken.", "Give other evidence."
        )
    return one.points


def _placed(task: Task, place: MeasureContext, *arrays: Tensor) -> list[Tensor]:
    if not isinstance(task.loss, ModuleLoss):
        raise Misuse(
            "This task has no images to reconstruct.", "Name a dataset of images and a model."
        )
    return [array.to(place.device, task.loss.flat.dtype) for array in arrays]
