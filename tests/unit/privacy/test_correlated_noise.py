"""Own noise and noise that cancels between neighbours: what a coalition cannot subtract."""

import math
from dataclasses import replace
from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from support.misuse import assert_mentions, misuse_message
from tacit import Privacy, Topology
from tacit.privacy.correlated_noise import CorrelatedNoise, worst_share
from tacit.privacy.population import Population

RING = Topology.ring(5).mixing("metropolis")
FACTS = Population(clients=5, samples=1000, batch=100, parameters=10, steps=50)
PROMISE = Privacy(epsilon=3.0, clip=0.5)


def share_by_edges(graph, ratio, coalition, victim):
    """κ from the covariance of Σ = ω²(I + r² Σ_edges bbᵀ), one edge of honest clients at a time."""
    honest = [client for client in range(graph.clients) if client not in coalition]
    covariance = np.eye(len(honest))
    for i, j in nx.Graph(graph.edges.tolist()).edges:
        if i in honest and j in honest:
            b = np.zeros(len(honest))
            b[honest.index(i)], b[honest.index(j)] = 1.0, -1.0
            covariance += ratio**2 * np.outer(b, b)
    # The most that a linear estimate learns of the victim: its information, in units of 1/ω².
    e = np.eye(len(honest))[honest.index(victim)]
    return float(e @ np.linalg.solve(covariance, e))


@pytest.mark.parametrize("ratio", [0.0, 0.5, 10.0])
@pytest.mark.parametrize("curious", [0, 1, 2])
@pytest.mark.parametrize(
    "topology", [Topology.ring(5), Topology.star(5), Topology.erdos_renyi(6, 0.6, seed=3)]
)
def test_the_worst_client_against_the_worst_coalition(topology, ratio, curious):
    graph = topology.mixing("metropolis")
    clients = range(graph.clients)
    expected = max(
        share_by_edges(graph, ratio, coalition, victim)
        for coalition in combinations(clients, curious)
        for victim in set(clients) - set(coalition)
    )
    assert worst_share(graph, ratio, curious) == pytest.approx(expected, rel=1e-12)


def test_without_correlation_all_noise_is_local_and_with_much_it_is_that_of_a_sum():
    assert worst_share(RING, 0.0, 1) == pytest.approx(1, rel=1e-12)
    # Four clients on a path are left.
    assert worst_share(RING, 1e4, 1) == pytest.approx(1 / 4, rel=1e-6)
    # As exact for a ratio of which the square has few digits left.
    assert worst_share(RING, 1e8, 1) == pytest.approx(1 / 4, rel=1e-9)
    # The hub of a star leaves every other client alone.
    assert worst_share(Topology.star(5).mixing("metropolis"), 1e4, 1) == pytest.approx(1)


def test_noise_keeps_the_promise_of_the_worst_client():
    found = CorrelatedNoise(PROMISE, FACTS, 10.0, RING)
    assert (found.bound, found.sampling_rate, found.expected_each) == (0.5, 0.1, 20)
    assert found.budget.honest == 4
    assert found.budget.spent(50) <= 3.0
    share = worst_share(RING, 10.0, 1)
    assert found.own / math.sqrt(share) == pytest.approx(found.budget.noise_multiplier * 0.5)
    assert found.shared == pytest.approx(10 * found.own)
    # Less of its own noise than where nothing cancels.
    local = CorrelatedNoise(PROMISE, FACTS, 0.0, RING)
    assert local.shared == 0
    assert found.own < 0.6 * local.own


def test_fewer_honest_clients_need_more_noise():
    few = CorrelatedNoise(replace(PROMISE, honest=3), FACTS, 10.0, RING)
    assert few.own > CorrelatedNoise(PROMISE, FACTS, 10.0, RING).own


def test_no_promise_no_noise():
    found = CorrelatedNoise(Privacy(math.inf), FACTS, 10.0, RING)
    assert (found.own, found.shared) == (0, 0)


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (Privacy(3.0, unit="client", delta=0.01), ["per sample", 'unit = "sample"']),
        (Privacy(3.0, delta=0.01), ["delta is 0.01", "1,000 samples"]),
        (Privacy(3.0, honest=6), ["honest is 6", "5 clients"]),
    ],
)
def test_promises_that_cannot_be_kept(promise, words):
    assert_mentions(misuse_message(CorrelatedNoise, promise, FACTS, 10.0, RING), *words)


def test_too_many_coalitions_are_refused():
    graph = Topology.ring(40).mixing("metropolis")
    assert_mentions(misuse_message(worst_share, graph, 1.0, 20), "20,000 coalitions", "honest = 39")
