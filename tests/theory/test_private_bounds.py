"""What the audit proves of private sums is the guarantee of the noise that a coalition leaves.

For any graph, coalition and victim: remove the coalition from the graph. All that is seen of the
victim is the sum over its component, with the noise of the h′ clients in it. By brute force its
guarantee is that of Poisson-sampled Gaussian noise with √h′ of one client's standard deviation.
"""

import math

import networkx as nx
import pytest
from hypothesis import given, strategies as st

from support.bounds import DELTA, ledger_of, whole_run_of
from support.graphs import connected_graphs
from support.suited import guaranteed, made
from tacit import Adversary, Privacy, PrivateSGD
from tacit.privacy.accounting.sampled_gaussian import sampled_gaussian_epsilon

PARAMETERS = 6


def component_size(graph, coalition, victim):
    """Honest clients that are still connected with the victim, and itself."""
    honest = nx.Graph(graph.edges.tolist())
    honest.remove_nodes_from(coalition)
    return len(nx.node_connected_component(honest, victim))


@st.composite
def situations(draw):
    """A graph, a coalition that leaves somebody, and a victim."""
    graph = draw(connected_graphs(6))
    clients = range(graph.clients)
    coalition = draw(st.sets(st.sampled_from(clients), max_size=graph.clients - 1))
    victim = draw(st.sampled_from(sorted(set(clients) - coalition)))
    return graph, coalition, victim


@given(
    situations(),
    st.sampled_from([{}, {"momentum": 0.9}, {"optimizer": "adam"}]),
    st.integers(1, 30),
)
def test_bounds_are_those_of_the_noise_of_the_component(situation, options, steps):
    graph, coalition, victim = situation
    promise = Privacy(epsilon=5.0, noise_multiplier=2.0)
    algorithm = guaranteed(
        made(PrivateSGD, **options), graph, promise=promise, parameters=PARAMETERS, steps=steps
    )
    adversary = Adversary.curious(*coalition) if coalition else Adversary.eavesdropper()
    honest = component_size(graph, coalition, victim)
    mechanism = algorithm.mechanism
    change = mechanism.bound + math.sqrt(PARAMETERS) / mechanism.code.scale
    noise = math.sqrt(honest) * mechanism.code.noise_deviation / change

    def brute_force(iterations):
        return sampled_gaussian_epsilon(noise, mechanism.sampling_rate, iterations, DELTA)

    about = {"victim": victim, "graph": graph, "parameters": PARAMETERS}
    upper = ledger_of(algorithm, adversary, 2, common_start=True, **about).upper
    whole = whole_run_of(algorithm, adversary, steps, **about)
    assert upper.epsilon == pytest.approx(brute_force(2), rel=1e-9)
    assert whole.epsilon == pytest.approx(brute_force(steps), rel=1e-9)
    # What the budget says of such a coalition, with a margin for integers below one in 100,000.
    against = algorithm.budget.epsilon_against(honest, steps)
    assert whole.epsilon == pytest.approx(against, rel=1e-4)
    assert whole.epsilon <= against * (1 + 1e-12)
