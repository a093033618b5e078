"""The smallest part of a graph that a coalition can cut off, by the coalition's size."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import comb

import networkx as nx

# Coalitions of one size that are looked at; more would take long.
MOST_COALITIONS = 5_000
# Clients of graphs whose connectivity is computed.
MOST_CLIENTS = 100
# Sizes that a table has room for.
MOST_SIZES = 12


def coalition_sizes(clients: int, honest: int) -> list[int]:
    """Sizes of coalitions to show, among them the largest that a promise with `honest` allows."""
    if clients <= MOST_SIZES:
        return list(range(clients))
    promised = clients - honest
    chosen = {0, 1, 2, 3, 4, promised, clients - 1} | {clients * part // 4 for part in (1, 2, 3)}
    return sorted(size for size in chosen if size < clients)


def smallest_parts(
    clients: int, edges: Iterable[tuple[int, int]], sizes: Iterable[int]
) -> dict[int, int | None]:
    """By size of a coalition, the fewest honest clients that it can leave connected.

    None means not computed, because there are too many coalitions.

    Example:
        >>> ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
        >>> smallest_parts(5, ring, range(5))
        {0: 5, 1: 4, 2: 1, 3: 1, 4: 1}
    """
    graph = nx.empty_graph(clients)
    graph.add_edges_from(edges)
    least_degree = min(degree for _, degree in graph.degree)
    connectivity = _connectivity(graph)

    def smallest(size: int) -> int | None:
        # Fewer than the connectivity cut nothing off; all neighbours of a client cut it off.
        if size < connectivity:
            return clients - size
        if size >= least_degree:
            return 1
        if comb(clients, size) > MOST_COALITIONS:
            return None
        return min(
            min(map(len, nx.connected_components(graph.subgraph(set(graph) - set(coalition)))))
            for coalition in combinations(graph, size)
        )

    return {size: smallest(size) for size in sizes}


def _connectivity(graph: nx.Graph) -> int:
    """The fewest clients without which the graph falls apart, or at least a lower bound of it."""
    if not nx.is_connected(graph):
        return 0
    if len(graph) <= MOST_CLIENTS:
        return int(nx.node_connectivity(graph))
    return 2 if nx.is_biconnected(graph) else 1
