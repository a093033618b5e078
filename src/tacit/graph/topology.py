"""Who can send to whom: the families of graphs, graphs of one's own, and their plain properties."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from tacit.core.errors import Misuse
from tacit.graph import edge_lists, patterns
from tacit.graph.patterns import Edges, Positions, whole_number

if TYPE_CHECKING:
    from tacit.graph.mixing import Graph

SPRING_LIMIT = (
    200  # springs are slow on many clients: a larger graph of one's own is drawn on a circle
)


@dataclass(frozen=True, eq=False)
class Topology:
    """Who can send to whom.

    `edges` is int64 `[E, 2]` with rows (source, target), unique, without self loops and sorted; an undirected
    topology lists both directions (the constructor adds the missing ones and sorts).

    >>> Topology.ring(5).mixing("metropolis").describe()
    'ring(5), metropolis weights: 5 clients, 10 directed edges, spectral gap 0.461'
    """

    clients: int
    edges: Edges
    directed: bool
    name: str
    labels: tuple[str, ...] | None = None
    positions: Positions | None = field(
        default=None, repr=False
    )  # where the family has a natural drawing

    def __post_init__(self) -> None:
        n = whole_number("clients", self.clients)
        if self.labels is not None and len(self.labels) != n:
            raise Misuse(
                f"labels: {len(self.labels)} given for {n} clients.", "Give one label per client."
            )
        edges = edge_lists.canonical(self.edges, n, self.directed)
        edges.setflags(write=False)
        object.__setattr__(self, "clients", n)
        object.__setattr__(self, "edges", edges)

    def __repr__(self) -> str:
        return f"Topology({self.name}: {self.clients} clients, {len(self.edges)} directed edges)"

    # --- families --------------------------------------------------------------------------------------

    @classmethod
    def ring(cls, n: int) -> Topology:
        """Each client with the next and the one before."""
        n = whole_number("n", n)
        return cls(n, patterns.circulant(n, [1]), False, f"ring({n})", positions=patterns.circle(n))

    @classmethod
    def directed_ring(cls, n: int) -> Topology:
        """Each client sends to the next."""
        n = whole_number("n", n)
        return cls(
            n, patterns.circulant(n, [1]), True, f"directed_ring({n})", positions=patterns.circle(n)
        )

    @classmethod
    def complete(cls, n: int) -> Topology:
        """Everyone with everyone."""
        n = whole_number("n", n)
        edges = patterns.circulant(n, range(1, n // 2 + 1))
        return cls(n, edges, False, f"complete({n})", positions=patterns.circle(n))

    @classmethod
    def star(cls, n: int) -> Topology:
        """Client 0 with each of the others."""
        n = whole_number("n", n)
        positions = np.concatenate([np.zeros((1, 2)), patterns.circle(max(n - 1, 1))])[:n]
        return cls(n, patterns.star(n), False, f"star({n})", positions=positions)

    @classmethod
    def grid(cls, rows: int, columns: int) -> Topology:
        """Client r·columns + c with those above, below, left and right."""
        return cls._lattice("grid", rows, columns)

    @classmethod
    def torus(cls, rows: int, columns: int) -> Topology:
        """A grid whose opposite borders meet."""
        return cls._lattice("torus", rows, columns)

    @classmethod
    def _lattice(cls, kind: str, rows: int, columns: int) -> Topology:
        rows, columns = whole_number("rows", rows), whole_number("columns", columns)
        edges = patterns.lattice(rows, columns, wrap=kind == "torus")
        positions = patterns.squares(rows, columns)
        return cls(rows * columns, edges, False, f"{kind}({rows}, {columns})", positions=positions)

    @classmethod
    def exponential(cls, n: int, directed: bool = True) -> Topology:
        """Client i sends to i + 2ᵏ mod n for every 2ᵏ < n: few edges, yet everyone is near."""
        n = whole_number("n", n)
        edges = patterns.circulant(n, (2**k for k in range((n - 1).bit_length())))
        return cls(n, edges, directed, f"exponential({n})", positions=patterns.circle(n))

    # --- random families: connected, and the same for the same seed ------------------------------------

    @classmethod
    def random_regular(cls, n: int, degree: int, seed: int = 0) -> Topology:
        """A connected random graph where everyone has `degree` neighbours."""
        n, degree = whole_number("n", n), whole_number("degree", degree, at_least=0)
        rng = random.Random(whole_number("seed", seed, at_least=0))
        if degree >= n or n * degree % 2:
            raise Misuse(
                f"degree = {degree} is impossible with n = {n} clients.",
                "Choose degree below n, with n · degree even.",
            )
        if degree < min(n - 1, 2):
            raise Misuse(
                f"degree = {degree} cannot connect n = {n} clients.", "Choose degree of at least 2."
            )
        name, circle = f"random_regular({n}, {degree})", patterns.circle(n)
        return _first_connected(
            lambda: cls(n, patterns.regular(n, degree, rng), False, name, positions=circle),
            f"degree = {degree} gave no connected graph of {n} clients",
            "Raise degree to 3 or more, or use Topology.ring for degree 2.",
        )

    @classmethod
    def erdos_renyi(cls, n: int, p: float, seed: int = 0, directed: bool = False) -> Topology:
        """Each edge independently with probability p, drawn again until (strongly) connected."""
        n, p = whole_number("n", n), patterns.probability("p", p)
        rng = np.random.default_rng(whole_number("seed", seed, at_least=0))
        name, circle = f"erdos_renyi({n}, {p:g})", patterns.circle(n)
        return _first_connected(
            lambda: cls(
                n, patterns.independent(n, p, directed, rng), directed, name, positions=circle
            ),
            f"p = {p:g} gave no connected graph of {n} clients",
            f"Raise p well above ln(n)/n = {math.log(n) / n:.3g}.",
        )

    @classmethod
    def random_geometric(cls, n: int, radius: float, seed: int = 0) -> Topology:
        """Points in the unit square, those within `radius` joined; drawn again until connected."""
        n = whole_number("n", n)
        rng = np.random.default_rng(whole_number("seed", seed, at_least=0))
        if not 0 < radius < math.inf:
            raise Misuse(f"radius = {radius} is not a positive length.", "Give a radius above 0.")

        def draw() -> Topology:
            positions = rng.random((n, 2))
            name = f"random_geometric({n}, {radius:g})"
            return cls(n, patterns.within(positions, radius), False, name, positions=positions)

        return _first_connected(
            draw,
            f"radius = {radius:g} gave no connected graph of {n} clients",
            f"Raise radius well above √(ln(n)/πn) = {math.sqrt(math.log(n) / (math.pi * n)):.3g}.",
        )

    @classmethod
    def random_directed(cls, n: int, p: float, seed: int = 0) -> Topology:
        """A directed ring, and each other directed edge with probability p (the graph of the LPPA paper)."""
        n, p = whole_number("n", n), patterns.probability("p", p)
        rng = np.random.default_rng(whole_number("seed", seed, at_least=0))
        edges = np.concatenate([patterns.circulant(n, [1]), patterns.independent(n, p, True, rng)])
        return cls(n, edges, True, f"random_directed({n}, {p:g})", positions=patterns.circle(n))

    # --- graphs of one's own ---------------------------------------------------------------------------

    @classmethod
    def from_edges(cls, edges: Any, clients: int | None = None, directed: bool = False) -> Topology:
        """From rows (source, target); repeated rows count once; `clients` defaults to largest id + 1."""
        pairs = edge_lists.whole_pairs(edges)
        if clients is None and not len(pairs):
            raise Misuse(
                "edges is empty and clients is not given.", "Say how many clients there are."
            )
        n = max(int(pairs.max()), 0) + 1 if clients is None else clients
        return cls(n, pairs, directed, f"edges({n})")

    @classmethod
    def from_edge_file(cls, path: str | Path, directed: bool = False) -> Topology:
        """From a text file: two integers per line, apart by blanks or a comma; `#` starts a comment."""
        read = cls.from_edges(edge_lists.read(path), directed=directed)
        return cls(read.clients, read.edges, directed, Path(path).name)

    @classmethod
    def from_networkx(cls, graph: Any) -> Topology:
        """From any networkx graph: nodes become clients 0, 1, … in their order, `labels` keep their names."""
        number = {node: index for index, node in enumerate(graph.nodes)}
        edges = np.array(
            [(number[a], number[b]) for a, b in graph.edges()], dtype=np.int64
        ).reshape(-1, 2)
        name = str(graph.name) or f"networkx({len(number)})"
        labels = tuple(str(node) for node in number)
        return cls(len(number), edges, bool(graph.is_directed()), name, labels=labels)

    # --- what one can ask ------------------------------------------------------------------------------

    def mixing(self, rule: str = "metropolis", *, lazy: bool = False, **options: Any) -> Graph:
        """Weights by `rule`: "metropolis", "laplacian" (option kappa) or "sinkhorn" (option seed)."""
        from tacit.graph.mixing import (
            weigh,  # there, Graph holds a Topology: imported late to break the ring
        )

        return weigh(self, rule, lazy=lazy, **options)

    @cached_property
    def degrees(self) -> npt.NDArray[np.int64]:
        """To how many each client sends, `[N]`."""
        return np.bincount(self.edges[:, 0], minlength=self.clients)

    @cached_property
    def in_degrees(self) -> npt.NDArray[np.int64]:
        """From how many each client receives, `[N]`."""
        return np.bincount(self.edges[:, 1], minlength=self.clients)

    def components(self) -> npt.NDArray[np.int32]:
        """The number of the (strongly) connected component of each client, `[N]`."""
        ones = np.ones(len(self.edges))
        sends = sparse.csr_array(
            (ones, (self.edges[:, 0], self.edges[:, 1])), shape=(self.clients,) * 2
        )
        return np.asarray(
            csgraph.connected_components(sends, directed=True, connection="strong")[1]
        )

    def is_connected(self) -> bool:
        """Whether everyone reaches everyone, along the direction of the edges."""
        return not self.components().any()

    def to_networkx(self) -> Any:
        """A networkx Graph, or DiGraph when directed, on the nodes 0 … N−1."""
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
            return patterns.circle(self.clients)
        springs = nx.spring_layout(self.to_networkx(), seed=0)
        return np.array([springs[client] for client in range(self.clients)])


def _first_connected(draw: Callable[[], Topology], problem: str, remedy: str) -> Topology:
    """The first connected one of a bounded number of draws."""
    attempts = 100
    for attempt in range(attempts):
        topology = draw()
        if topology.is_connected():
            return topology
        if (
            topology.clients * (attempt + 1) > 1_000_000
        ):  # a large graph that fails a few times always fails
            attempts = attempt + 1
            break
    raise Misuse(f"{problem} in {attempts} draws.", remedy)
