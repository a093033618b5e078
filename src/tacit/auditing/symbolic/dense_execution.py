"""Runs the text of an algorithm without a simulator, on symbols or on made-up numbers.

All clients are in one process, their rows are float64, and every message is recorded. Masked sums
add up rows as they are, without rounding or modulus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.auditing.symbolic.algorithm_text import failures_located
from tacit.core.fixed_point import MASK, MODULUS, RESERVED, FixedPoint, IntegerRows
from tacit.core.here import Network
from tacit.core.hosted_clients import HostedClients
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Gaussian
from tacit.core.rows import Sent, received
from tacit.engines.changing_network import ChangingNetwork, keep_absent
from tacit.graph import Graph, Moment, World
from tacit.record.transcript import Transcript, TranscriptRecorder


class DenseExecution:
    """An algorithm in a world, one iteration after the other.

    Attributes:
        recorder: The network, which records the messages in a transcript.
        neighbourhood: The edges of the current iteration.
    """

    def __init__(self, algorithm: Algorithm, world: World, transcript: Transcript) -> None:
        self._algorithm, self._world = algorithm, world
        self._graph: Graph | None = None
        self.neighbourhood = _neighbourhood(world.graph)
        self._network: Network = DenseNetwork(world.graph)
        if not world.is_static:
            self._network = ChangingNetwork(DenseNetwork, algorithm.tolerates.uses_once)
        self.recorder = TranscriptRecorder(self._network, transcript, self.neighbourhood)
        self._enter(0)

    def states(
        self, here: HostedClients, iterations: Iterable[int], state: Any = None
    ) -> Iterator[tuple[Any, Moment]]:
        """The state before the first iteration and after each, and who took part in it.

        Args:
            here: The clients, whose network is the recorder.
            iterations: The iterations to compute, in order.
            state: The state before them; by default the algorithm's own start.
        """
        if state is None:
            with failures_located(self._algorithm.name):
                state = self._algorithm.start(here)
        yield state, Moment(self._world.graph)
        for t in iterations:
            self.recorder.set_tick(t + 1)
            moment = self._enter(t)
            with failures_located(self._algorithm.name):
                after = self._algorithm.step(state, here.at(t, self.neighbourhood))
            if moment.present is not None:
                after = keep_absent(tensors_of(state), after, moment.present)
            state = after
            yield state, moment

    def _enter(self, t: int) -> Moment:
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


class UnroundedClients(HostedClients):
    """Hosted clients that sum their rows as they are."""

    def encoded_with(self, code: FixedPoint, rows: Tensor) -> None:
        """Take note of how these rows would be encoded."""

    def fixed_point(self, tag: str, rows: Tensor, code: FixedPoint) -> IntegerRows:
        graph, tick, draw = self.graph, self._tick, self.randomness.rows
        self.encoded_with(code, rows)
        if code.noise is not None:
            law = Gaussian(code.noise_deviation)
            rows = rows + draw(f"{RESERVED} {tag}/noise", law, tick, graph.ids, None).tensor()
        masks = draw(f"{RESERVED} {tag}/mask", MASK, tick, *graph.edge_ends)
        shape = (len(rows), rows.shape[1])
        return IntegerRows(
            shape, lambda: rows, graph, masks.tensor, None, lambda total: total, MODULUS
        )
