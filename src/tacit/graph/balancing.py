"""Scale a positive matrix to doubly stochastic: Sinkhorn and Knopp's method, then Newton's."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from tacit.core.errors import Misuse
from tacit.graph.edges import Vector, Weights

# Of the row and column sums.
TOLERANCE = 1e-12
# Of the alternation, before Newton takes over.
SWEEPS = 1000
NEWTON_STEPS = 30


def balance(matrix: Weights) -> Weights:
    """diag(r) A diag(c) with rows and columns that sum to one.

    Sinkhorn and Knopp (1967) scale rows and columns in turn,

        r ← 1 / Ac,   c ← 1 / Aᵀr.

    This is quick where messages spread quickly, but needs of the order of n² sweeps on a long ring
    with random entries; Newton's method finishes what is left after `SWEEPS`.
    """
    transposed = matrix.T.tocsr()
    c = np.ones(matrix.shape[0])
    for _ in range(SWEEPS):
        r = 1.0 / np.asarray(matrix @ c)
        column_sums = c * np.asarray(transposed @ r)
        if np.abs(column_sums - 1.0).max() <= TOLERANCE / 4:
            return _rows_to_one(_scaled(matrix, r, c))
        c = c / column_sums
    return _rows_to_one(_newton(_rows_to_one(_scaled(matrix, np.ones_like(c), c))))


def _newton(matrix: Weights) -> Weights:
    """The same limit as the minimum of the convex Σᵢⱼ aᵢⱼ exp(uᵢ + vⱼ) − Σ uᵢ − Σ vⱼ.

    Here r = eᵘ and c = eᵛ. With P the current matrix, ρ its row sums and κ its column sums, a step
    (u, v) solves

        [diag ρ   P    ] [u]   [1 − ρ]
        [Pᵀ      diag κ] [v] = [1 − κ]

    by a sparse factorization: it is cheap on the long thin graphs that come here, where conjugate
    gradients need of the order of n products. The step is halved until the sums come closer to one.
    Adding a number to u and subtracting it from v changes nothing, so the last v stays zero.
    """
    n = matrix.shape[0]
    errors = _sum_errors(matrix)
    for _ in range(NEWTON_STEPS):
        if np.abs(errors).max() <= TOLERANCE / 4:
            return matrix
        sums = sparse.diags_array(1.0 + errors, format="csr")
        cross = sparse.block_array([[None, matrix], [matrix.T, None]], format="csr")
        whole: Any = sums + cross
        hessian = whole[: 2 * n - 1, : 2 * n - 1].tocsc()
        try:
            factors = splu(
                hessian, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
            )
        except (MemoryError, RuntimeError):
            # Too much fill, or singular to rounding.
            break
        step = np.append(factors.solve(-errors[:-1]), 0.0)
        fraction = 1.0
        while fraction > 1e-3:
            trial = _scaled(matrix, np.exp(fraction * step[:n]), np.exp(fraction * step[n:]))
            trial_errors = _sum_errors(trial)
            if np.linalg.norm(trial_errors) < np.linalg.norm(errors):
                break
            fraction /= 2
        else:
            break
        matrix, errors = trial, trial_errors
    raise Misuse(
        f'mixing "sinkhorn" did not converge on {n} clients: a row or column sum is still off by '
        f"{np.abs(errors).max():.1e}.",
        "Use fewer clients or more edges, or leave out seed; "
        'on an undirected topology, use "metropolis".',
    )


def _sum_errors(matrix: Weights) -> Vector:
    """The differences of the row sums, then of the column sums, from one: `[2N]`."""
    return np.asarray(np.concatenate([matrix.sum(axis=1), matrix.sum(axis=0)]) - 1.0)


def _scaled(matrix: Weights, r: Vector, c: Vector) -> Weights:
    """diag(r) A diag(c)."""
    data = matrix.data * np.repeat(r, np.diff(matrix.indptr)) * c[matrix.indices]
    return sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _rows_to_one(matrix: Weights) -> Weights:
    return _scaled(matrix, 1.0 / matrix.sum(axis=1), np.ones(matrix.shape[0]))
