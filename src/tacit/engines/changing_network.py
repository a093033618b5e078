"""The network of a changing world: another graph in every iteration, and messages that are late."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tacit.algorithms.algorithm import tensors_of
from tacit.core.errors import Misuse
from tacit.core.fixed_point import IntegerRows
from tacit.core.here import Network
from tacit.core.rows import Sent, received, row_bytes
from tacit.engines.buffers import Buffers
from tacit.graph import Graph, Moment, Topology
from tacit.graph.participation import Flags

State = TypeVar("State")
# Networks that are kept, for graphs that return.
MOST_KEPT = 16


class ChangingNetwork:
    """Mixes and sends over the graph of the current iteration.

    A late message is an earlier row of its sender. A client always has its own latest row.

    Args:
        build: Makes the network of one graph.
        uses_once: Whether each late message is used once: see `Tolerance`.

    Attributes:
        bytes_sent: Bytes that all clients have sent.
        late: The rows of the last iterations that may still arrive, by tag, newest first.
    """

    def __init__(self, build: Callable[[Graph], Network], uses_once: bool = False) -> None:
        self.bytes_sent = 0
        self._uses_once = uses_once
        self.buffers = Buffers()
        self.late: dict[str, list[Tensor]] = {}
        self._build = build
        self._kept: dict[int, tuple[Graph, Network]] = {}
        self._moment: Moment | None = None
        self._delayed: dict[int, Network] | None = None  # by delay, in the current iteration
        self._longest_delay = 0

    def enter(self, moment: Moment, longest_delay: int = 0) -> None:
        """Go to an iteration; messages may be up to `longest_delay` iterations late."""
        self._moment, self._longest_delay = moment, longest_delay
        self._delayed = None

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        edges = len(self._now.graph.edges)
        self.bytes_sent += edges * sum(map(row_bytes, rows.values()))
        if self._now.delays is None:
            return self._network(self._now.graph).mix(
                **{tag: received(sent) for tag, sent in rows.items()}
            )
        return tuple(self._mix_late(tag, received(sent)) for tag, sent in rows.items())

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        self.bytes_sent += edge_rows.numel() * edge_rows.element_size()
        return self._network(self._now.graph).send(tag, edge_rows, private=private)

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        raise _impossible("Sums over all clients are not defined")

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        raise _impossible("Averages of a server are not defined")

    def late_rows(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: each late row by "tag/iterations ago"."""
        return {
            f"{tag}/{age}": rows
            for tag, some in self.late.items()
            for age, rows in enumerate(some, start=1)
        }

    def restore_late_rows(self, rows: Mapping[str, Tensor]) -> None:
        """Continue with the late rows of a checkpoint."""
        self.late = {}
        for name in sorted(rows, key=lambda name: int(name.rpartition("/")[2])):
            self.late.setdefault(name.rpartition("/")[0], []).append(rows[name])

    @property
    def _now(self) -> Moment:
        assert self._moment is not None, "a network without an iteration: call enter"
        return self._moment

    def _mix_late(self, tag: str, own: Tensor) -> Tensor:
        """Σⱼ wᵢⱼ xⱼ of rows that are as old as the messages on each edge."""
        ages = [own, *self.late.get(tag, [])]
        total = torch.zeros_like(own)
        if self._delayed is None:
            graphs = _by_delay(self._now, self._uses_once)
            self._delayed = {delay: self._build(graph) for delay, graph in graphs.items()}
        for delay, network in self._delayed.items():
            (part,) = network.mix(**{tag: ages[delay]})
            total += part
        self.late[tag] = [own.clone(), *self.late.get(tag, [])][: self._longest_delay]
        return total

    def _network(self, graph: Graph) -> Network:
        if id(graph) not in self._kept:
            if len(self._kept) >= MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[id(graph)] = graph, self._build(graph)
        return self._kept[id(graph)][1]


def keep_absent(before: Mapping[str, Tensor], after: State, present: Flags) -> State:
    """The state after an iteration, with the earlier rows of the clients that took no part."""
    state: Any = after
    rows = {}
    for name, new in tensors_of(after).items():
        took_part = torch.as_tensor(present, device=new.device)[:, None]
        rows[name] = torch.where(took_part, new, before[name])
    kept: State = replace(state, **rows)
    return kept


def _by_delay(moment: Moment, uses_once: bool) -> dict[int, Graph]:
    """The edges of each delay, with their weights; own weights have no delay."""
    graph, delays = moment.graph, moment.delays
    assert delays is not None
    used = dict(enumerate(moment.arriving))
    if not uses_once:
        used = {delay: delays == delay for delay in sorted({0, *np.unique(delays).tolist()})}
    own: Any = sparse.diags_array(graph.weights.diagonal(), format="csr")
    parts = {}
    for delay, which in used.items():
        edges = graph.edges[which]
        sources, targets = edges.T
        # SciPy gives no array of numbers if there are no edges.
        values: Any = graph.weights[targets, sources] if len(edges) else np.zeros(0)
        weights: Any = sparse.csr_array(
            (np.asarray(values).ravel(), (targets, sources)), shape=graph.weights.shape
        )
        # Each direction of an edge has its own delay.
        topology = Topology(graph.clients, edges, True, f"{delay} iterations late")
        parts[delay] = Graph(topology, weights + own if delay == 0 else weights, graph.rule)
    return parts


def _impossible(problem: str) -> Misuse:
    return Misuse(
        f"{problem} where the graph changes, clients are absent or messages are late.",
        "Give a fixed graph, let all clients take part and leave out delays.",
    )
