"""Graphs for property tests."""

from hypothesis import strategies as st

import tacit


@st.composite
def connected_graphs(draw, most=9):
    """Trees with a few more edges: every shape occurs."""
    clients = draw(st.integers(2, most))
    edges = {(draw(st.integers(0, i - 1)), i) for i in range(1, clients)}
    pairs = [(i, j) for i in range(clients) for j in range(i + 1, clients)]
    edges |= set(draw(st.lists(st.sampled_from(pairs), max_size=clients)))
    order = draw(st.permutations(range(clients)))
    renamed = [(order[i], order[j]) for i, j in edges]
    return tacit.Topology.from_edges(renamed, clients).mixing("metropolis")
