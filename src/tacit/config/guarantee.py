"""The guarantee of a configuration: what [privacy] promises, and the algorithm that keeps it."""

from __future__ import annotations

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.private_algorithm import prepare
from tacit.config.sections import Config
from tacit.core.errors import Misuse, prefix_errors
from tacit.graph import Graph
from tacit.privacy.guarantee import Privacy
from tacit.tasks import Objective


def with_guarantee(
    config: Config, algorithm: Algorithm, task: Objective, graph: Graph, steps: int
) -> Algorithm:
    """The algorithm with the noise that keeps the promise of [privacy] for so many iterations.

    Raises:
        Misuse: If the promise cannot be kept, or the algorithm needs one and there is none.
    """
    promise = promise_of(config, algorithm)
    with prefix_errors("[privacy]"):
        return prepare(algorithm, promise, task, graph, steps)


def promise_of(config: Config, algorithm: Algorithm) -> Privacy | None:
    """The promise of [privacy]; None for an algorithm that keeps none.

    Raises:
        Misuse: If the algorithm needs a promise and there is none, or it does not keep one.
    """
    section = config.privacy
    if not algorithm.keeps_guarantee:
        if section is None:
            return None
        raise Misuse(
            f"[privacy] promises a guarantee, which {algorithm.name} does not keep.",
            "Choose an algorithm that does (`tacit algorithms`), or remove the section.",
        )
    if section is None:
        raise Misuse(
            f"{algorithm.name} keeps a guarantee, and none is given.",
            "Add one: [privacy] epsilon = 3.0 (or inf for sums without noise).",
        )
    with prefix_errors("[privacy]"):
        return Privacy(**section.model_dump())
