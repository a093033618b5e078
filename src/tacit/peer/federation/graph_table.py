"""The graph in a manifest: written as readable TOML, read and checked strictly, without NumPy."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tacit.core.errors import Misuse
from tacit.peer.federation.roster import REMEDY, format_keys, read_table

if TYPE_CHECKING:
    from tacit.graph import Graph

TOPOLOGY = {"name": str, "rule": str, "directed": bool, "edges": list, "weights": list}
Edge = tuple[int, int]
Weight = tuple[int, int, float]


@dataclass(frozen=True)
class GraphTable:
    """A graph as plain numbers, in the order that `Graph` has.

    Attributes:
        name: Name of the topology.
        rule: What the weights are called.
        directed: Whether edges have one direction; if not, `edges` has both.
        clients: Number of clients.
        edges: Directed edges (source, target), sorted.
        weights: Nonzero weights (i, j, wᵢⱼ), sorted.
    """

    name: str
    rule: str
    directed: bool
    clients: int
    edges: tuple[Edge, ...]
    weights: tuple[Weight, ...]

    @cached_property
    def sources(self) -> dict[int, list[int]]:
        """The clients that send to each client."""
        return _grouped((target, source) for source, target in self.edges)

    @cached_property
    def targets(self) -> dict[int, list[int]]:
        """The clients that each client sends to."""
        return _grouped(iter(self.edges))

    @cached_property
    def rows(self) -> dict[int, dict[int, float]]:
        """The nonzero weights that each client gives, by their sources."""
        rows: dict[int, dict[int, float]] = defaultdict(dict)
        for i, j, weight in self.weights:
            rows[i][j] = weight
        return rows

    def describe(self) -> str:
        """The graph in one line."""
        size = f"{self.clients} clients, {len(self.edges)} directed edges"
        return f"{self.name}, {self.rule} weights: {size}"

    def to_graph(self) -> Graph:
        """The graph for computations, bit for bit as it was written."""
        import numpy as np
        from scipy import sparse

        from tacit.graph import Graph, Topology

        places = np.array([entry[:2] for entry in self.weights], dtype=np.int64).reshape(-1, 2)
        numbers = np.array([entry[2] for entry in self.weights], dtype=np.float64)
        shape = (self.clients, self.clients)
        weights = sparse.csr_array((numbers, (places[:, 0], places[:, 1])), shape=shape)
        edges = np.array(self.edges, dtype=np.int64).reshape(-1, 2)
        return Graph(Topology(self.clients, edges, self.directed, self.name), weights, self.rule)


def _grouped(pairs: Any) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def graph_table(graph: Graph) -> GraphTable:
    """The numbers of a graph."""
    entries = graph.weights.tocoo()
    columns = (entries.row.tolist(), entries.col.tolist(), entries.data.tolist())
    return GraphTable(
        graph.topology.name,
        graph.rule,
        graph.directed,
        graph.clients,
        tuple((a, b) for a, b in graph.edges.tolist()),
        tuple(zip(*columns, strict=True)),
    )


def format_graph(table: GraphTable) -> str:
    """Edges (source, target) and nonzero weights (i, j, wᵢⱼ), exact; undirected edges once."""
    edges = [edge for edge in table.edges if table.directed or edge[0] < edge[1]]
    header = {"name": table.name, "rule": table.rule, "directed": table.directed}
    return (
        f"[topology]\n{format_keys(header)}edges = {_format_rows(edges)}\n"
        f"weights = {_format_rows(table.weights)}\n"
    )


def _format_rows(rows: Any) -> str:
    """A list of lists, one per line. `repr` gives the shortest digits that restore a float."""
    return "[\n" + "".join(f"  {list(row)!r},\n" for row in rows) + "]"


def parse_graph(table: Any, clients: int) -> GraphTable:
    """The table of a graph; raise Misuse for anything that `Graph` would not accept."""
    name, rule, directed, edges, entries = read_table(table, TOPOLOGY, "in [topology]")
    for edge in edges:
        if not _is_row(edge, [int, int], clients):
            pair = f"a pair of clients from 0 to {clients - 1}"
            raise Misuse(f"edges: {edge!r:.80} is not {pair}.", REMEDY)
        if edge[0] == edge[1]:
            raise Misuse(f"edges: {edge} is a self loop.", REMEDY)
    for entry in entries:
        if not _is_row(entry, [int, int, float], clients):
            raise Misuse(f"weights: {entry!r:.80} is not (client, client, weight).", REMEDY)
        if not math.isfinite(entry[2]):
            raise Misuse(f"weights: {entry} is not finite.", REMEDY)
    if len({(i, j) for i, j, _ in entries}) < len(entries):
        raise Misuse("weights: one is given twice.", REMEDY)
    pairs = {(a, b) for a, b in edges}
    if not directed:
        pairs |= {(b, a) for a, b in pairs}
    weights = sorted((i, j, weight) for i, j, weight in entries if weight)
    for i, j, _ in weights:
        if i != j and (j, i) not in pairs:
            raise Misuse(
                f"weights: {i} gives one to {j}, but {name} has no edge {j} → {i}.", REMEDY
            )
    return GraphTable(name, rule, directed, clients, tuple(sorted(pairs)), tuple(weights))


def _is_row(row: Any, types: list[type], clients: int) -> bool:
    """Whether a row has exactly these types (True is not 1) and begins with two clients."""
    return (
        isinstance(row, list)
        and [type(value) for value in row] == types
        and all(0 <= client < clients for client in row[:2])
    )
