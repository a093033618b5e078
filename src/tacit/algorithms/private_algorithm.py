"""Algorithms that keep a promised guarantee: what they need to know, and what a run spends."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, Self

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.wrapped import WrappedAlgorithm
from tacit.core.devices import Precision
from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit.privacy.guarantee import Privacy
from tacit.privacy.population import Population
from tacit.tasks import Task
from tacit.tasks.parts import Parts


class PrivateAlgorithm(Algorithm):
    """An algorithm with a differential-privacy guarantee for the whole run."""

    keeps_guarantee: ClassVar[bool] = True

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
    @abstractmethod
    def facts(self) -> Population | None:
        """What it was prepared for; None before."""


def prepare(
    algorithm: Algorithm, promise: Privacy | None, task: Task, graph: Graph, steps: int
) -> Algorithm:
    """The algorithm with the noise that keeps a promise for so many iterations of a task.

    Raises:
        Misuse: If the promise cannot be kept, the algorithm keeps none, or it needs one.
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
    earlier = algorithm.facts
    if promise is None and earlier is None:
        return algorithm
    parts, batch_size = require_samples(task)
    samples = int(parts.sizes.sum())
    batch = min(samples, task.clients * batch_size)
    facts = Population(task.clients, samples, batch, task.parameters, steps)
    if promise is None:
        if earlier is not None and replace(earlier, steps=steps) != facts:
            raise Misuse(
                f"This {algorithm.name} was prepared for {earlier.clients} clients with "
                f"{earlier.samples} samples, batches of {earlier.batch:g} and {earlier.parameters} "
                "parameters, which are not those of this task.",
                "Give `privacy` again: it is prepared anew.",
            )
        return algorithm
    if not isinstance(promise, Privacy):
        raise Misuse(f"privacy is {promise!r}.", "Give tacit.Privacy(epsilon=3.0).")
    if task.disclosure and math.isfinite(promise.epsilon):
        raise Misuse(
            f"The guarantee does not cover what clients share before training: {task.disclosure}.",
            'Load tables with public constants, e.g. schema={"age": {"mean": 50, "std": 20}}, and '
            "declared classes; with standardize=False no sums are shared either.",
        )
    return algorithm.prepared(promise, facts, graph)


def sampling_remarks(algorithm: Algorithm, task: Task, precision: Precision) -> list[str]:
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


def data_cautions(algorithm: Algorithm, task: Task) -> list[str]:
    """What a guarantee assumes of the clients' data, if that could not be checked."""
    budget = algorithm.budget
    if budget is None or math.isinf(budget.epsilon):
        return []
    if not isinstance(task.parts, Parts) or task.parts.is_traced:
        return []
    return [
        "the clients' data are plain arrays, which do not say whether two clients hold the same "
        "row, nor what was shared to prepare them: the guarantee assumes neither; "
        "dataset.train.parts(…) knows both"
    ]


def require_samples(task: Task) -> tuple[Parts, int]:
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
