"""Topologies (which clients can send to which) and graphs (topologies with mixing weights)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tacit.core.checks import check_flag
from tacit.core.errors import Misuse
from tacit.core.notebooks import html_table
from tacit.graph import spectrum
from tacit.graph.edges import Edges, Weights, canonical
from tacit.graph.properties import CHECKS, REMEDIES, one_way_edge
from tacit.graph.small_drawing import small_drawing
from tacit.graph.topology import BaseTopology
from tacit.graph.weights import as_weights, check_weights, mixing_weights

if TYPE_CHECKING:
    import torch

# Clients. A larger dense W would take more than 200 MB.
DENSE_LIMIT = 5_000


class Topology(BaseTopology):
    """Which clients can send messages to which, without weights.

    Args:
        clients: The number of clients N.
        edges: Rows (source, target) of integers; kept as int64 `[E, 2]`, sorted, unique, read-only.
        directed: If False, the missing direction of each edge is added.
        name: What messages and reports call it.
        labels: Names of the clients, for drawings.
        positions: Where to draw the clients, `[N, 2]`.

    >>> Topology.ring(5).mixing("metropolis").describe()
    'ring(5), metropolis weights: 5 clients, 10 directed edges, spectral gap 0.461'
    """

    def mixing(self, rule: str | None = None, *, lazy: bool = False, **options: Any) -> Graph:
        """Give the edges weights.

        Args:
            rule: "metropolis" or "laplacian" (undirected topologies) or "sinkhorn" (any topology),
                which are doubly stochastic; or "out-degree" (any topology), whose columns only
                sum to one. Default: "metropolis", or "sinkhorn" on a directed topology.
            lazy: Use (I + W)/2 instead of W; see `Graph.lazy`.
            options: `kappa` of "laplacian"; `seed` of "sinkhorn", which draws random weights.

        Raises:
            Misuse: The rule is unknown or does not fit, or the topology is not connected.

        >>> Topology.star(4).mixing().W[0].tolist()
        [0.25, 0.25, 0.25, 0.25]
        """
        check_flag("lazy", lazy)
        if rule is None:
            rule = "sinkhorn" if self.directed else "metropolis"
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


@dataclass(frozen=True, eq=False)
class Graph:
    """A topology with mixing weights W; `Topology.mixing` and `from_matrix` make them.

    What algorithms may require of W is computed once, when it is first asked for.

    Args:
        topology: Which clients can send to which.
        weights: Sparse float64 `[N, N]`. weights[i, j] is the weight that i gives to the message
            of j, so it may be non-zero only for i = j or where (j, i) is an edge.
        rule: What the weights are called in messages and reports.
    """

    topology: Topology
    weights: Weights
    rule: str
    _violations: dict[str, str | None] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        n = self.topology.clients
        checked = check_weights(self.weights, self.edges, n, self.topology.name)
        object.__setattr__(self, "weights", checked)

    @classmethod
    def from_matrix(cls, matrix: Any, topology: Topology | None = None) -> Graph:
        """Use the weights of a square matrix; the algorithms that use them check them.

        Args:
            matrix: A NumPy, torch or SciPy matrix `[N, N]`; row i has the weights that i gives.
            topology: By default, there is an edge where the matrix has a non-zero entry.

        Raises:
            Misuse: The matrix is not square, real and finite, or has a weight without an edge.

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

    def _repr_html_(self) -> str:
        """A description and, of a small graph, a drawing, for notebooks."""
        return html_table(self.describe(), extra=small_drawing(self.topology))

    def __str__(self) -> str:
        return f"{self.topology.name}, {self.rule} weights"

    @property
    def clients(self) -> int:
        """The number of clients N."""
        return self.topology.clients

    @property
    def edges(self) -> Edges:
        """The directed edges (source, target), `[E, 2]`."""
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

    @property
    def undirected(self) -> bool:
        """Every edge also exists in the other direction."""
        return self._violation("undirected") is None

    @property
    def symmetric(self) -> bool:
        """W = Wᵀ."""
        return self._violation("symmetric") is None

    @property
    def row_stochastic(self) -> bool:
        """W ≥ 0 and every row sums to one."""
        return self._violation("row stochastic") is None

    @property
    def column_stochastic(self) -> bool:
        """W ≥ 0 and every column sums to one."""
        return self._violation("column stochastic") is None

    @property
    def doubly_stochastic(self) -> bool:
        """W ≥ 0 and every row and column sums to one."""
        return self._violation("doubly stochastic") is None

    @property
    def connected(self) -> bool:
        """Non-zero weights carry messages from every client to every other."""
        return self._violation("connected") is None

    @property
    def primitive(self) -> bool:
        """Some power of W is positive in every entry."""
        return self._violation("primitive") is None

    @property
    def positive_definite(self) -> bool:
        """W is symmetric and its eigenvalues are positive."""
        return self._violation("positive definite") is None

    @cached_property
    def spectral_gap(self) -> float:
        """1 − |λ₂|, with λ₂ the second eigenvalue of W in modulus: the speed of consensus."""
        return 1.0 - spectrum.second_modulus(
            self.weights, symmetric=self.symmetric, doubly_stochastic=self.doubly_stochastic
        )

    @cached_property
    def smallest_eigenvalue(self) -> float:
        """The smallest eigenvalue of W, which must be symmetric."""
        self.require("symmetric", by="the smallest eigenvalue")
        return spectrum.smallest_eigenvalue(self.weights)

    def require(self, *names: str, by: str) -> None:
        """Raise Misuse with reason and remedy if W lacks a property that `by` needs.

        The names are those of the properties, with blanks: "doubly stochastic".
        """
        for name in names:
            if name not in REMEDIES:
                raise Misuse(
                    f"{by} requires the unknown property {name!r}.",
                    f"Choose from {', '.join(REMEDIES)}.",
                )
            reason = self._violation(name)
            if reason is not None:
                raise Misuse(
                    f"{by} needs a graph that is {name}; {self}: {reason}.", REMEDIES[name]
                )

    def _violation(self, name: str) -> str | None:
        """Why the graph lacks a property, or None if it has it."""
        if name not in self._violations:
            self._violations[name] = (
                one_way_edge(self.edges, self.clients)
                if name == "undirected"
                else CHECKS[name](self.weights)
            )
        return self._violations[name]

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
