"""Several independent runs of one problem, as one network whose parts are not connected.

An iteration of a few small clients costs as much as the calls of the library, so ten runs together
take little longer than one. Randomness is keyed by the client's number: the runs differ in first
estimates, samples and noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from scipy import sparse

from tacit.algorithms.algorithm import Algorithm
from tacit.config.build import Experiment
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.graph import Graph
from tacit.record.transcript import Transcript
from tacit.tasks.stream import Stream


@dataclass(frozen=True)
class ReplicatedAlgorithm(Algorithm):
    """An algorithm on a network that is not connected: what it requires must hold for each part."""

    name: ClassVar[str] = "replicated"
    algorithm: Algorithm

    def start(self, here: Here) -> Any:
        return self.algorithm.start(here)

    def step(self, s: Any, here: Here) -> Any:
        return self.algorithm.step(s, here)


def replicated_simulation(
    experiment: Experiment,
    runs: int,
    transcript: Transcript | None = None,
    *,
    allow_divergence: bool = False,
) -> Simulation:
    """A simulation of `runs` copies of an experiment; client k of copy r is client r·N + k."""
    algorithm, task, graph = experiment.algorithm, experiment.task, experiment.graph
    graph.require(*algorithm.requires, by=algorithm.name)
    stream = task.parts
    if not isinstance(stream, Stream):
        raise Misuse("The task has stored data.", "Only streams can be replicated.")
    constants = tuple(array.repeat(runs, *[1] * (array.ndim - 1)) for array in stream.constants)
    copies = sparse.block_diag([graph.weights] * runs, format="csr")
    setting = Setting(
        ReplicatedAlgorithm(algorithm),
        replace(task, parts=replace(stream, constants=constants)),
        Graph.from_matrix(copies),
        seed=experiment.config.run.seed,
        device=experiment.config.run.device,
    )
    return Simulation(setting, transcript=transcript, allow_divergence=allow_divergence)
