"""Graphs that change over time: the graph of each iteration, from the iteration and the seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from tacit.core.checks import check_count, is_count
from tacit.core.errors import Misuse
from tacit.graph.edges import Edges, Weights, canonical
from tacit.graph.graph import Graph, Topology
from tacit.graph.participation import random_words
from tacit.graph.weights import mixing_weights

# Iterations of a function whose edges are collected into the union, unless another number is given.
WINDOW = 100
EXAMPLE = "Give e.g. tacit.Phases([(ring, 50), (star, 50)])."


class GraphSchedule(ABC):
    """The graph of each iteration, a pure function of the iteration and the seed of the run.

    Attributes:
        union: Every edge that the schedule uses again and again. Its weights are those of the
            iterations, averaged. Messages reach all clients over time if this graph is connected.
    """

    union: Graph

    @property
    def first_uses(self) -> list[int]:
        """Iterations in which graphs are used first, as far as known before a run."""
        return [0]

    @abstractmethod
    def at(self, t: int, seed: int) -> Graph:
        """The graph of iteration t, counted from 0."""

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Phases(GraphSchedule):
    """Graphs one after the other, each for some iterations, and then again from the first.

    Args:
        phases: Pairs (graph, number of iterations).

    >>> from tacit import Topology
    >>> ring, star = Topology.ring(4).mixing(), Topology.star(4).mixing()
    >>> schedule = Phases([(ring, 2), (star, 1)])
    >>> [str(schedule.at(t, seed=0)).split(",")[0] for t in range(5)]
    ['ring(4)', 'ring(4)', 'star(4)', 'ring(4)', 'ring(4)']
    """

    phases: Sequence[tuple[Graph, int]]
    union: Graph = field(init=False)

    def __post_init__(self) -> None:
        phases = tuple(map(_checked_phase, self.phases))
        if not phases:
            raise Misuse("There are no phases.", EXAMPLE)
        graphs, lengths = zip(*phases, strict=True)
        _check_clients(graphs)
        object.__setattr__(self, "phases", phases)
        object.__setattr__(self, "union", _averaged(graphs, lengths))

    def __str__(self) -> str:
        lengths = (f"{length} iteration{'' if length == 1 else 's'}" for _, length in self.phases)
        graphs = (str(graph) for graph, _ in self.phases)
        parts = (f"{graph} for {length}" for graph, length in zip(graphs, lengths, strict=True))
        return f"{', '.join(parts)}, and so on"

    @property
    def first_uses(self) -> list[int]:
        lengths = [length for _, length in self.phases]
        return [sum(lengths[:k]) for k in range(len(lengths))]

    def at(self, t: int, seed: int) -> Graph:
        remaining = t % sum(length for _, length in self.phases)
        for graph, length in self.phases:
            if remaining < length:
                return graph
            remaining -= length
        raise AssertionError("phases have positive lengths")


@dataclass(frozen=True, eq=False)
class Matchings(GraphSchedule):
    """In each iteration a random matching: a client exchanges messages with one neighbour or none.

    The matching is maximal, and drawn anew from the seed of the run in every iteration. Matched
    clients average their rows.

    Args:
        topology: The pairs that may be matched; undirected and connected.
        seed: Keys the matchings instead of the seed of the run.

    >>> from tacit import Topology
    >>> Matchings(Topology.complete(6)).at(3, seed=0).topology.degrees.tolist()
    [1, 1, 1, 1, 1, 1]
    """

    topology: Topology
    seed: int | None = None
    union: Graph = field(init=False)

    def __post_init__(self) -> None:
        topology: object = self.topology
        if not isinstance(topology, Topology):
            kind = type(topology).__name__
            raise Misuse(f"Matchings are drawn from a {kind}.", "Give a tacit.Topology.")
        object.__setattr__(self, "union", self.topology.mixing("metropolis"))

    def __str__(self) -> str:
        return f"random matchings of {self.topology.name}"

    def at(self, t: int, seed: int) -> Graph:
        seed = seed if self.seed is None else self.seed
        edges = self.topology.edges
        pairs = edges[edges[:, 0] < edges[:, 1]]
        order = np.argsort(random_words(seed, t, "matching", len(pairs)), kind="stable")
        return weighted(
            _greedy_matching(pairs[order], self.topology.clients), self.union, "matching"
        )


@dataclass(frozen=True, eq=False)
class GraphFunction(GraphSchedule):
    """The graphs that a function of the iteration gives.

    Args:
        function: Maps t = 0, 1, … to a graph, always the same one for the same t.
        window: The union has the edges of this many iterations, from the first.

    >>> from tacit import Topology
    >>> graphs = [Topology.ring(4).mixing(), Topology.star(4).mixing()]
    >>> str(GraphFunction(lambda t: graphs[t % 2], window=2).at(1, seed=0))
    'star(4), metropolis weights'
    """

    function: Callable[[int], Graph]
    window: int = WINDOW
    union: Graph = field(init=False)

    def __post_init__(self) -> None:
        check_count("window", self.window)
        graphs = [_checked_graph(self.function(t), t) for t in range(self.window)]
        _check_clients(graphs)
        object.__setattr__(self, "union", _averaged(graphs, [1] * len(graphs)))

    def __str__(self) -> str:
        return f"given by {getattr(self.function, '__name__', 'a function')} of the iteration"

    def at(self, t: int, seed: int) -> Graph:
        graph = _checked_graph(self.function(t), t)
        _check_clients((self.union, graph))
        return graph


def as_schedule(graph: Any) -> tuple[Any, GraphSchedule | None]:
    """A graph and no schedule, or a schedule's union and the schedule.

    A function of the iteration, a list of graphs and a list of pairs (graph, iterations) become
    schedules. Anything else is returned as it is.
    """
    if isinstance(graph, list | tuple):
        graph = Phases([phase if isinstance(phase, tuple) else (phase, 1) for phase in graph])
    elif callable(graph) and not isinstance(graph, type):
        graph = GraphFunction(graph)
    return (graph.union, graph) if isinstance(graph, GraphSchedule) else (graph, None)


def weighted(edges: Edges, like: Graph, name: str) -> Graph:
    """A graph of these edges, connected or not, with weights by the rule of another graph.

    Raises:
        Misuse: The weights of the other graph do not follow from its edges.
    """
    rule = like.rule.removeprefix("lazy ")
    if rule not in ("metropolis", "out-degree"):
        raise Misuse(
            f"{like} has no weights for some of its edges only.",
            'Use mixing "metropolis", or "out-degree" on a directed graph.',
        )
    topology = Topology(like.clients, edges, like.directed, name)
    weights = mixing_weights(rule, topology.edges, like.clients, like.directed, {})
    graph = Graph(topology, weights, rule)
    return graph if rule == like.rule else graph.lazy()


def _greedy_matching(pairs: Edges, n: int) -> Edges:
    """The pairs that have no client in common with an earlier chosen one."""
    chosen = []
    while len(pairs):
        first = np.full(n, len(pairs))
        order = np.arange(len(pairs))
        np.minimum.at(first, pairs[:, 0], order)
        np.minimum.at(first, pairs[:, 1], order)
        # The first of all remaining pairs at both of its ends.
        taken = (first[pairs] == order[:, None]).all(axis=1)
        chosen.append(pairs[taken])
        matched = np.zeros(n, dtype=bool)
        matched[pairs[taken]] = True
        pairs = pairs[~matched[pairs].any(axis=1)]
    return np.concatenate(chosen) if chosen else np.empty((0, 2), dtype=np.int64)


def _averaged(graphs: Sequence[Graph], lengths: Sequence[int]) -> Graph:
    """All edges of some graphs, with the average of their weights."""
    clients = graphs[0].clients
    total: Weights = sparse.csr_array((clients, clients), dtype=np.float64)
    for graph, length in zip(graphs, lengths, strict=True):
        total = total + graph.weights * (length / sum(lengths))
    directed = any(graph.directed for graph in graphs)
    edges = canonical(np.concatenate([graph.edges for graph in graphs]), clients, directed=True)
    names = list(dict.fromkeys(graph.topology.name for graph in graphs))
    name = " and ".join(names) if len(names) <= 3 else f"{len(names)} graphs"
    first = graphs[0].topology
    union = Topology(clients, edges, directed, name, first.labels, first.positions)
    return Graph(union, total, "average")


def _checked_phase(phase: Any) -> tuple[Graph, int]:
    if not isinstance(phase, tuple) or len(phase) != 2:
        raise Misuse(f"A phase is {phase!r}.", f"Give a graph and its iterations. {EXAMPLE}")
    graph, length = phase
    if not isinstance(graph, Graph):
        raise Misuse(
            f"A list of graphs has an entry of type {type(graph).__name__}.",
            'Give a tacit.Graph, e.g. tacit.Topology.ring(8).mixing("metropolis"); a list of edges '
            "becomes one with tacit.Topology.from_edges(edges).",
        )
    if not is_count(length):
        raise Misuse(f"A phase has {length!r} iterations.", "Give a whole number of at least 1.")
    return graph, length


def _checked_graph(graph: Any, t: int) -> Graph:
    if not isinstance(graph, Graph):
        raise Misuse(
            f"The function gives a {type(graph).__name__} for iteration {t}.",
            'Return a tacit.Graph, e.g. tacit.Topology.ring(8).mixing("metropolis").',
        )
    return graph


def _check_clients(graphs: Sequence[Graph]) -> None:
    counts = {graph.clients for graph in graphs}
    if len(counts) > 1:
        few, *_, many = sorted(counts)
        raise Misuse(
            f"The graphs have {few} and {many} clients.",
            "Give all of them the same number; clients that leave for a while are absent: "
            "see tacit.Participation.",
        )
