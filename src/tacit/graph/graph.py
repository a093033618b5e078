"""Topologies (which clients can send to which) and graphs (topologies with mixing weights)."""

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

from tacit.core.checks import check_number
from tacit.core.errors import Misuse
from tacit.graph import families
from tacit.graph.edges import Edges, Weights, as_count, as_edges, canonical, read_edges
from tacit.graph.families import Positions
from tacit.graph.properties import REMEDIES, MixingProperties, one_way_edge
from tacit.graph.weights import as_weights, check_weights, mixing_weights

if TYPE_CHECKING:
    import torch

# Clients. Larger graphs without positions are drawn on a circle: springs are slow.
SPRING_LIMIT = 200
# Clients. A larger dense W would take more than 200 MB.
DENSE_LIMIT = 5_000


@dataclass(frozen=True, eq=False)
class Topology:
    """Which clients can send messages to which, without weights.

    Args:
        clients: The number of clients N.
        edges: Rows (source, target) of integers; kept as int64 `[E, 2]`, sorted, unique, read-only.
        directed: If False, the missing direction of each edge is added.
        name: What messages and reports call it.
        labels: Names of the clients, for drawings.
        positions: Where to draw the clients, `[N, 2]`.

    Example:
        >>> Topology.ring(5).mixing("metropolis").describe()
        'ring(5), metropolis weights: 5 clients, 10 directed edges, spectral gap 0.461'
    """

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
    def ring(cls, n: int) -> Topology:
        """Connect each of n clients with the next and the previous one."""
        n = as_count("n", n)
        return cls._on_circle(n, families.circulant(n, [1]), f"ring({n})")

    @classmethod
    def directed_ring(cls, n: int) -> Topology:
        """Let each of n clients send to the next."""
        n = as_count("n", n)
        return cls._on_circle(n, families.circulant(n, [1]), f"directed_ring({n})", True)

    @classmethod
    def complete(cls, n: int) -> Topology:
        """Connect all pairs of n clients."""
        n = as_count("n", n)
        return cls._on_circle(n, families.circulant(n, range(1, n // 2 + 1)), f"complete({n})")

    @classmethod
    def star(cls, n: int) -> Topology:
        """Connect client 0 with each of the n − 1 others."""
        n = as_count("n", n)
        positions = np.concatenate([np.zeros((1, 2)), families.circle(max(n - 1, 1))])[:n]
        return cls(n, families.star(n), False, f"star({n})", positions=positions)

    @classmethod
    def grid(cls, rows: int, columns: int) -> Topology:
        """Connect client r·columns + c with those above, below, left and right of it."""
        return cls._lattice("grid", rows, columns)

    @classmethod
    def torus(cls, rows: int, columns: int) -> Topology:
        """Connect clients as in a grid, and the opposite borders too."""
        return cls._lattice("torus", rows, columns)

    @classmethod
    def exponential(cls, n: int, directed: bool = True) -> Topology:
        """Let client i send to i + 2ᵏ mod n for every 2ᵏ < n: few edges, short paths."""
        n = as_count("n", n)
        edges = families.circulant(n, (2**k for k in range((n - 1).bit_length())))
        return cls._on_circle(n, edges, f"exponential({n})", directed)

    @classmethod
    def random_regular(cls, n: int, degree: int, seed: int = 0) -> Topology:
        """Draw a connected graph in which each of n clients has `degree` neighbours."""
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
    def erdos_renyi(cls, n: int, p: float, seed: int = 0, directed: bool = False) -> Topology:
        """Draw each edge between n clients with probability p, until the graph is connected."""
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
    def random_geometric(cls, n: int, radius: float, seed: int = 0) -> Topology:
        """Draw n points in the unit square and connect those within `radius`, until connected."""
        n = as_count("n", n)
        rng = np.random.default_rng(as_count("seed", seed, at_least=0))
        check_number("radius", radius, above=0)

        def draw() -> Topology:
            positions = rng.random((n, 2))
            edges = families.within_radius(positions, radius)
            name = f"random_geometric({n}, {radius:g})"
            return cls(n, edges, False, name, positions=positions)

        return _first_connected(
            draw,
            f"radius = {radius:g} gave no connected graph of {n} clients",
            f"Raise radius well above √(ln(n)/πn) = {math.sqrt(math.log(n) / (math.pi * n)):.3g}.",
        )

    @classmethod
    def random_directed(cls, n: int, p: float, seed: int = 0) -> Topology:
        """Draw a directed ring plus each other directed edge with probability p (LPPA paper)."""
        n = as_count("n", n)
        check_number("p", p, at_least=0, at_most=1, hint="a probability")
        rng = np.random.default_rng(as_count("seed", seed, at_least=0))
        more = families.random_pairs(n, p, True, rng)
        edges = np.concatenate([families.circulant(n, [1]), more])
        return cls._on_circle(n, edges, f"random_directed({n}, {p:g})", True)

    @classmethod
    def from_edges(cls, edges: Any, clients: int | None = None, directed: bool = False) -> Topology:
        """Make a topology of rows (source, target).

        Args:
            edges: Rows of two client numbers; duplicates count once.
            clients: The number of clients; the largest number in `edges` plus one by default.
            directed: If False, the missing direction of each edge is added.

        Returns:
            The topology.

        Example:
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
    def from_edge_file(cls, path: str | Path, directed: bool = False) -> Topology:
        """Read two integers per line, separated by blanks or a comma; `#` starts a comment."""
        read = cls.from_edges(read_edges(path), directed=directed)
        return cls(read.clients, read.edges, directed, Path(path).name)

    @classmethod
    def from_networkx(cls, graph: Any) -> Topology:
        """Convert a networkx graph: its nodes become clients 0, 1, … and their names `labels`."""
        number = {node: index for index, node in enumerate(graph.nodes)}
        edges = [(number[a], number[b]) for a, b in graph.edges()]
        name = str(graph.name) or f"networkx({len(number)})"
        labels = tuple(str(node) for node in number)
        return cls(len(number), as_edges(edges), bool(graph.is_directed()), name, labels=labels)

    @classmethod
    def _on_circle(cls, n: int, edges: Edges, name: str, directed: bool = False) -> Topology:
        return cls(n, edges, directed, name, positions=families.circle(n))

    @classmethod
    def _lattice(cls, kind: str, rows: int, columns: int) -> Topology:
        rows, columns = as_count("rows", rows), as_count("columns", columns)
        edges = families.lattice(rows, columns, wrap=kind == "torus")
        positions = families.lattice_positions(rows, columns)
        return cls(rows * columns, edges, False, f"{kind}({rows}, {columns})", positions=positions)

    def mixing(self, rule: str = "metropolis", *, lazy: bool = False, **options: Any) -> Graph:
        """Give the edges doubly stochastic weights.

        Args:
            rule: "metropolis" or "laplacian" (undirected topologies), or "sinkhorn" (any topology).
            lazy: Use (I + W)/2 instead of W; see `Graph.lazy`.
            options: `kappa` of "laplacian"; `seed` of "sinkhorn", which draws random weights.

        Returns:
            The graph.

        Raises:
            Misuse: The rule is unknown or does not fit, or the topology is not connected.

        Example:
            >>> Topology.star(4).mixing().W[0].tolist()
            [0.25, 0.25, 0.25, 0.25]
        """
        self._require_connected()
        weights = mixing_weights(rule, self.edges, self.clients, self.directed, options)
        graph = Graph(self, weights, rule)
        return graph.lazy() if lazy else graph

    def _require_connected(self) -> None:
        components = self.components()
        sizes = np.bincount(components)
        if len(sizes) > 1:
            smallest = int(sizes.argmin())
            member = int(np.flatnonzero(components == smallest)[0])
            kind = "strongly connected components" if self.directed else "components"
            raise Misuse(
                f"{self.name} is not connected: it has {len(sizes)} {kind}, the smallest of size "
                f"{sizes[smallest]} with client {member}.",
                REMEDIES["connected"],
            )

    @cached_property
    def degrees(self) -> npt.NDArray[np.int64]:
        """The number of out-neighbours of each client, `[N]`."""
        return np.bincount(self.edges[:, 0], minlength=self.clients)

    @cached_property
    def in_degrees(self) -> npt.NDArray[np.int64]:
        """The number of in-neighbours of each client, `[N]`."""
        return np.bincount(self.edges[:, 1], minlength=self.clients)

    def components(self) -> npt.NDArray[np.int32]:
        """The number of the (strongly) connected component of each client, `[N]`."""
        sources, targets = self.edges.T
        ones = np.ones(len(self.edges))
        sends = sparse.csr_array((ones, (sources, targets)), shape=(self.clients,) * 2)
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


@dataclass(frozen=True, eq=False)
class Graph(MixingProperties):
    """A topology with mixing weights; `Topology.mixing` and `from_matrix` make them.

    Args:
        topology: Which clients can send to which.
        weights: Sparse float64 `[N, N]`. weights[i, j] is the weight that i gives to the message
            of j, so it may be non-zero only for i = j or where (j, i) is an edge.
        rule: What the weights are called in messages and reports.
    """

    topology: Topology
    weights: Weights
    rule: str

    def __post_init__(self) -> None:
        n = self.topology.clients
        checked = check_weights(self.weights, self.edges, n, self.topology.name)
        object.__setattr__(self, "weights", checked)

    @classmethod
    def from_matrix(cls, matrix: Any, topology: Topology | None = None) -> Graph:
        """Use the weights of a square matrix.

        Args:
            matrix: A NumPy, torch or SciPy matrix `[N, N]`; row i has the weights that i gives.
            topology: By default, there is an edge where the matrix has a non-zero entry.

        Returns:
            The graph. What its weights are good for is checked by the algorithms that use it.

        Raises:
            Misuse: The matrix is not square, real and finite, or has a weight without an edge.

        Example:
            >>> Graph.from_matrix([[0.5, 0.5], [0.5, 0.5]]).doubly_stochastic
            True
        """
        weights = as_weights(matrix)
        if topology is None:
            n, entries = weights.shape[0], weights.tocoo()
            kept = (entries.row != entries.col) & (entries.data != 0)
            edges = np.stack([entries.col, entries.row], axis=1)[kept]
            directed = one_way_edge(canonical(edges, n, directed=True), n) is not None
            topology = Topology(n, edges, directed, f"matrix({n})")
        return cls(topology, weights, "given")

    def __repr__(self) -> str:
        return f"Graph({self}, {self.clients} clients)"

    def __str__(self) -> str:
        return f"{self.topology.name}, {self.rule} weights"

    @property
    def clients(self) -> int:
        """The number of clients N."""
        return self.topology.clients

    @property
    def edges(self) -> Edges:
        return self.topology.edges

    @property
    def directed(self) -> bool:
        """Whether the topology is directed."""
        return self.topology.directed

    @property
    def W(self) -> torch.Tensor:
        """The weights as a new dense float64 tensor, `[N, N]`."""
        import torch

        if self.clients > DENSE_LIMIT:
            raise Misuse(
                f"W of {self.clients} clients is too large to be dense (more than {DENSE_LIMIT}).",
                "Use graph.weights, which is sparse.",
            )
        return torch.from_numpy(self.weights.toarray())

    def lazy(self) -> Graph:
        """(I + W)/2: mixes half as fast, and is positive definite for Metropolis weights."""
        identity: Weights = sparse.eye_array(self.clients, dtype=np.float64, format="csr")
        half: Any = (identity + self.weights) / 2
        return Graph(self.topology, half, f"lazy {self.rule}")

    def describe(self) -> str:
        """Describe the graph in one line."""
        try:
            gap = f"spectral gap {self.spectral_gap:.3g}"
        except Misuse:
            # A description must not fail because one number takes too long to compute.
            gap = "spectral gap not computed"
        return f"{self}: {self.clients} clients, {len(self.edges)} directed edges, {gap}"


def _first_connected(draw: Callable[[], Topology], problem: str, remedy: str) -> Topology:
    """The first connected topology in a bounded number of draws."""
    attempts = 100
    for attempt in range(attempts):
        topology = draw()
        if topology.is_connected():
            return topology
        # A large graph that fails a few times will always fail.
        if topology.clients * (attempt + 1) > 1_000_000:
            attempts = attempt + 1
            break
    raise Misuse(f"{problem} in {attempts} draws.", remedy)
