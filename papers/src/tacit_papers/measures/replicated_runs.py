"""Several independent runs of one problem, side by side as one network of parts that do not hear of each other.

An iteration of a few small clients costs what calling the library costs, so ten runs together take little longer than
one. Everything random is keyed by the client's number: the runs differ in first estimates, samples and noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from scipy import sparse

from tacit.algorithms.algorithm import Algorithm
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.graph import Graph
from tacit.tasks import Task
from tacit.tasks.stream import Stream


@dataclass(frozen=True)
class SideBySide:
    """An algorithm on a network that is not connected: what it requires must hold for each part."""

    name: ClassVar[str] = "side by side"
    paper: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    protects: ClassVar[str] = "what the algorithm within protects"

    within: Algorithm

    def start(self, here: Here) -> Any:
        """As the algorithm within."""
        return self.within.start(here)

    def step(self, s: Any, here: Here) -> Any:
        """As the algorithm within."""
        return self.within.step(s, here)


def side_by_side(
    algorithm: Algorithm, task: Task, graph: Graph, runs: int
) -> tuple[SideBySide, Task, Graph]:
    """The same for `runs` copies of the network; client k of copy r is client r·N + k."""
    graph.require(*algorithm.requires, by=algorithm.name)
    stream = task.parts
    if not isinstance(stream, Stream):
        raise Misuse("The task is no stream.", "Run tasks with data of their own one by one.")
    constants = tuple(array.repeat(runs, *[1] * (array.ndim - 1)) for array in stream.constants)
    copies = sparse.block_diag([graph.weights] * runs, format="csr")
    return (
        SideBySide(algorithm),
        replace(task, parts=replace(stream, constants=constants)),
        Graph.from_matrix(copies),
    )
