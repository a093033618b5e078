"""Mixing weights on a topology: what can be asked of them, and the refusal when an algorithm needs more."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tacit.core.errors import Misuse, unknown
from tacit.graph import rules, spectrum
from tacit.graph.checks import CHECKS, REMEDY
from tacit.graph.edge_lists import not_listed
from tacit.graph.patterns import Edges, Weights
from tacit.graph.topology import Topology

if TYPE_CHECKING:
    import torch

DENSE_W_LIMIT = 5_000  # clients; W above this would be more than 200 MB
RULES = {"metropolis": rules.metropolis, "laplacian": rules.laplacian, "sinkhorn": rules.sinkhorn}


@dataclass(frozen=True, eq=False)
class Graph:
    """A topology with mixing weights; weights[i, j] is what i gives to j's message.

    So weights[i, j] may be non-zero only for i = j or where (j, i) is an edge. Zeros are not stored.
    """

    topology: Topology
    weights: Weights
    rule: str

    def __post_init__(self) -> None:
        n = self.topology.clients
        if self.weights.shape != (n, n):
            raise Misuse(
                f"weights has the shape {self.weights.shape}.",
                f"Give {n} × {n}, one row per client.",
            )
        weights = self.weights.astype(np.float64, copy=True)
        weights.sum_duplicates()
        weights.eliminate_zeros()
        object.__setattr__(self, "weights", weights)
        entries = weights.tocoo()
        rows, columns = (index.astype(np.int64) for index in (entries.row, entries.col))
        for at in np.flatnonzero(~np.isfinite(entries.data))[:1]:
            raise Misuse(
                f"W[{rows[at]}, {columns[at]}] is {entries.data[at]}.", "Give finite weights."
            )
        unheard = not_listed(columns, rows, self.edges, n)
        for at in np.flatnonzero((rows != columns) & unheard)[:1]:
            i, j = rows[at], columns[at]
            raise Misuse(
                f"W[{i}, {j}] = {entries.data[at]:.4g}, but {self.topology.name} has no edge {j} → {i}.",
                "Set the weight to zero, or leave the topology out to take the edges from the matrix.",
            )

    @classmethod
    def from_matrix(cls, matrix: Any, topology: Topology | None = None) -> Graph:
        """From a numpy, torch or scipy matrix; without a topology, edges are its off-diagonal non-zeros."""
        if hasattr(
            matrix, "detach"
        ):  # a torch tensor, perhaps sparse, on a device, or with a gradient
            matrix = matrix.detach().cpu().double().to_dense().numpy()
        if not sparse.issparse(matrix):
            matrix = np.asarray(matrix)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
            raise Misuse(
                f"matrix has the shape {matrix.shape}.", "Give a square matrix, one row per client."
            )
        if matrix.dtype.kind not in "biuf":
            raise Misuse(
                f"matrix holds {matrix.dtype}, not real numbers.", "Give a matrix of real weights."
            )
        weights = sparse.csr_array(matrix, dtype=np.float64)
        if topology is None:
            entries = weights.tocoo()
            listeners, speakers = entries.row, entries.col
            edges = np.stack([speakers, listeners], axis=1)[
                (listeners != speakers) & (entries.data != 0)
            ]
            n = weights.shape[0]
            topology = Topology.from_edges(edges, clients=n, directed=True)
            both_ways = Topology.from_edges(edges, clients=n)
            directed = len(both_ways.edges) != len(topology.edges)
            topology = Topology(n, edges, directed, f"matrix({n})")
        return cls(topology, weights, "given")

    @property
    def clients(self) -> int:
        """How many clients there are."""
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
        """The weights as a dense float64 tensor, `[N, N]`: a new one each time."""
        import torch

        if self.clients > DENSE_W_LIMIT:
            raise Misuse(
                f"W of {self.clients} clients is too large to be dense (more than {DENSE_W_LIMIT}).",
                "Use graph.weights, which is sparse.",
            )
        return torch.from_numpy(self.weights.toarray())

    def lazy(self) -> Graph:
        """(I + W)/2: the same fixed points, half the speed, and positive definite for Metropolis weights."""
        identity: Weights = sparse.eye_array(self.clients, dtype=np.float64, format="csr")
        half: Any = (identity + self.weights) / 2
        return Graph(self.topology, half, f"lazy {self.rule}")

    # --- properties: each is false for one reason, which `require` tells --------------------------------

    @cached_property
    def _reasons(self) -> dict[str, str | None]:
        return {}

    def _lacks(self, what: str) -> str | None:
        """Why the graph is not `what`, or None when it is; looked into once."""
        if what not in self._reasons:
            self._reasons[what] = CHECKS[what](self)
        return self._reasons[what]

    @property
    def undirected(self) -> bool:
        """Every edge has its way back."""
        return self._lacks("undirected") is None

    @property
    def symmetric(self) -> bool:
        """W = Wᵀ."""
        return self._lacks("symmetric") is None

    @property
    def row_stochastic(self) -> bool:
        """W ≥ 0 and every row sums to one."""
        return self._lacks("row stochastic") is None

    @property
    def column_stochastic(self) -> bool:
        """W ≥ 0 and every column sums to one."""
        return self._lacks("column stochastic") is None

    @property
    def doubly_stochastic(self) -> bool:
        """W ≥ 0 and every row and column sums to one."""
        return self._lacks("doubly stochastic") is None

    @property
    def connected(self) -> bool:
        """Non-zero weights carry a message from everyone to everyone."""
        return self._lacks("connected") is None

    @property
    def primitive(self) -> bool:
        """Some power of W is positive everywhere."""
        return self._lacks("primitive") is None

    @property
    def positive_definite(self) -> bool:
        """W is symmetric and its eigenvalues are positive."""
        return self._lacks("positive definite") is None

    @cached_property
    def spectral_gap(self) -> float:
        """1 − |λ₂|, λ₂ the eigenvalue of W second in modulus: how fast differences between clients shrink."""
        return 1.0 - spectrum.second_modulus(
            self.weights, symmetric=self.symmetric, doubly_stochastic=self.doubly_stochastic
        )

    @cached_property
    def smallest_eigenvalue(self) -> float:
        """The smallest eigenvalue of W, which must be symmetric."""
        self.require("symmetric", by="the smallest eigenvalue")
        return spectrum.smallest_eigenvalue(self.weights)

    def describe(self) -> str:
        """One line for people."""
        try:
            gap = f"spectral gap {self.spectral_gap:.3g}"
        except Misuse:  # a description must not fail because one number is out of reach
            gap = "spectral gap not computed"
        return (
            f"{self.topology.name}, {self.rule} weights: {self.clients} clients, "
            f"{len(self.edges)} directed edges, {gap}"
        )

    def __repr__(self) -> str:
        return f"Graph({self.topology.name}, {self.rule} weights, {self.clients} clients)"

    def require(self, *properties: str, by: str) -> None:
        """Refuse, in the name of the algorithm `by`, when a property is missing: reason and remedy."""
        for what in properties:
            if what not in CHECKS:
                raise Misuse(
                    f"{by} requires the unknown property {what!r}.",
                    f"Choose from {', '.join(CHECKS)}.",
                )
            reason = self._lacks(what)
            if reason is not None:
                problem = f"{by} needs a graph that is {what}; with {self.topology.name} and {self.rule} weights, "
                raise Misuse(f"{problem}{reason}.", REMEDY[what])


def weigh(
    topology: Topology, rule: str = "metropolis", *, lazy: bool = False, **options: Any
) -> Graph:
    """The topology with weights by `rule`; refused when the rule is unknown or the topology falls apart."""
    if rule not in RULES:
        raise unknown(f"mixing rule {rule!r} is unknown.", rule, RULES)
    accepted = [name for name in inspect.signature(RULES[rule]).parameters if name != "topology"]
    for option in options:
        if option not in accepted:
            known = f"It takes {', '.join(accepted)}." if accepted else "It takes no options."
            raise Misuse(f'mixing rule "{rule}" has no option {option!r}.', known)
    sizes = np.bincount(topology.components())
    if len(sizes) > 1:
        smallest = int(sizes.argmin())
        member = int(np.flatnonzero(topology.components() == smallest)[0])
        kind = "strongly connected components" if topology.directed else "components"
        raise Misuse(
            f"{topology.name} is not connected: it has {len(sizes)} {kind}, the smallest of size "
            f"{sizes[smallest]} with client {member}.",
            "Add edges, until everyone can be reached from everyone.",
        )
    graph = Graph(topology, RULES[rule](topology, **options), rule)
    return graph.lazy() if lazy else graph
