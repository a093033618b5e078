"""Mixing weights: rules that make stochastic ones, and checks of given matrices.

wᵢⱼ is the weight that i gives to the message of j, so it can be non-zero only where j sends to i.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from tacit.core.errors import Misuse, unknown_name
from tacit.graph.balancing import balance
from tacit.graph.edges import Edges, Vector, Weights, as_count, missing


def metropolis(edges: Edges, n: int, directed: bool) -> Weights:
    """wᵢⱼ = 1 / (1 + max(dᵢ, dⱼ)) on edges, wᵢᵢ = 1 − Σⱼ wᵢⱼ (Xiao and Boyd 2004)."""
    _require_undirected("metropolis", directed)
    degrees = np.bincount(edges[:, 0], minlength=n)
    return _with_diagonal(1.0 / (1.0 + degrees[edges].max(axis=1)), edges, n)


def laplacian(edges: Edges, n: int, directed: bool, *, kappa: float | None = None) -> Weights:
    """W = I − L/κ with the graph Laplacian L; κ is the largest degree plus 1 unless given."""
    _require_undirected("laplacian", directed)
    largest = int(np.bincount(edges[:, 0], minlength=n).max())
    if kappa is None:
        kappa = largest + 1.0
    if not max(largest, 1e-300) <= kappa < np.inf:
        raise Misuse(
            f"kappa = {kappa} is below the largest degree {largest}: a weight would be negative.",
            f"Choose kappa of at least {largest}, or leave it out for {largest + 1}.",
        )
    return _with_diagonal(np.full(len(edges), 1.0 / kappa), edges, n)


def sinkhorn(edges: Edges, n: int, directed: bool, *, seed: int | None = None) -> Weights:
    """The doubly stochastic diag(r) A diag(c), with A positive on edges and on the diagonal.

    A is one there, or uniform in (0.1, 1] when `seed` is given. A strongly connected pattern with
    self loops has total support, so the limit exists and is unique (Sinkhorn and Knopp 1967).
    """
    diagonal = np.arange(n)
    rows = np.concatenate([edges[:, 1], diagonal])
    columns = np.concatenate([edges[:, 0], diagonal])
    entries = np.ones(len(rows))
    if seed is not None:
        # The 1 keeps this stream apart from the one that drew the edges.
        rng = np.random.default_rng([as_count("seed", seed, at_least=0), 1])
        entries = 1.0 - 0.9 * rng.random(len(rows))
    weights = balance(sparse.csr_array((entries, (rows, columns)), shape=(n, n)))
    if directed or seed is not None:
        return weights
    # The limit of a symmetric pattern is symmetric; make it so to the last bit. Off the diagonal,
    # its entries by row and column are in the order of the edges.
    halves = ((weights + weights.T) / 2).tocoo()
    return _with_diagonal(halves.data[halves.row != halves.col], edges, n)


def out_degree(edges: Edges, n: int, directed: bool) -> Weights:
    """wᵢⱼ = 1 / (1 + out-degree of j) on edges and on the diagonal: columns sum to one."""
    clients = np.arange(n)
    sources, targets = np.concatenate([edges, np.stack([clients, clients], axis=1)]).T
    share = 1.0 / (1.0 + np.bincount(edges[:, 0], minlength=n))
    return sparse.csr_array((share[sources], (targets, sources)), shape=(n, n))


RULES = {
    "metropolis": metropolis,
    "laplacian": laplacian,
    "sinkhorn": sinkhorn,
    "out-degree": out_degree,
}


def mixing_weights(
    rule: str, edges: Edges, n: int, directed: bool, options: Mapping[str, Any]
) -> Weights:
    """Weights by the name of a rule, which must know all of the options.

    Args:
        rule: A key of `RULES`.
        edges: The canonical edges of a connected topology, `[E, 2]`.
        n: The number of clients.
        directed: Whether the topology is directed.
        options: Keyword arguments of the rule.
    """
    if not isinstance(rule, str) or rule not in RULES:
        raise unknown_name(f"mixing rule {rule!r} is unknown.", rule, RULES)
    parameters = inspect.signature(RULES[rule]).parameters.values()
    accepted = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for option in options:
        if option not in accepted:
            known = f"It takes {', '.join(accepted)}." if accepted else "It takes no options."
            raise Misuse(f'mixing rule "{rule}" has no option {option!r}.', known)
    return RULES[rule](edges, n, directed, **options)


def as_weights(matrix: Any) -> Weights:
    """Convert a square NumPy, torch or SciPy matrix."""
    # A torch tensor may be sparse, on a GPU, or require gradients.
    if hasattr(matrix, "detach"):
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
    return sparse.csr_array(matrix, dtype=np.float64)


def check_weights(weights: Weights, edges: Edges, n: int, name: str) -> Weights:
    """Copy weights without zeros; require `[n, n]`, finite, and zero where there is no edge."""
    if weights.shape != (n, n):
        raise Misuse(
            f"weights has the shape {weights.shape}.", f"Give {n} × {n}, one row per client."
        )
    weights = weights.astype(np.float64, copy=True)
    weights.sum_duplicates()
    weights.eliminate_zeros()
    entries = weights.tocoo()
    rows, columns = (index.astype(np.int64) for index in (entries.row, entries.col))
    for at in np.flatnonzero(~np.isfinite(entries.data))[:1]:
        raise Misuse(f"W[{rows[at]}, {columns[at]}] is {entries.data[at]}.", "Give finite weights.")
    for at in np.flatnonzero((rows != columns) & missing(columns, rows, edges, n))[:1]:
        i, j = rows[at], columns[at]
        raise Misuse(
            f"W[{i}, {j}] = {entries.data[at]:.4g}, but {name} has no edge {j} → {i}.",
            "Set the weight to zero, or leave the topology out to take its edges from the matrix.",
        )
    return weights


def _with_diagonal(weights: Vector, edges: Edges, n: int) -> Weights:
    """The matrix with `weights` on the edges and a diagonal that makes each row sum to one."""
    sources, targets = edges.T
    diagonal = 1.0 - np.bincount(targets, weights=weights, minlength=n)
    clients = np.arange(n)
    rows, columns = np.concatenate([targets, clients]), np.concatenate([sources, clients])
    return sparse.csr_array((np.concatenate([weights, diagonal]), (rows, columns)), shape=(n, n))


def _require_undirected(rule: str, directed: bool) -> None:
    if directed:
        raise Misuse(
            f'mixing "{rule}" needs an undirected topology, and this one is directed.',
            'Use mixing "sinkhorn", which is doubly stochastic on directed graphs too.',
        )
