"""The smallest part of a graph that a coalition can cut off."""

from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given, strategies as st

from tacit.report import privacy_section
from tacit.report.privacy_section import coalition_sizes, smallest_parts


@given(st.integers(4, 8), st.floats(0.2, 0.9), st.integers(0, 10**6))
def test_it_is_the_smallest_over_all_coalitions(clients, p, seed):
    graph = nx.gnp_random_graph(clients, p, seed=seed)
    found = smallest_parts(clients, graph.edges, range(clients))
    for size, part in found.items():
        left = (graph.subgraph(set(graph) - set(c)) for c in combinations(graph, size))
        assert part == min(len(one) for some in left for one in nx.connected_components(some))


def test_what_would_take_too_long_is_not_computed(monkeypatch):
    monkeypatch.setattr(privacy_section, "MOST_COALITIONS", 10)
    barbell = nx.barbell_graph(5, 0)
    assert smallest_parts(10, barbell.edges, range(5)) == {0: 10, 1: 4, 2: None, 3: None, 4: 1}


def test_a_large_graph_is_answered_where_degrees_say_it():
    clients = privacy_section.MOST_CLIENTS + 1
    ring = nx.cycle_graph(clients)
    assert smallest_parts(clients, ring.edges, (0, 1, 2)) == {0: clients, 1: clients - 1, 2: 1}


@pytest.mark.parametrize("clients", [1, 5, 12, 13, 200])
def test_sizes_contain_the_promised_one(clients):
    honest = max(1, clients - 2)
    sizes = coalition_sizes(clients, honest)
    assert clients - honest in sizes
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 0
    assert sizes[-1] == clients - 1
    assert len(sizes) <= privacy_section.MOST_SIZES
