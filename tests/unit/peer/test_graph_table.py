"""The graph in a manifest: what it accepts, and what it makes, is what `Graph` does."""

import math
import tomllib

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from scipy import sparse

from tacit.core.errors import Misuse
from tacit.graph import Graph, Topology
from tacit.peer.federation.graph_table import format_graph, graph_table, parse_graph

CLIENTS = 4
CLIENT = st.integers(0, CLIENTS - 1)
NUMBER = st.one_of(st.floats(-2, 2), st.sampled_from([0.0, -0.0, 5e-324, math.nan, math.inf]))


@given(
    st.booleans(),
    st.lists(st.tuples(CLIENT, CLIENT), max_size=8),
    st.dictionaries(st.tuples(CLIENT, CLIENT), NUMBER, max_size=8),
)
@example(True, [(0, 1), (0, 1)], {(1, 0): 0.5, (0, 0): 1.0})
@example(True, [(0, 1)], {(0, 1): 0.5})
@example(False, [(3, 1)], {(1, 3): 0.5, (3, 1): 0.25, (2, 2): -1.0, (0, 1): 0.0})
def test_it_accepts_exactly_the_graphs(directed, edges, entries):
    table = {
        "name": "some",
        "rule": "given",
        "directed": directed,
        "edges": [list(edge) for edge in edges],
        "weights": [[i, j, weight] for (i, j), weight in entries.items()],
    }
    weights = np.zeros((CLIENTS, CLIENTS))
    for place, weight in entries.items():
        weights[place] = weight
    try:
        expected = Graph(
            Topology(CLIENTS, edges, directed, "some"), sparse.csr_array(weights), "given"
        )
    except Misuse:
        with pytest.raises(Misuse):
            parse_graph(table, CLIENTS)
        return
    parsed = parse_graph(table, CLIENTS)
    assert parsed == graph_table(expected) == graph_table(parsed.to_graph())
    assert parse_graph(tomllib.loads(format_graph(parsed))["topology"], CLIENTS) == parsed


def test_neighbours_and_weights_by_client():
    graph = Topology.exponential(5).mixing("sinkhorn", seed=3)
    table = graph_table(graph)
    dense = graph.weights.toarray()
    for client in range(5):
        assert table.targets[client] == sorted(graph.edges[graph.edges[:, 0] == client, 1])
        assert table.sources[client] == sorted(graph.edges[graph.edges[:, 1] == client, 0])
        row = [table.rows[client].get(other, 0.0) for other in range(5)]
        assert row == dense[client].tolist()


def test_the_description_has_the_size():
    table = graph_table(Topology.ring(5).mixing("metropolis"))
    assert table.describe() == "ring(5), metropolis weights: 5 clients, 10 directed edges"
