"""Correlated noise: Gaussian pairwise masks plus independent Gaussian noise (Allouah et al. 2024).

In each coordinate, client i sends x_i + Σ_{j ~ i} m_ij + n_i: the masks m_ij = −m_ji ~
N(0, σ_cor²) cancel in the sum over clients, the noise n_i ~ N(0, σ²) does not. To an adversary who
knows every mask but those between honest clients, their noise has covariance σ²I + σ_cor² L, with L
the Laplacian of the honest subgraph. Replacing one client's data moves its x_i by at most 2C in L2,
C the clip norm, so for victim i and one release

    μ_i = 2C √[(σ²I + σ_cor² L)⁻¹]_ii,   D_α = 2αC² max_i [(σ²I + σ_cor² L)⁻¹]_ii

exactly (the divergence of two Gaussians whose means differ). In each connected component the sum of
all messages has only the noise n_i: with σ = 0 it is revealed exactly, the covariance is singular
and there is no guarantee: ∞.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from tacit.core.checks import check_count, check_number
from tacit.core.errors import Misuse
from tacit.privacy.accounting.checks import check_alpha
from tacit.privacy.accounting.noise_pair import Array


def precision(edges: Any, clients: int, sigma: float, sigma_cor: float) -> Array:
    """(σ²I + σ_cor² L)⁻¹ [clients, clients] over the honest subgraph; ∞ where σ = 0."""
    check_count("clients", clients)
    check_number("sigma", sigma, at_least=0)
    check_number("sigma_cor", sigma_cor, at_least=0)
    pairs = _pairs(edges, clients)
    joined = sparse.coo_array(
        (np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(clients, clients)
    )
    adjacency = joined + joined.T
    components, label = csgraph.connected_components(adjacency, directed=False)
    inverse = np.zeros((clients, clients))
    for component in range(components):
        members = np.flatnonzero(label == component)
        inside = adjacency.tocsr()[members][:, members].toarray()
        laplacian = np.diag(inside.sum(axis=1)) - inside
        inverse[np.ix_(members, members)] = _inverse(laplacian, sigma, sigma_cor)
    return inverse


def mu(clip: float, edges: Any, clients: int, sigma: float, sigma_cor: float) -> Array:
    """μ_i [clients] of the equivalent Gaussian release, for each victim i.

    Args:
        clip: The clip norm C.
        edges: Pairs of honest clients [m, 2] that share masks.
        clients: The number of honest clients.
        sigma: σ of the independent noise.
        sigma_cor: σ_cor of the masks.
    """
    check_number("clip", clip, at_least=0)
    diagonal = np.diagonal(precision(edges, clients, sigma, sigma_cor))
    return 2 * clip * np.sqrt(diagonal) if clip > 0 else np.zeros(clients)


def rdp(
    alpha: float, clip: float, edges: Any, clients: int, sigma: float, sigma_cor: float
) -> float:
    """D_α = 2αC² max_i of the diagonal of the precision: one release, the worst victim.

    Args:
        alpha: The order α > 1.
        clip: The clip norm C.
        edges: Pairs of honest clients [m, 2] that share masks.
        clients: The number of honest clients.
        sigma: σ of the independent noise.
        sigma_cor: σ_cor of the masks.
    """
    check_alpha(alpha)
    check_number("clip", clip, at_least=0)
    worst = float(np.diagonal(precision(edges, clients, sigma, sigma_cor)).max())
    return 2 * alpha * clip**2 * worst if clip > 0 else 0.0


def _inverse(laplacian: Array, sigma: float, sigma_cor: float) -> Array:
    """The inverse over a connected component, where only constant vectors have eigenvalue 0."""
    size, variance = len(laplacian), sigma**2
    if variance == 0:
        return np.full((size, size), np.inf)
    values, vectors = np.linalg.eigh(laplacian)
    values, vectors = np.maximum(values[1:], 0.0), vectors[:, 1:]
    rest = (vectors / (variance + sigma_cor**2 * values)) @ vectors.T
    return np.asarray(rest + 1 / (size * variance))


def _pairs(edges: Any, clients: int) -> NDArray[np.int64]:
    """Edges [m, 2] once each, in one direction."""
    given = np.asarray(edges)
    if given.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    right = given.ndim == 2 and given.shape[1] == 2 and np.issubdtype(given.dtype, np.integer)
    if not right or given.min() < 0 or given.max() >= clients or (given[:, 0] == given[:, 1]).any():
        raise Misuse(
            f"edges are {edges!r}.",
            f"Give pairs of different clients, each a whole number from 0 to {clients - 1}.",
        )
    return np.unique(np.sort(given.astype(np.int64), axis=1), axis=0)
