"""What mixing weights may lack: each check returns the reason, with the number that shows it, or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csgraph

from tacit.graph import spectrum
from tacit.graph.edge_lists import not_listed
from tacit.graph.patterns import Vector, Weights

if TYPE_CHECKING:
    from tacit.graph.mixing import Graph

SUM_TOLERANCE = 1e-9  # of row and column sums; looser and tracking algorithms would drift
DEFINITE_TOLERANCE = 1e-10  # an eigenvalue below this is rounding, not a positive number

RULES = 'mixing "metropolis" or "laplacian" (undirected) or "sinkhorn" (directed too)'
REMEDY = {
    "undirected": "Use an undirected topology (directed=False), or an algorithm made for directed graphs.",
    "symmetric": 'Use mixing "metropolis" or "laplacian" on an undirected topology.',
    "row stochastic": f"Use {RULES}, or divide each row of your matrix by its sum.",
    "column stochastic": f"Use {RULES}, or divide each column of your matrix by its sum.",
    "doubly stochastic": f"Use {RULES}.",
    "connected": "Add edges, until everyone can be reached from everyone.",
    "primitive": "Use lazy=True, which mixes with (I + W)/2, and a connected topology.",
    "positive definite": "Use lazy=True, which mixes with (I + W)/2, and symmetric weights.",
}


def undirected(graph: Graph) -> str | None:
    """Every edge has its way back."""
    source, target = graph.edges.T
    alone = np.flatnonzero(not_listed(target, source, graph.edges, graph.clients))
    return f"edge {source[alone[0]]} → {target[alone[0]]} has no way back" if len(alone) else None


def symmetric(graph: Graph) -> str | None:
    """W = Wᵀ."""
    difference = abs(graph.weights - graph.weights.T).tocoo()
    if not difference.nnz or difference.data.max() <= 1e-12:
        return None
    worst = difference.data.argmax()
    i, j = int(difference.row[worst]), int(difference.col[worst])
    return f"W[{i}, {j}] = {graph.weights[i, j]:.4g} but W[{j}, {i}] = {graph.weights[j, i]:.4g}"


def row_stochastic(graph: Graph) -> str | None:
    """W ≥ 0 and W1 = 1."""
    return _negative(graph) or _sums(graph, "row", axis=1)


def column_stochastic(graph: Graph) -> str | None:
    """W ≥ 0 and 1ᵀW = 1ᵀ."""
    return _negative(graph) or _sums(graph, "column", axis=0)


def doubly_stochastic(graph: Graph) -> str | None:
    """Rows and columns sum to one."""
    return row_stochastic(graph) or column_stochastic(graph)


def connected(graph: Graph) -> str | None:
    """Non-zero weights carry a message from everyone to everyone."""
    if csgraph.connected_components(_carries(graph), directed=True, connection="strong")[0] == 1:
        return None
    reached = csgraph.breadth_first_order(_carries(graph), 0, return_predecessors=False)
    missed = np.setdiff1d(np.arange(graph.clients), reached)
    if len(missed):
        return f"client {missed[0]} cannot be reached from client 0"
    reaching = csgraph.breadth_first_order(_carries(graph).T.tocsr(), 0, return_predecessors=False)
    return f"client 0 cannot be reached from client {np.setdiff1d(np.arange(graph.clients), reaching)[0]}"


def primitive(graph: Graph) -> str | None:
    """Some power of W is positive everywhere: W ≥ 0, connected, and closed walks have no common period.

    The period is the greatest common divisor of level(i) + 1 − level(j) over all edges i → j, where the level
    is the distance from client 0 (Denardo 1977). One client with weight on itself makes it one.
    """
    apart = _negative(graph) or connected(graph)
    if apart or (graph.weights.diagonal() > 0).any():
        return apart
    carries = _carries(graph).tocoo()
    level = csgraph.shortest_path(carries.tocsr(), method="D", unweighted=True, indices=0).astype(
        np.int64
    )
    period = int(np.gcd.reduce(np.abs(level[carries.row] + 1 - level[carries.col]), initial=0))
    return (
        None
        if period == 1
        else f"no client weighs itself and every closed walk has a length divisible by {period}"
    )


def positive_definite(graph: Graph) -> str | None:
    """W symmetric with all eigenvalues above zero."""
    crooked = symmetric(graph)
    if crooked:
        return f"W is not symmetric: {crooked}"
    if spectrum.gershgorin_bound(graph.weights) > DEFINITE_TOLERANCE:
        return None
    smallest = spectrum.smallest_eigenvalue(graph.weights)
    return None if smallest > DEFINITE_TOLERANCE else f"the smallest eigenvalue is {smallest:.3g}"


CHECKS: dict[str, Callable[[Graph], str | None]] = {
    "undirected": undirected,
    "symmetric": symmetric,
    "row stochastic": row_stochastic,
    "column stochastic": column_stochastic,
    "doubly stochastic": doubly_stochastic,
    "connected": connected,
    "primitive": primitive,
    "positive definite": positive_definite,
}


def _negative(graph: Graph) -> str | None:
    entries = graph.weights.tocoo()
    if not entries.nnz or entries.data.min() >= 0:
        return None
    worst = entries.data.argmin()
    return f"W[{entries.row[worst]}, {entries.col[worst]}] = {entries.data[worst]:.4g} is negative"


def _sums(graph: Graph, line: str, axis: int) -> str | None:
    sums: Vector = graph.weights.sum(axis=axis)
    worst = int(np.abs(sums - 1.0).argmax())
    # Twelve digits, since a sum may be wrong in the ninth: 0.83 prints as 0.83 all the same.
    return (
        f"{line} {worst} sums to {sums[worst]:.12g}"
        if abs(sums[worst] - 1.0) > SUM_TOLERANCE
        else None
    )


def _carries(graph: Graph) -> Weights:
    """One at [j, i] where i listens to j: the way messages go, whatever the size or sign of the weight."""
    carries = graph.weights.T.tocsr()
    carries.data = np.ones_like(carries.data)
    return carries
