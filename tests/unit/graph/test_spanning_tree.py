import networkx as nx
import numpy as np
import pytest

from support.misuse import assert_mentions, misuse_message
from tacit import Topology
from tacit.graph import spanning_tree
from tacit.graph.spanning_tree import SpanningTree


def tree_of(topology):
    return SpanningTree.of(topology.mixing("metropolis").edges, topology.clients)


def test_among_equals_the_smallest_client_is_the_root():
    tree = tree_of(Topology.ring(6))
    assert tree.root == 0
    assert tree.children(0) == [1, 5]


def test_one_client_is_its_own_tree():
    tree = SpanningTree.of(np.zeros((0, 2), dtype=np.int64), 1)
    assert (tree.root, tree.parent.tolist(), tree.bottom_up.tolist()) == (0, [-1], [])


def test_the_tree_does_not_depend_on_the_order_of_edges():
    graph = Topology.erdos_renyi(15, 0.3, seed=2).mixing("metropolis")
    tree = SpanningTree.of(graph.edges, 15)
    for seed in range(5):
        edges = np.random.default_rng(seed).permutation(graph.edges)
        other = SpanningTree.of(edges, 15)
        assert (other.root, other.parent.tolist()) == (tree.root, tree.parent.tolist())


@pytest.mark.parametrize("block", [1, 4, 256])
def test_depths_are_distances_from_a_centre(block, monkeypatch):
    monkeypatch.setattr(spanning_tree, "BLOCK", block)
    graph = Topology.erdos_renyi(17, 0.2, seed=5).mixing("metropolis")
    tree, plain = SpanningTree.of(graph.edges, 17), nx.Graph(graph.edges.tolist())
    assert tree.root == min(nx.center(plain))
    distances = nx.single_source_shortest_path_length(plain, tree.root)
    order = tree.bottom_up.tolist()
    assert sorted([*order, tree.root]) == list(range(17))
    for client in order:
        parent = int(tree.parent[client])
        assert client in tree.children(parent)
        # Children come first.
        assert parent == tree.root or order.index(client) < order.index(parent)
    for client in range(17):
        depth, above = 0, client
        while above != tree.root:
            depth, above = depth + 1, int(tree.parent[above])
        assert depth == distances[client]


def test_a_graph_in_parts_is_refused():
    edges = np.array([(0, 1), (1, 0), (2, 3), (3, 2)])
    assert_mentions(misuse_message(SpanningTree.of, edges, 4), "connected graph", "Add edges")
