"""Graphs by name: the families of topologies, and what a name alone stands for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tacit.core.errors import Misuse, unknown_name
from tacit.graph.graph import Graph, Topology
from tacit.graph.schedule import GraphSchedule, Matchings

TOPOLOGIES: dict[str, Callable[..., Topology]] = {
    "ring": Topology.ring,
    "directed-ring": Topology.directed_ring,
    "complete": Topology.complete,
    "star": Topology.star,
    "grid": Topology.grid,
    "torus": Topology.torus,
    "random-regular": Topology.random_regular,
    "erdos-renyi": Topology.erdos_renyi,
    "random-geometric": Topology.random_geometric,
    "exponential": Topology.exponential,
    "random-directed": Topology.random_directed,
    "edges": Topology.from_edges,
    "edge-file": Topology.from_edge_file,
}
MATCHINGS = "matchings"


def find_topology(name: str) -> Callable[..., Topology]:
    """The constructor of a family of topologies.

    Raises:
        Misuse: There is none of that name.
    """
    if name not in TOPOLOGIES:
        raise unknown_name(f"There is no graph {name!r}.", name, [*TOPOLOGIES, MATCHINGS])
    return TOPOLOGIES[name]


def with_weights(graph: Any, clients: int) -> Any:
    """A graph from its name or its topology, with the weights of `Topology.mixing`; others as is.

    Args:
        graph: The name of a family that needs no options, such as "ring" or "matchings"; or a
            topology, which gets weights, too.
        clients: How many clients a named graph connects.

    Raises:
        Misuse: The name is unknown, or the family needs more than the number of clients.

    >>> str(with_weights("ring", 5))
    'ring(5), metropolis weights'
    """
    if isinstance(graph, Topology):
        return graph.mixing()
    return _named(graph, clients) if isinstance(graph, str) else graph


def _named(name: str, clients: int) -> Graph | GraphSchedule:
    if name == MATCHINGS:
        return Matchings(Topology.complete(clients))
    make = find_topology(name)
    required = [
        option.name
        for option in inspect.signature(make).parameters.values()
        if option.default is inspect.Parameter.empty
    ]
    if required != ["n"]:
        raise Misuse(
            f"The graph {name!r} needs {' and '.join(name for name in required if name != 'n')}.",
            f"Give an object: tacit.Topology.{make.__name__}({', '.join(required)}).",
        )
    return make(clients).mixing()
