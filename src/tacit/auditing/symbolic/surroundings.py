"""The network of a run on symbols or of its replay: dense, in float64, recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.core.fixed_point import IntegerRows
from tacit.core.here import Network
from tacit.core.hosted_clients import HostedClients
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.rows import Sent, received
from tacit.engines.changing_network import ChangingNetwork, keep_absent
from tacit.graph import Graph, Moment, World
from tacit.record.transcript import Transcript, TranscriptRecorder


class Surroundings:
    """The network of a world in float64 and its recorder, one iteration after the other.

    Attributes:
        recorder: Records the messages.
        neighbourhood: The edges of the current iteration.
    """

    def __init__(self, world: World, algorithm: Algorithm, transcript: Transcript) -> None:
        self._world, self._algorithm = world, algorithm
        self._graph: Graph | None = None
        self.neighbourhood = _neighbourhood(world.graph)
        self._network: Network = DenseNetwork(world.graph)
        if not world.is_static:
            self._network = ChangingNetwork(DenseNetwork, algorithm.tolerates.uses_once)
        self.recorder = TranscriptRecorder(self._network, transcript, self.neighbourhood)
        self.enter(0)

    def step(self, here: HostedClients, state: Any, t: int) -> tuple[Any, Moment]:
        """Do iteration t; absent clients keep their state."""
        self.recorder.set_tick(t + 1)
        moment = self.enter(t)
        after = self._algorithm.step(state, here.at(t, self.neighbourhood))
        if moment.present is not None:
            after = keep_absent(tensors_of(state), after, moment.present)
        return after, moment

    def enter(self, t: int) -> Moment:
        """Go to iteration t."""
        if not isinstance(self._network, ChangingNetwork):
            return Moment(self._world.graph)
        moment = self._world.at(t)
        self._network.enter(moment, self._world.longest_delay)
        if moment.graph is not self._graph:
            self._graph = moment.graph
            self._algorithm.check_moment(moment.graph, t)
            self.neighbourhood = _neighbourhood(moment.graph)
            self.recorder.change_graph(self.neighbourhood)
        return moment


def _neighbourhood(graph: Graph) -> Neighbourhood:
    return Neighbourhood.of(graph.edges, np.arange(graph.clients), "cpu", graph.weights)


class DenseNetwork:
    """Delivers messages between all clients in float64."""

    def __init__(self, graph: Graph) -> None:
        self._weights = torch.as_tensor(graph.weights.toarray(), dtype=torch.float64)
        source, target = graph.edges[:, 0], graph.edges[:, 1]
        self._delivery = torch.as_tensor(np.lexsort((source, target)))

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        return tuple(self._weights @ received(sent) for sent in rows.values())

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        return edge_rows[self._delivery]

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        sums = [sent.integers.sum(0, keepdim=True) for sent in rows.values()]
        return tuple(total.repeat(len(self._weights), 1) for total in sums)

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.mean(0, keepdim=True).repeat(len(x), 1) for x in rows.values())
