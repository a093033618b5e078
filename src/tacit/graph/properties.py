"""Properties of mixing weights, with the reason and the remedy when an algorithm misses one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csgraph

from tacit.graph import spectrum
from tacit.graph.edges import Edges, Vector, Weights, missing

# Of row and column sums. With a looser one, tracking algorithms would drift.
SUM_TOLERANCE = 1e-9
# Smaller eigenvalues are zero up to rounding.
DEFINITE_TOLERANCE = 1e-10

RULES = 'mixing "metropolis" or "laplacian" (undirected) or "sinkhorn" (directed too)'
REMEDIES = {
    "undirected": "Use an undirected topology (directed=False), "
    "or an algorithm made for directed graphs.",
    "symmetric": 'Use mixing "metropolis" or "laplacian" on an undirected topology.',
    "row stochastic": f"Use {RULES}, or divide each row of your matrix by its sum.",
    "column stochastic": f'Use {RULES}, "out-degree", or divide each column of your matrix by its '
    "sum.",
    "doubly stochastic": f"Use {RULES}.",
    "connected": "Add edges until every client can be reached from every other.",
    "primitive": "Use lazy=True, which mixes with (I + W)/2, and a connected topology.",
    "positive definite": "Use lazy=True, which mixes with (I + W)/2, and symmetric weights.",
}


def one_way_edge(edges: Edges, clients: int) -> str | None:
    """An edge that does not exist in the other direction, in words, or None if all do."""
    source, target = edges.T
    alone = np.flatnonzero(missing(target, source, edges, clients))
    return f"edge {source[alone[0]]} → {target[alone[0]]} has no way back" if len(alone) else None


def _asymmetry(weights: Weights) -> str | None:
    difference = abs(weights - weights.T).tocoo()
    if not difference.nnz or difference.data.max() <= 1e-12:
        return None
    worst = difference.data.argmax()
    i, j = int(difference.row[worst]), int(difference.col[worst])
    return f"W[{i}, {j}] = {weights[i, j]:.4g} but W[{j}, {i}] = {weights[j, i]:.4g}"


def _not_stochastic(weights: Weights, *lines: str) -> str | None:
    """A negative weight, or a "row" or "column" that does not sum to one."""
    if reason := _negative(weights):
        return reason
    for line in lines:
        sums: Vector = weights.sum(axis=1 if line == "row" else 0)
        worst = int(np.abs(sums - 1.0).argmax())
        if abs(sums[worst] - 1.0) > SUM_TOLERANCE:
            # Twelve digits, since a sum may be wrong in the ninth; 0.83 still prints as 0.83.
            return f"{line} {worst} sums to {sums[worst]:.12g}"
    return None


def _unreachable(weights: Weights) -> str | None:
    flow = _flow(weights)
    if csgraph.connected_components(flow, directed=True, connection="strong")[0] == 1:
        return None
    clients = np.arange(weights.shape[0])
    reached = csgraph.breadth_first_order(flow, 0, return_predecessors=False)
    if len(reached) < len(clients):
        return f"client {np.setdiff1d(clients, reached)[0]} cannot be reached from client 0"
    reaching = csgraph.breadth_first_order(flow.T.tocsr(), 0, return_predecessors=False)
    return f"client 0 cannot be reached from client {np.setdiff1d(clients, reaching)[0]}"


def _period(weights: Weights) -> str | None:
    """W is primitive if W ≥ 0, it is connected, and closed walks have no common period.

    The period is the greatest common divisor of level(i) + 1 − level(j) over all edges i → j, where
    the level is the distance from client 0 (Denardo 1977). A weight on the diagonal makes it 1.
    """
    reason = _negative(weights) or _unreachable(weights)
    if reason or (weights.diagonal() > 0).any():
        return reason
    flow = _flow(weights).tocoo()
    distance = csgraph.shortest_path(flow.tocsr(), method="D", unweighted=True, indices=0)
    level = distance.astype(np.int64)
    period = int(np.gcd.reduce(np.abs(level[flow.row] + 1 - level[flow.col]), initial=0))
    if period == 1:
        return None
    return f"no client weighs itself and every closed walk has a length divisible by {period}"


def _nonpositive_eigenvalue(weights: Weights) -> str | None:
    if asymmetry := _asymmetry(weights):
        return f"W is not symmetric: {asymmetry}"
    if spectrum.gershgorin_bound(weights) > DEFINITE_TOLERANCE:
        return None
    smallest = spectrum.smallest_eigenvalue(weights)
    return None if smallest > DEFINITE_TOLERANCE else f"the smallest eigenvalue is {smallest:.3g}"


CHECKS: dict[str, Callable[[Weights], str | None]] = {
    "symmetric": _asymmetry,
    "row stochastic": lambda weights: _not_stochastic(weights, "row"),
    "column stochastic": lambda weights: _not_stochastic(weights, "column"),
    "doubly stochastic": lambda weights: _not_stochastic(weights, "row", "column"),
    "connected": _unreachable,
    "primitive": _period,
    "positive definite": _nonpositive_eigenvalue,
}


def _negative(weights: Weights) -> str | None:
    entries = weights.tocoo()
    if not entries.nnz or entries.data.min() >= 0:
        return None
    worst = entries.data.argmin()
    return f"W[{entries.row[worst]}, {entries.col[worst]}] = {entries.data[worst]:.4g} is negative"


def _flow(weights: Weights) -> Weights:
    """One at [j, i] where i gives weight to j, of any size or sign: the direction of messages."""
    flow = weights.T.tocsr()
    flow.data = np.ones_like(flow.data)
    return flow
