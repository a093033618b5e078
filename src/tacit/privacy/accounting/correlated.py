"""Correlated noise: Gaussian pairwise masks plus independent Gaussian noise (Allouah et al. 2024).

In each coordinate, client i sends x_i + Σ_{j ~ i} m_ij + n_i: the masks m_ij = −m_ji ~
N(0, σ_cor²) cancel in the sum over clients, the noise n_i ~ N(0, σ²) does not. To an adversary who
knows every mask but those between honest clients, their noise has covariance σ²I + σ_cor² L, with L
the Laplacian of the honest subgraph. Replacing one client's data moves its x_i by at most 2C in L2,
C the clip norm, so for victim i and one release

    μ_i = 2C √[(σ²I + σ_cor² L)⁻¹]_ii

exactly (the divergence of two Gaussians whose means differ); `gaussian` turns it into (ε, δ). In
each connected component the sum of all messages has only the noise n_i: with σ = 0 it is revealed
exactly, the covariance is singular and there is no guarantee: ∞.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csgraph

from tacit.core.checks import check_count, check_number
from tacit.graph.edges import canonical
from tacit.privacy.accounting.noise_pair import Array


def precision(edges: Any, clients: int, sigma: float, sigma_cor: float) -> Array:
    """(σ²I + σ_cor² L)⁻¹ [clients, clients] over the honest subgraph; ∞ where σ = 0."""
    check_count("clients", clients)
    check_number("sigma", sigma, at_least=0)
    check_number("sigma_cor", sigma_cor, at_least=0)
    pairs = canonical(edges, clients, directed=False)
    adjacency = np.zeros((clients, clients))
    adjacency[tuple(pairs.T)] = 1
    components, label = csgraph.connected_components(adjacency, directed=False)
    inverse = np.zeros((clients, clients))
    for component in range(components):
        members = np.flatnonzero(label == component)
        within = np.ix_(members, members)
        if sigma**2 == 0:
            inverse[within] = np.inf
            continue
        inside = adjacency[within]
        values, vectors = np.linalg.eigh(np.diag(inside.sum(axis=1)) - inside)
        # In a connected component only constant vectors have eigenvalue 0.
        values, vectors = np.maximum(values[1:], 0.0), vectors[:, 1:]
        rest = (vectors / (sigma**2 + sigma_cor**2 * values)) @ vectors.T
        inverse[within] = rest + 1 / (len(members) * sigma**2)
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
