"""Algorithms that keep a promised guarantee: what they need to know, and what a run spends."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import InitVar, dataclass, field, replace
from typing import ClassVar, Self

from tacit.algorithms.algorithm import COMPUTED, Algorithm
from tacit.algorithms.wrapped import WrappedAlgorithm
from tacit.core.devices import Precision
from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit.privacy.guarantee import Budget, Privacy
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.population import Population
from tacit.tasks import Objective
from tacit.tasks.parts import Parts


@dataclass(frozen=True)
class PrivateAlgorithm(Algorithm):
    """An algorithm with a differential-privacy guarantee for the whole run.

    Args:
        mechanism: What keeps the guarantee; `prepared` computes it.
    """

    keeps_guarantee: ClassVar[bool] = True

    mechanism: Mechanism | None = field(default=None, kw_only=True, metadata={COMPUTED: True})
    # Not an option: whoever sets it learns where the bound is set.
    clip: InitVar[None] = field(default=None, kw_only=True)

    def __post_init__(self, clip: None) -> None:
        if clip is not None:
            raise misplaced_clip(self.name, clip)

    @abstractmethod
    def prepared(self, promise: Privacy, facts: Population, graph: Graph) -> Self:
        """This algorithm with the noise that keeps a promise.

        Args:
            promise: The guarantee.
            facts: What it depends on.
            graph: The communication graph.

        Raises:
            Misuse: If the promise cannot be kept.
        """

    def cautions(self, graph: Graph) -> list[str]:
        budget = self.budget
        if budget is None or budget.allowed_steps >= budget.steps:
            return []
        return [
            f"the privacy budget allows {budget.allowed_steps} of {budget.steps} iterations: the "
            "run stops there; raise epsilon or the noise, or plan fewer rounds"
        ]

    @property
    def budget(self) -> Budget | None:
        return None if self.mechanism is None else self.mechanism.budget


class BudgetTooSmall(Misuse):
    """The noise that was given does not keep the promise for a single iteration."""

    exit_code = 1


def misplaced_clip(name: str, bound: object) -> Misuse:
    """The error for a clipping bound among the options of an algorithm that keeps a guarantee."""
    return Misuse(
        f"clip = {bound} is not an option of {name}: the clipping bound is part of the guarantee.",
        f"Write [privacy] clip = {bound} in a configuration (of a saved run, too), "
        f"tacit.Privacy(epsilon=…, clip={bound}) in Python.",
    )


def prepare(
    algorithm: Algorithm, promise: Privacy | None, task: Objective, graph: Graph, steps: int
) -> Algorithm:
    """The algorithm with the noise that keeps a promise for so many iterations of a task.

    Raises:
        Misuse: If the promise cannot be kept, the algorithm keeps none, or it needs one.
        BudgetTooSmall: If the noise that was given does not allow a single iteration.
    """
    if isinstance(algorithm, WrappedAlgorithm):
        return replace(algorithm, inner=prepare(algorithm.inner, promise, task, graph, steps))
    if not isinstance(algorithm, PrivateAlgorithm):
        if promise is None:
            return algorithm
        raise Misuse(
            f"{algorithm.name} does not keep a privacy guarantee.",
            "Use tacit.PrivateSGD, or leave `privacy` out.",
        )
    if promise is None:
        _require_same_population(algorithm, task, graph)
        return algorithm
    if not isinstance(promise, Privacy):
        raise Misuse(f"privacy is {promise!r}.", "Give tacit.Privacy(epsilon=3.0).")
    if task.disclosure and math.isfinite(promise.epsilon):
        raise Misuse(
            f"The guarantee does not cover what clients share before training: {task.disclosure}.",
            'Load tables with public constants, e.g. schema={"age": {"mean": 50, "std": 20}}, and '
            "declared classes; with standardize=False no sums are shared either.",
        )
    prepared = algorithm.prepared(promise, population(promise, task, graph.clients, steps), graph)
    budget = prepared.budget
    if budget is not None and budget.allowed_steps < 1:
        raise BudgetTooSmall(
            f"noise_multiplier = {budget.noise_multiplier:g} allows no iteration: the first spends "
            f"ε = {budget.spent(1):.3g}, and epsilon is {budget.epsilon:g}.",
            "Give more noise, or leave noise_multiplier out: it is then computed for the whole "
            "run.",
        )
    return prepared


def population(promise: Privacy, task: Objective, clients: int, steps: int) -> Population:
    """The public facts on which the guarantee for a task depends.

    A node knows its own part of the data only; the promise says how many samples all have.
    """
    parts, batch_size = require_samples(task)
    samples = promise.samples
    if samples is None:
        if parts.clients != clients:
            raise Misuse(
                "How many training samples all clients have together is not known.",
                "Set privacy.samples, e.g. samples = 60000. The number is public.",
            )
        samples = int(parts.sizes.sum())
    batch = promise.expected_batch(samples, clients * batch_size)
    return Population(clients, samples, batch, task.parameters, max(1, steps))


def _require_same_population(algorithm: PrivateAlgorithm, task: Objective, graph: Graph) -> None:
    """Raise Misuse if an algorithm was prepared for another task."""
    if algorithm.mechanism is None:
        return
    earlier, promise = algorithm.mechanism.facts, algorithm.mechanism.promise
    if population(promise, task, graph.clients, earlier.steps) != earlier:
        raise Misuse(
            f"This {algorithm.name} was prepared for {earlier.clients} clients with "
            f"{earlier.samples} samples, batches of {earlier.batch:g} and {earlier.parameters} "
            "parameters, which are not those of this task.",
            "Give `privacy` again: it is prepared anew.",
        )


def sampling_remarks(algorithm: Algorithm, task: Objective, precision: Precision) -> list[str]:
    """What a user must know about a guarantee for single samples of this task."""
    budget = algorithm.budget
    if budget is None or budget.unit != "sample":
        return []
    remarks = []
    if precision != "float32":
        remarks.append(
            f"gradients of single samples are computed in float32: precision = {precision!r} does "
            "not apply to them"
        )
    if task.draws.needed and math.isfinite(budget.epsilon):
        remarks.append(
            "dropout and augmentation are drawn by the numbers of samples, which others keep when "
            "one is added or removed: the guarantee is for data that differ in this way"
        )
    return remarks


def data_cautions(algorithm: Algorithm, task: Objective) -> list[str]:
    """What a guarantee assumes of the clients' data, if that could not be checked."""
    budget = algorithm.budget
    if budget is None or math.isinf(budget.epsilon):
        return []
    if not isinstance(task.parts, Parts) or task.parts.is_traced:
        return []
    return [
        "the clients' data are plain arrays or Datasets, which do not say whether two clients hold "
        "copies of a row, nor what was shared to prepare them: the guarantee assumes neither; "
        "dataset.train.parts(…) knows both"
    ]


def require_samples(task: Objective) -> tuple[Parts, int]:
    """The data of a task, of which samples can be drawn, and how many a client draws on average.

    Raises:
        Misuse: If the task has a stream or full gradients, or samples that occur twice.
    """
    if isinstance(task.parts, Parts) and task.batch_size is not None:
        if task.parts.has_repeats:
            raise Misuse(
                "Some samples occur several times in the clients' data: each of them changes a sum "
                "by more than the clipping bound.",
                "Give every sample to one client, once.",
            )
        return task.parts, task.batch_size
    raise Misuse(
        "A guarantee needs samples that can be drawn, but this task has a stream or full "
        "gradients.",
        "Train on data with a batch_size.",
    )
