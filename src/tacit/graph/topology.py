"""Edges between clients: families of graphs, given graphs, and their plain properties."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from tacit.core.checks import check_number
from tacit.core.errors import Misuse
from tacit.graph import families
from tacit.graph.edges import Edges, as_count, as_edges, canonical, read_edges
from tacit.graph.families import Positions

T = TypeVar("T", bound="BaseTopology")
# Clients. Larger graphs without positions are drawn on a circle: springs are slow.
SPRING_LIMIT = 200


@dataclass(frozen=True, eq=False)
class BaseTopology:
    """The edges of a topology: everything about them but mixing weights; see `Topology`."""

    clients: int
    edges: Edges
    directed: bool
    name: str
    labels: tuple[str, ...] | None = None
    positions: Positions | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        n = as_count("clients", self.clients)
        if self.labels is not None and len(self.labels) != n:
            raise Misuse(
                f"labels: {len(self.labels)} given for {n} clients.", "Give one label per client."
            )
        edges = canonical(self.edges, n, self.directed)
        edges.setflags(write=False)
        object.__setattr__(self, "clients", n)
        object.__setattr__(self, "edges", edges)

    def __repr__(self) -> str:
        return f"Topology({self.name}: {self.clients} clients, {len(self.edges)} directed edges)"

    @classmethod
    def ring(cls, n: int) -> Self:
        """Connect each of n clients with the next and the previous one.

        >>> Topology.ring(5).degrees.tolist()
        [2, 2, 2, 2, 2]
        """
        n = as_count("n", n)
        return cls._on_circle(n, families.circulant(n, [1]), f"ring({n})")

    @classmethod
    def directed_ring(cls, n: int) -> Self:
        """Let each of n clients send to the next.

        >>> Topology.directed_ring(3).edges.tolist()
        [[0, 1], [1, 2], [2, 0]]
        """
        n = as_count("n", n)
        return cls._on_circle(n, families.circulant(n, [1]), f"directed_ring({n})", True)

    @classmethod
    def complete(cls, n: int) -> Self:
        """Connect all pairs of n clients.

        >>> Topology.complete(4).degrees.tolist()
        [3, 3, 3, 3]
        """
        n = as_count("n", n)
        return cls._on_circle(n, families.circulant(n, range(1, n // 2 + 1)), f"complete({n})")

    @classmethod
    def star(cls, n: int) -> Self:
        """Connect client 0 with each of the n − 1 others.

        >>> Topology.star(4).degrees.tolist()
        [3, 1, 1, 1]
        """
        n = as_count("n", n)
        positions = np.concatenate([np.zeros((1, 2)), families.circle(max(n - 1, 1))])[:n]
        edges = np.stack([np.zeros(n - 1, dtype=np.int64), np.arange(1, n)], axis=1)
        return cls(n, edges, False, f"star({n})", positions=positions)

    @classmethod
    def grid(cls, rows: int, columns: int) -> Self:
        """Connect client r·columns + c with those above, below, left and right of it.

        >>> Topology.grid(2, 3).degrees.tolist()
        [2, 3, 2, 2, 3, 2]
        """
        return cls._lattice("grid", rows, columns)

    @classmethod
    def torus(cls, rows: int, columns: int) -> Self:
        """Connect clients as in a grid, and the opposite borders too.

        >>> set(Topology.torus(3, 4).degrees.tolist())
        {4}
        """
        return cls._lattice("torus", rows, columns)

    @classmethod
    def exponential(cls, n: int, directed: bool = True) -> Self:
        """Let client i send to i + 2ᵏ mod n for every 2ᵏ < n: few edges, short paths.

        If not `directed`, clients also send back.

        >>> Topology.exponential(8).degrees.tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]
        """
        n = as_count("n", n)
        edges = families.circulant(n, (2**k for k in range((n - 1).bit_length())))
        return cls._on_circle(n, edges, f"exponential({n})", directed)

    @classmethod
    def random_regular(cls, n: int, degree: int, seed: int = 0) -> Self:
        """Draw a connected graph in which each of n clients has `degree` neighbours.

        n · degree must be even.

        >>> set(Topology.random_regular(10, 3).degrees.tolist())
        {3}
        """
        n, degree = as_count("n", n), as_count("degree", degree, at_least=0)
        rng = random.Random(as_count("seed", seed, at_least=0))
        if degree >= n or n * degree % 2:
            raise Misuse(
                f"degree = {degree} is impossible with n = {n} clients.",
                "Choose degree below n, with n · degree even.",
            )
        if degree < min(n - 1, 2):
            raise Misuse(
                f"degree = {degree} cannot connect n = {n} clients.", "Choose degree of at least 2."
            )
        name = f"random_regular({n}, {degree})"
        return _first_connected(
            lambda: cls._on_circle(n, families.regular(n, degree, rng), name),
            f"degree = {degree} gave no connected graph of {n} clients",
            "Raise degree to 3 or more, or use Topology.ring for degree 2.",
        )

    @classmethod
    def erdos_renyi(cls, n: int, p: float, seed: int = 0, directed: bool = False) -> Self:
        """Draw each edge between n clients with probability p, until the graph is connected.

        If `directed`, the two directions of an edge are drawn independently.

        >>> Topology.erdos_renyi(5, 1.0).degrees.tolist()
        [4, 4, 4, 4, 4]
        """
        n = as_count("n", n)
        check_number("p", p, at_least=0, at_most=1, hint="a probability")
        rng = np.random.default_rng(as_count("seed", seed, at_least=0))
        name = f"erdos_renyi({n}, {p:g})"
        return _first_connected(
            lambda: cls._on_circle(n, families.random_pairs(n, p, directed, rng), name, directed),
            f"p = {p:g} gave no connected graph of {n} clients",
            f"Raise p well above ln(n)/n = {math.log(n) / n:.3g}.",
        )

    @classmethod
    def random_geometric(cls, n: int, radius: float, seed: int = 0) -> Self:
        """Draw n points in the unit square and connect those within `radius`, until connected.

        >>> Topology.random_geometric(10, 0.5).is_connected()
        True
        """
        n = as_count("n", n)
        rng = np.random.default_rng(as_count("seed", seed, at_least=0))
        check_number("radius", radius, above=0)
        return _first_connected(
            lambda: cls._geometric(n, rng.random((n, 2)), radius),
            f"radius = {radius:g} gave no connected graph of {n} clients",
            f"Raise radius well above √(ln(n)/πn) = {math.sqrt(math.log(n) / (math.pi * n)):.3g}.",
        )

    @classmethod
    def random_directed(cls, n: int, p: float, seed: int = 0) -> Self:
        """Draw a directed ring plus each other directed edge with probability p (LPPA paper).

        >>> Topology.random_directed(4, 0.0).degrees.tolist()
        [1, 1, 1, 1]
        """
        n = as_count("n", n)
        check_number("p", p, at_least=0, at_most=1, hint="a probability")
        rng = np.random.default_rng(as_count("seed", seed, at_least=0))
        more = families.random_pairs(n, p, True, rng)
        edges = np.concatenate([families.circulant(n, [1]), more])
        return cls._on_circle(n, edges, f"random_directed({n}, {p:g})", True)

    @classmethod
    def from_edges(cls, edges: Any, clients: int | None = None, directed: bool = False) -> Self:
        """Make a topology of rows (source, target).

        Args:
            edges: Rows of two client numbers; duplicates count once.
            clients: The number of clients; the largest number in `edges` plus one by default.
            directed: If False, the missing direction of each edge is added.

        >>> Topology.from_edges([(0, 1), (1, 2)]).degrees.tolist()
        [1, 2, 1]
        """
        pairs = as_edges(edges)
        if clients is None and not len(pairs):
            raise Misuse(
                "edges is empty and clients is not given.", "Say how many clients there are."
            )
        n = max(int(pairs.max()), 0) + 1 if clients is None else clients
        return cls(n, pairs, directed, f"edges({n})")

    @classmethod
    def from_edge_file(cls, path: str | Path, directed: bool = False) -> Self:
        """Read two integers per line, separated by blanks or a comma; `#` starts a comment.

        If not `directed`, the missing direction of each edge is added.
        """
        return replace(cls.from_edges(read_edges(path), directed=directed), name=Path(path).name)

    @classmethod
    def from_networkx(cls, graph: Any) -> Self:
        """Convert a networkx graph: its nodes become clients 0, 1, … and their names `labels`.

        The graph may be directed and a multigraph, but has no self loops.

        >>> Topology.from_networkx(nx.path_graph(3)).edges.tolist()
        [[0, 1], [1, 0], [1, 2], [2, 1]]
        """
        number = {node: index for index, node in enumerate(graph.nodes)}
        edges = [(number[a], number[b]) for a, b in graph.edges()]
        name = str(graph.name) or f"networkx({len(number)})"
        labels = tuple(str(node) for node in number)
        return cls(len(number), as_edges(edges), bool(graph.is_directed()), name, labels=labels)

    @classmethod
    def _on_circle(cls, n: int, edges: Edges, name: str, directed: bool = False) -> Self:
        return cls(n, edges, directed, name, positions=families.circle(n))

    @classmethod
    def _geometric(cls, n: int, positions: Positions, radius: float) -> Self:
        edges = families.within_radius(positions, radius)
        return cls(n, edges, False, f"random_geometric({n}, {radius:g})", positions=positions)

    @classmethod
    def _lattice(cls, kind: str, rows: int, columns: int) -> Self:
        rows, columns = as_count("rows", rows), as_count("columns", columns)
        edges = families.lattice(rows, columns, wrap=kind == "torus")
        positions = families.lattice_positions(rows, columns)
        return cls(rows * columns, edges, False, f"{kind}({rows}, {columns})", positions=positions)

    @cached_property
    def degrees(self) -> npt.NDArray[np.int64]:
        """The number of out-neighbours of each client, `[N]`."""
        return np.bincount(self.edges[:, 0], minlength=self.clients)

    def components(self) -> npt.NDArray[np.int32]:
        """The number of the (strongly) connected component of each client, `[N]`."""
        ones = np.ones(len(self.edges))
        sends = sparse.csr_array((ones, tuple(self.edges.T)), shape=(self.clients,) * 2)
        return np.asarray(csgraph.connected_components(sends, connection="strong")[1])

    def is_connected(self) -> bool:
        """Whether every client can be reached from every other, along the edges."""
        return not self.components().any()

    def to_networkx(self) -> Any:
        """Convert to a networkx Graph, or DiGraph when directed, on the nodes 0 … N−1."""
        graph = (nx.DiGraph if self.directed else nx.Graph)(name=self.name)
        for client in range(self.clients):
            graph.add_node(client, **({"label": self.labels[client]} if self.labels else {}))
        graph.add_edges_from(self.edges.tolist())
        return graph

    def layout(self) -> Positions:
        """Where to draw each client, `[N, 2]`."""
        if self.positions is not None:
            return self.positions.copy()
        if self.clients > SPRING_LIMIT:
            return families.circle(self.clients)
        springs = nx.spring_layout(self.to_networkx(), seed=0)
        return np.array([springs[client] for client in range(self.clients)])


def _first_connected(draw: Callable[[], T], problem: str, remedy: str) -> T:
    """The first connected topology in a bounded number of draws."""
    for attempt in range(1, 101):
        topology = draw()
        if topology.is_connected():
            return topology
        # A large graph that fails a few times will always fail.
        if topology.clients * attempt > 1_000_000:
            break
    raise Misuse(f"{problem} in {attempt} draws.", remedy)
