"""Own noise and noise that cancels between neighbours, for a promised guarantee (DECOR).

Client i adds uᵢ + Σⱼ vᵢⱼ to its gradient, where vᵢⱼ = −vⱼᵢ is shared with neighbour j, uᵢ has the
standard deviation ω and vᵢⱼ has r·ω in each coordinate. To a coalition, which knows its own noise,
the noise of the honest clients H has the covariance ω²(I + r² L_H), with L_H the Laplacian of their
part of the graph. All that the coalition sees of client i is then as noisy as a Gaussian mechanism
with standard deviation ω/√κ, κ = [(I + r² L_H)⁻¹]ᵢᵢ, at best: r = 0 is local noise, κ = 1, and for
large r κ goes to 1/|H| on a connected part, the noise of the sum.

Allouah et al. 2024, "The privacy power of correlated noise in decentralized learning".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from scipy.sparse import csgraph

from tacit.core.checks import check_count, check_number
from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit.graph.edges import canonical
from tacit.privacy.accounting.noise_pair import Array
from tacit.privacy.mechanism import Mechanism, rounding_of

# Coalitions that are looked at; more would take long.
MOST_COALITIONS = 20_000


@dataclass(frozen=True)
class CorrelatedNoise(Mechanism):
    """Noise that partly cancels between neighbours, for a promise per sample.

    Args:
        ratio: r, the standard deviation of shared noise over that of own noise.
        graph: The communication graph; neighbours share noise.

    Attributes:
        own: Standard deviation ω of a client's own noise.

    Raises:
        Misuse: If the promise cannot be kept.
    """

    ratio: float
    graph: Graph
    own: float = field(init=False)

    def __post_init__(self) -> None:
        if self.unit != "sample":
            raise Misuse(
                "Noise that cancels between neighbours is accounted for per sample here.",
                'Set unit = "sample".',
            )
        if math.isinf(self.bound):
            raise Misuse(
                "Noise on the edges of a graph needs a clipping bound.",
                "Give one, e.g. clip = 1.0.",
            )
        budget = self.calibrated_budget()
        share = worst_share(self.graph, self.ratio, self.facts.clients - budget.honest)
        own = budget.noise_multiplier * self.bound * share**0.5
        rounding = rounding_of(self.expected, self.sampling_rate)
        self._compute(budget=budget, rounding=rounding, own=own)

    @property
    def shared(self) -> float:
        """Standard deviation of the noise vᵢⱼ of two neighbours."""
        return self.ratio * self.own

    @property
    def expected_each(self) -> float:
        """The expected number of samples that one client draws."""
        return self.expected / self.facts.clients


def worst_share(graph: Graph, ratio: float, curious: int) -> float:
    """The largest κ over all honest clients and all coalitions of so many curious ones.

    Raises:
        Misuse: If there are too many coalitions to look at.
    """
    if comb(graph.clients, curious) > MOST_COALITIONS:
        raise Misuse(
            f"There are more than {MOST_COALITIONS:,} coalitions of {curious} of "
            f"{graph.clients} clients.",
            f"Assume more honest clients, e.g. honest = {graph.clients - 1}.",
        )
    worst = 0.0
    for coalition in combinations(range(graph.clients), curious):
        honest = np.setdiff1d(np.arange(graph.clients), coalition)
        between = graph.edges[np.isin(graph.edges, honest).all(axis=1)]
        edges = np.searchsorted(honest, between)
        worst = max(worst, float(precision(edges, len(honest), 1.0, ratio).diagonal().max()))
    return worst


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
