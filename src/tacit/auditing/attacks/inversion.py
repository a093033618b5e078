"""Gradient inversion: inputs, and labels, whose gradients are those that were observed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.gradient_matching import MatchingProblems
from tacit.auditing.attacks.guesses import Box, GuessLayout, Labels, draw_starts, settle_labels
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.linear_layers import activations
from tacit.auditing.attacks.matching_losses import L2, MatchingLoss
from tacit.auditing.attacks.observation import JointObservation, Observation
from tacit.auditing.attacks.optimiser import Minimum, Optimiser
from tacit.core.checks import check_count, check_positive, is_count, is_number
from tacit.core.errors import Misuse
from tacit.core.precision import consistent_tf32
from tacit.tasks.flat import Loss, ModuleLoss

DISTANCE, SEARCH = L2(), LBFGS()  # unless others are given: those of DLG
ROOM = 1 << 29  # numbers in memory at a time
GRAPH = (
    16  # copies of weights and guesses that the graph of a gradient of a gradient holds, roughly
)
Progress = Callable[[int, int, Tensor], None]


@dataclass(frozen=True, eq=False)
class InversionResult:
    """What the attacker ends up with; `chosen` by its own matching loss, never by the truth."""

    inputs: Tensor  # [V, (K,) batch, *shape]
    labels: Tensor  # [V, (K,) batch], or as they were given
    losses: Tensor  # [V, R]: of all restarts
    chosen: Tensor  # [V]
    iterations: Tensor  # [V, R]
    evaluations: Tensor  # [V, R]
    seconds: float
    assumptions: list[str]


@consistent_tf32()
def invert(
    loss: Loss,
    observation: Observation | JointObservation,
    *,
    shape: Sequence[int],
    batch: int = 1,
    classes: int,
    labels: Labels = None,
    objective: MatchingLoss = DISTANCE,
    optimiser: Optimiser = SEARCH,
    restarts: int = 8,
    seed: int = 0,
    box: Box = (0.0, 1.0),
    budget_seconds: float | None = None,
    chunk: int | None = None,
    progress: Progress | None = None,
) -> InversionResult:
    """Search inputs x [V, (K,) batch, *shape] with Σₖ cₖ∇L(θₖ; xₖ, yₖ) ≈ v, all victims and restarts at once.

    Of values that are known together (`JointObservation`) the objectives are averaged.

    `labels`: a tensor if they are known; "recover" reads them off the last layer, "optimise" searches soft labels
    along with the inputs (as DLG did), "enumerate" tries all classes (one sample; `restarts` for each class).
    None recovers them where a gradient tells them, and optimises them otherwise: a difference tells them by a rule
    of thumb only. Restarts begin at random points of the `box`; what ends outside is moved to its border. `chunk`
    guesses are searched at a time, or as many as fit.
    `progress` is called with the iteration, of how many, and the best losses so far [V].
    """
    _check(loss, observation, shape, batch, classes, restarts, box, budget_seconds, chunk)
    began = time.monotonic()
    values = observation.values
    if isinstance(loss, ModuleLoss):
        loss = loss.to(values.device)
    settled = settle_labels(
        labels,
        loss,
        observation,
        shape=shape,
        batch=batch,
        classes=classes,
        restarts=restarts,
        seed=seed,
        box=box,
    )
    layout = GuessLayout(observation.batches, batch, tuple(shape), classes, soft=settled.labels is None)
    start = draw_starts(layout, len(values), settled.guesses, box, seed, like=values)
    size = chunk or _fitting(observation, optimiser, layout)
    groups = torch.arange(len(start), device=values.device).tensor_split(-(-len(start) // size))
    watch = _Watch(
        len(groups), optimiser.iterations, settled.guesses, values[:, 0], budget_seconds, progress
    )
    parts = []
    for problems in groups:
        matching = MatchingProblems(
            loss, observation, objective, layout, settled.labels, problems, settled.guesses
        )
        watch.next_group(problems)
        parts.append(
            optimiser.minimise(
                start[problems],
                matching,
                project=lambda rows: layout.into_box(rows, box),
                watch=watch,
            )
        )
    found = Minimum.joined(parts)

    losses = found.values.reshape(len(values), -1)
    chosen = losses.argmin(1)
    victim = torch.arange(len(values), device=values.device)
    rows = found.x[victim * settled.guesses + chosen]
    guessed = (
        layout.soft_labels(rows).argmax(-1)
        if settled.labels is None
        else settled.labels[victim, chosen]
    )
    inputs = layout.inputs(rows)
    if observation.same_data:
        inputs, guessed = inputs[:, 0], guessed[:, 0]
    assumptions = [settled.assumption, *_assumptions(loss, observation, batch, box), *watch.remarks]
    return InversionResult(
        inputs,
        guessed,
        losses,
        chosen,
        found.iterations.view_as(losses),
        found.evaluations.view_as(losses),
        time.monotonic() - began,
        assumptions,
    )


def _fitting(
    observation: Observation | JointObservation, optimiser: Optimiser, layout: GuessLayout
) -> int:
    """How many guesses are searched at a time: so many that the memory is enough, as far as one can tell."""
    terms, width = observation.weights.shape[1:]
    return max(
        1, ROOM // (GRAPH * (terms * width + layout.width) + optimiser.workspace(layout.width))
    )


class _Watch:
    """Reports progress over all groups of guesses, and ends a group when its share of the budget is spent."""

    def __init__(
        self,
        groups: int,
        iterations: int,
        guesses: int,
        like: Tensor,
        budget: float | None,
        progress: Progress | None,
    ) -> None:
        self.groups, self.iterations, self.guesses = groups, iterations, guesses
        self.best = torch.full(
            (len(like) * guesses,), torch.inf, dtype=like.dtype, device=like.device
        )
        self.budget, self.progress = budget, progress
        self.began = time.monotonic()
        self.group, self.reported = -1, -1
        self.remarks: list[str] = []

    def next_group(self, problems: Tensor) -> None:
        """From now on it is called for these problems."""
        self.group += 1
        self.problems = problems

    def __call__(self, iteration: int, values: Tensor) -> bool:
        done = self.group * self.iterations + iteration
        if self.progress is not None and done > self.reported:
            self.reported = done
            self.best[self.problems] = values
            best = self.best.view(-1, self.guesses).amin(1)
            self.progress(done, self.groups * self.iterations, best)
        if self.budget is None:
            return False
        over = time.monotonic() - self.began >= self.budget * (self.group + 1) / self.groups
        if over:
            self.remarks = [
                f"stopped by the budget of {self.budget:g} s at iteration {iteration} of {self.iterations}: "
                "the best so far, not the best this attack can do"
            ]
        return over


def _assumptions(
    loss: Loss, observation: Observation | JointObservation, batch: int, box: Box
) -> list[str]:
    terms = observation.weights.shape[1]
    said = ["weights known at which each gradient was taken", f"batch size known: {batch}"]
    if isinstance(observation, JointObservation):
        said.append(
            f"{observation.values.shape[1]} values known together, of {terms} gradients of "
            f"{observation.batches} batches"
        )
    elif observation.same_data and terms > 1:
        said.append(f"data reused: all {terms} gradients are of the same batch")
    elif not observation.same_data:
        alike = bool((observation.coefficients == 1).all())
        said.append(
            f"{'a sum of' if alike else 'a combination of'} {terms} gradients, each of a batch of its own"
        )
    if isinstance(loss, ModuleLoss):
        said.append(
            f"activation: {', '.join(activations(loss.flat.module)) or 'none among the layers'}"
        )
    said.append(
        "range of the inputs not used" if box is None else f"inputs known to be in {list(box)}"
    )
    return said


def _check(
    loss: Loss,
    observation: Observation | JointObservation,
    shape: Sequence[int],
    batch: int,
    classes: int,
    restarts: int,
    box: Box,
    budget: float | None,
    chunk: int | None,
) -> None:
    if isinstance(loss, ModuleLoss) and observation.values.shape[-1] != loss.flat.width:
        raise Misuse(
            f"The observation has {observation.values.shape[-1]} parameters, the model {loss.flat.width}.",
            "Give the loss of the model that the gradients are of.",
        )
    if not shape or not all(is_count(size) for size in shape):
        raise Misuse(
            f"shape is {tuple(shape)}.", "Give the shape of one input, such as (1, 28, 28)."
        )
    for name, count in (
        ("batch", batch),
        ("classes", classes),
        ("restarts", restarts),
        ("chunk", chunk),
    ):
        if name != "chunk" or count is not None:
            check_count(name, count)
    if box is not None and not (len(box) == 2 and all(map(is_number, box)) and box[0] < box[1]):
        raise Misuse(
            f"box is {box!r}.", "Give the lowest and the highest value of an input, or None."
        )
    if budget is not None:
        check_positive("budget_seconds", budget)
