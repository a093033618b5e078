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

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit.privacy.accounting.correlated import precision
from tacit.privacy.guarantee import Budget, Privacy
from tacit.privacy.population import Population
from tacit.privacy.private_sum import rounding_of

# Coalitions that are looked at; more would take long.
MOST_COALITIONS = 20_000


@dataclass(frozen=True)
class CorrelatedNoise:
    """How clients sample, clip and add noise in one iteration.

    Attributes:
        bound: The largest norm of one sample's gradient, C.
        sampling_rate: The probability with which each sample is drawn.
        expected: The expected number of samples that one client draws.
        own: Standard deviation ω of a client's own noise.
        shared: Standard deviation of the noise vᵢⱼ of two neighbours.
        budget: What a run spends.
        rounding: The share of the bound that rounding of sums may take.
        facts: What all this was computed for.
    """

    bound: float
    sampling_rate: float
    expected: float
    own: float
    shared: float
    budget: Budget
    rounding: float = 0.0
    facts: Population | None = None


def correlated_noise(
    promise: Privacy, bound: float, ratio: float, facts: Population, graph: Graph
) -> CorrelatedNoise:
    """The noise that keeps a promise.

    Args:
        promise: The guarantee, per sample.
        bound: The largest norm of one sample's gradient.
        ratio: r, the standard deviation of shared noise over that of own noise.
        facts: What the guarantee depends on.
        graph: The communication graph; neighbours share noise.
    """
    promise.check(samples=facts.samples, clients=facts.clients)
    if promise.unit != "sample":
        raise Misuse(
            "Noise that cancels between neighbours is accounted for per sample here.",
            'Set unit = "sample".',
        )
    rate = min(1.0, facts.batch / facts.samples)
    budget = promise.budget(rate, facts.steps, clients=facts.clients)
    share = worst_share(graph, ratio, facts.clients - budget.honest)
    own = budget.noise_multiplier * bound * share**0.5
    expected = rate * facts.samples / facts.clients
    rounding = rounding_of(rate * facts.samples, rate)
    return CorrelatedNoise(bound, rate, expected, own, ratio * own, budget, rounding, facts)


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
