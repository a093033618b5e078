"""Eigenvalues of mixing weights, by the cheapest method that is right for the matrix.

Small matrices: dense. Circulant ones (rings, complete and exponential graphs, of any size): the
discrete Fourier transform of the first row. Others: ARPACK from a fixed start vector, so that the
same graph always gives the same number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import ArpackError, LinearOperator, eigs, eigsh

from tacit.core.errors import Misuse
from tacit.graph.edges import Vector, Weights

DENSE_LIMIT = 600
# Vectors that ARPACK keeps, and its restarts: at most KRYLOV × RESTARTS products with W.
KRYLOV = 40
RESTARTS = 60


def circulant_row(weights: Weights) -> Vector | None:
    """The first row when every row i is the first shifted by i; None otherwise."""
    n = weights.shape[0]
    per_row = np.diff(weights.indptr)
    if (per_row != per_row[0]).any():
        return None
    offsets = (weights.indices.reshape(n, -1) - np.arange(n)[:, None]) % n
    order = offsets.argsort(axis=1)
    offsets = np.take_along_axis(offsets, order, axis=1)
    values = np.take_along_axis(weights.data.reshape(n, -1), order, axis=1)
    if (offsets != offsets[0]).any() or (np.abs(values - values[0]) > 1e-14).any():
        return None
    row = np.zeros(n)
    row[offsets[0]] = values[0]
    return row


def second_modulus(weights: Weights, *, symmetric: bool, doubly_stochastic: bool) -> float:
    """The second largest |λ| of W, counted with multiplicity; 0 for a single client."""
    n = weights.shape[0]
    if n == 1:
        return 0.0
    eigenvalues = _all_eigenvalues(weights, symmetric)
    if eigenvalues is not None:
        return float(np.partition(np.abs(eigenvalues), n - 2)[n - 2])
    # A doubly stochastic W is deflated by its first eigenvalue, as W − 11ᵀ/N.
    try:
        if not doubly_stochastic:
            eigenvalues = eigs(weights, k=3, return_eigenvectors=False, **_arpack(n))
            return float(np.sort(np.abs(eigenvalues))[-2])

        def deflated(x: Vector) -> Vector:
            x = x.ravel()
            return np.asarray(weights @ x - x.mean())

        operator = LinearOperator((n, n), matvec=deflated, dtype=np.float64)
        if symmetric:
            eigenvalues = eigsh(operator, k=1, which="LM", return_eigenvectors=False, **_arpack(n))
        else:
            eigenvalues = eigs(operator, k=2, which="LM", return_eigenvectors=False, **_arpack(n))
    except ArpackError as reason:
        raise Misuse(
            f"the spectral gap of these {n} clients was not found in {KRYLOV * RESTARTS} products "
            "with W: it is tiny, or many eigenvalues are close together.",
            "Use fewer clients or a denser graph; "
            "rings, complete and exponential graphs have a closed form.",
        ) from reason
    return float(np.abs(eigenvalues).max())


def smallest_eigenvalue(weights: Weights) -> float:
    """The smallest eigenvalue of a symmetric W."""
    n = weights.shape[0]
    eigenvalues = _all_eigenvalues(weights, symmetric=True)
    if eigenvalues is not None:
        return float(eigenvalues.real.min())
    try:
        eigenvalues = eigsh(weights, k=1, which="SA", return_eigenvectors=False, **_arpack(n, 1e-6))
        return float(eigenvalues[0])
    except ArpackError as reason:
        raise Misuse(
            f"the smallest eigenvalue of the weights of these {n} clients could not be computed "
            "in bounded time.",
            "Use lazy=True: then W is positive definite by its diagonal alone.",
        ) from reason


def _all_eigenvalues(weights: Weights, symmetric: bool) -> npt.NDArray[np.inexact] | None:
    """All eigenvalues, or None if W is too large and not circulant."""
    if weights.shape[0] <= DENSE_LIMIT:
        dense = weights.toarray()
        return np.linalg.eigvalsh(dense) if symmetric else np.linalg.eigvals(dense)
    row = circulant_row(weights)
    return None if row is None else np.fft.fft(row)


def gershgorin_bound(weights: Weights) -> float:
    """A number below every eigenvalue of a symmetric W: minᵢ (wᵢᵢ − Σⱼ≠ᵢ |wᵢⱼ|)."""
    diagonal = weights.diagonal()
    return float((diagonal + np.abs(diagonal) - abs(weights).sum(axis=1)).min())


def _arpack(n: int, tolerance: float = 1e-10) -> dict[str, Any]:
    start = np.random.default_rng(0).standard_normal(n)
    return {"v0": start, "ncv": KRYLOV, "maxiter": RESTARTS, "tol": tolerance}
