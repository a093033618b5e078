"""Gradient inversion: a search for inputs, and labels, whose gradients match the observed ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.gradient_matching import L2, MatchingLoss, MatchingProblems
from tacit.auditing.attacks.guesses import GuessLayout, Labels, choose_labels, draw_starts
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.linear_layers import activations
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.attacks.optimiser import Minimum, Optimiser
from tacit.core.checks import check_count, check_positive, is_count, is_number
from tacit.core.devices import float32_products
from tacit.core.errors import Misuse
from tacit.tasks.flat import Loss, ModuleLoss

DLG_LOSS, DLG_OPTIMISER = L2(), LBFGS()
MEMORY = 1 << 29  # numbers in memory at a time
GRAPH_COPIES = 16  # of weights and guesses in the graph of a gradient of a gradient, roughly
InversionProgress = Callable[[int, int, Tensor], None]


@dataclass(frozen=True, eq=False)
class InversionResult:
    """The best guess for each victim, chosen by its matching loss without the truth."""

    inputs: Tensor  # [V, (K,) batch, *shape]
    labels: Tensor  # classes or numbers [V, (K,) batch], or as they were given
    losses: Tensor  # [V, G]: of all guesses, R restarts for each estimate of the labels
    chosen: Tensor  # [V]
    iterations: Tensor  # [V, G]
    evaluations: Tensor  # [V, G]
    seconds: float
    assumptions: list[str]
    cut_short: bool  # stopped by the time budget


@float32_products()
def invert(
    loss: Loss,
    observation: Observation,
    spec: DataSpec,
    *,
    labels: Labels = None,
    matching_loss: MatchingLoss = DLG_LOSS,
    optimiser: Optimiser = DLG_OPTIMISER,
    restarts: int = 8,
    seed: int = 0,
    budget_seconds: float | None = None,
    progress: InversionProgress | None = None,
) -> InversionResult:
    """Search inputs with Σₖ cₖ∇L(θₖ; xₖ, yₖ) ≈ v, all victims and restarts at once.

    Args:
        loss: The loss of the attacked model.
        observation: The observed values v of V victims. Of a `Observation` the mean matching
            loss of its values is minimised.
        spec: What is known about the data. First guesses are in the box of inputs, and final ones
            are clamped to it; numbers that are targets are searched along with the inputs.
        labels: A tensor if they are known, or several estimates and what each rests on, which are
            all tried. "optimise" searches soft labels along with the inputs (as DLG did). None
            recovers the labels of gradients and sums from the last layer if possible, and optimises
            them otherwise.
        matching_loss: Distance between gradients; by default that of DLG.
        optimiser: By default L-BFGS.
        restarts: Random first guesses R per victim, the same with each estimate of the labels.
        seed: Draws the first guesses.
        budget_seconds: Time after which the search ends with the best guesses so far.
        progress: Called with the iterations done, the iterations in all, and the best loss of each
            victim so far [V].

    Returns:
        Inputs [V, (K,) batch, *shape] and labels [V, (K,) batch]; with a dimension K if the
        gradients are of K batches.
    """
    began = time.monotonic()
    _check(loss, observation, spec, restarts, budget_seconds)
    layout = GuessLayout(observation.batches, spec, soft=True)
    values = observation.values
    if isinstance(loss, ModuleLoss):
        loss = loss.to(values.device)
    fixed, sources = choose_labels(labels, loss, observation, layout, restarts, seed)
    layout = replace(layout, soft=fixed is None)
    start = draw_starts(layout, values, restarts, seed).view(len(values), restarts, -1)
    start = start.repeat(1, len(sources), 1).flatten(0, 1)
    guesses = restarts * len(sources)
    count = -(-len(start) // _guesses_that_fit(observation, optimiser, layout))
    groups = torch.arange(len(start), device=values.device).tensor_split(count)
    best = values.new_full((len(values), guesses), torch.inf)
    monitor = _Monitor(groups, optimiser.iterations, best, budget_seconds, progress)
    parts = []
    for group, problems in enumerate(groups):
        monitor.group = group
        matching = MatchingProblems(
            loss, observation, matching_loss, layout, fixed, problems, guesses
        )
        parts.append(
            optimiser.minimise(start[problems], matching, project=layout.clamp, callback=monitor)
        )
    found = Minimum.concatenate(parts)

    losses = found.values.reshape(len(values), -1)
    chosen = losses.argmin(1)
    victim = torch.arange(len(values), device=values.device)
    rows = found.x[victim * guesses + chosen]
    inputs = layout.inputs(rows)
    guessed = layout.targets(rows) if fixed is None else fixed[victim, chosen]
    if fixed is None and spec.numbers is None:
        guessed = guessed.argmax(-1)
    if observation.same_data:
        inputs, guessed = inputs[:, 0], guessed[:, 0]
    rest_on = dict.fromkeys(sources[guess // restarts] for guess in chosen.tolist())
    return InversionResult(
        inputs,
        guessed,
        losses,
        chosen,
        found.iterations.view_as(losses),
        found.evaluations.view_as(losses),
        time.monotonic() - began,
        [*rest_on, *_assumptions(loss, observation, spec), *monitor.notes],
        bool(monitor.notes),
    )


def _guesses_that_fit(observation: Observation, optimiser: Optimiser, layout: GuessLayout) -> int:
    terms, width = observation.weights.shape[1:]
    graph = GRAPH_COPIES * (terms * width + layout.width)
    return max(1, MEMORY // (graph + optimiser.workspace(layout.width)))


@dataclass(eq=False)
class _Monitor:
    """Reports progress over all groups of guesses, and ends a group when its budget is spent."""

    groups: Sequence[Tensor]
    iterations: int
    best: Tensor  # [V, G]: losses so far
    budget: float | None
    progress: InversionProgress | None
    group: int = 0
    reported: int = -1
    began: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)

    def __call__(self, iteration: int, values: Tensor) -> bool:
        count, done = len(self.groups), self.group * self.iterations + iteration
        if self.progress is not None and done > self.reported:
            self.reported = done
            self.best.view(-1)[self.groups[self.group]] = values
            self.progress(done, count * self.iterations, self.best.amin(1))
        if self.budget is None:
            return False
        over = time.monotonic() - self.began >= self.budget * (self.group + 1) / count
        if over:
            self.notes = [
                f"stopped by the budget of {self.budget:g} s at iteration {iteration} of "
                f"{self.iterations}: the best so far, not the best this attack can do"
            ]
        return over


def _assumptions(loss: Loss, observation: Observation, spec: DataSpec) -> list[str]:
    terms, box = observation.weights.shape[1], spec.box
    taken = "weights known at which each gradient was taken"
    assumptions = [taken, f"batch size known: {spec.batch}"]
    if not observation.is_single:
        assumptions.append(
            f"{observation.values.shape[1]} values known together, of {terms} gradients of "
            f"{observation.batches} batches"
        )
    elif observation.same_data and terms > 1:
        assumptions.append(f"data reused: all {terms} gradients are of the same batch")
    elif not observation.same_data:
        kind = "a sum" if bool((observation.coefficients == 1).all()) else "a combination"
        assumptions.append(f"{kind} of {terms} gradients, each of a batch of its own")
    if observation.keys is not None:
        assumptions.append("masks of dropout known: they follow from the seed")
    if isinstance(loss, ModuleLoss):
        kinds = ", ".join(activations(loss.flat.module)) or "none among the layers"
        assumptions.append(f"activation: {kinds}")
    assumptions.append(
        "range of the inputs not used" if box is None else f"inputs known to be in {list(box)}"
    )
    return assumptions


def _check(
    loss: Loss, observation: Observation, spec: DataSpec, restarts: int, budget: float | None
) -> None:
    shape, box = spec.shape, spec.box
    if isinstance(loss, ModuleLoss) and observation.values.shape[-1] != loss.flat.width:
        raise Misuse(
            f"The observation has {observation.values.shape[-1]} parameters, the model "
            f"{loss.flat.width}.",
            "Give the loss of the model that the gradients are of.",
        )
    if not shape or not all(is_count(size) for size in shape):
        raise Misuse(f"shape is {shape}.", "Give the shape of one input, e.g. (1, 28, 28).")
    check_count("batch", spec.batch)
    check_count("classes", spec.classes, at_least=int(spec.numbers is None))
    check_count("restarts", restarts)
    if box is not None and not (len(box) == 2 and all(map(is_number, box)) and box[0] < box[1]):
        raise Misuse(
            f"box is {box!r}.", "Give the lowest and the highest value of an input, or None."
        )
    if budget is not None:
        check_positive("budget_seconds", budget)
