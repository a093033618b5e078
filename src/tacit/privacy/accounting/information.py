"""Mutual information between a secret and what is released about it, in nats.

Under pure ε-DP any two secrets give output laws with KL ≤ ε tanh(ε/2), which randomized response
attains. The information is a mean of divergences from a mixture, so it obeys the same bound,
whatever the prior on the secret (if any two of its values are neighbours).

A Gaussian signal in independent Gaussian noise: I = ½ log det(I + Σ_g Σ_n⁻¹). For another law of
the signal with the same covariance it is an upper bound, since the Gaussian has maximal entropy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import linalg

from tacit.core.errors import Misuse
from tacit.privacy.accounting.checks import check_ratio
from tacit.privacy.accounting.noise_pair import Array


def pure_information(epsilon: float) -> float:
    """ε tanh(ε/2): an upper bound on the mutual information under pure ε-DP, in nats."""
    check_ratio("epsilon", epsilon)
    return epsilon * math.tanh(epsilon / 2)


def gaussian_information(signal: Any, noise: Any) -> float:
    """½ log det(I + Σ_g Σ_n⁻¹) in nats for covariances [d, d]; ∞ if a direction has no noise."""
    signal, noise = _covariance("signal", signal), _covariance("noise", noise)
    if signal.shape != noise.shape:
        raise Misuse(
            f"The covariances are {signal.shape} and {noise.shape}.",
            "Give two of the same dimension.",
        )
    values, vectors = linalg.eigh(noise)
    seen = vectors.T @ signal @ vectors
    bare = values <= len(values) * np.finfo(np.float64).eps * max(float(values[-1]), 0.0)
    if bare.any():
        largest = float(np.abs(np.diagonal(signal)).max())
        if float(np.diagonal(seen)[bare].max()) > len(values) * 1e-14 * largest:
            return math.inf
    kept = np.sqrt(values[~bare])
    whitened = seen[np.ix_(~bare, ~bare)] / np.outer(kept, kept)
    gains = np.linalg.eigvalsh(whitened) if len(kept) else np.zeros(0)
    return float(np.log1p(np.maximum(gains, 0.0)).sum()) / 2


def _covariance(name: str, given: Any) -> Array:
    matrix = np.atleast_2d(np.asarray(given, dtype=np.float64))
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.size > 0
    if not square or not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise Misuse(
            f"The covariance of the {name} has shape {matrix.shape} or is not symmetric or finite.",
            "Give a symmetric matrix [d, d] of finite numbers.",
        )
    least, most = np.linalg.eigvalsh(matrix)[[0, -1]]
    if least < -1e-9 * max(most, 0.0) or most < 0:
        raise Misuse(
            f"The covariance of the {name} has an eigenvalue {least:.3g}.",
            "A covariance has none below 0.",
        )
    return matrix
