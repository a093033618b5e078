"""Clients per rank: balanced, deterministic, and few rows travel."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tacit import Misuse, Topology
from tacit.engines.partition import ClientPartition, partition_clients

TOPOLOGIES = {
    "ring": Topology.ring(40),
    "directed ring": Topology.directed_ring(41),
    "torus": Topology.torus(6, 7),
    "star": Topology.star(30),
    "complete": Topology.complete(12),
    "geometric": Topology.random_geometric(60, 0.25, seed=1),
    "directed": Topology.random_directed(50, 0.05, seed=1),
    "regular": Topology.random_regular(40, 4, seed=1),
}


def of(topology, ranks):
    return partition_clients(topology.edges, topology.clients, ranks)


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_sizes_differ_by_one_at_most_and_the_cut_is_counted(name, ranks):
    topology = TOPOLOGIES[name]
    partition = of(topology, ranks)
    sizes = np.bincount(partition.rank_of, minlength=ranks)
    assert sizes.sum() == topology.clients
    assert sizes.max() - sizes.min() <= 1
    rank_of = partition.rank_of.tolist()
    between = [(i, j) for i, j in topology.edges.tolist() if rank_of[i] != rank_of[j]]
    assert partition.cut_edges == len(between)
    assert partition.volume == len({(i, rank_of[j]) for i, j in between})
    assert np.array_equal(of(topology, ranks).rank_of, partition.rank_of)
    hosted = np.concatenate([partition.hosted(rank) for rank in range(ranks)])
    assert sorted(hosted) == list(range(topology.clients))


@pytest.mark.parametrize(("ranks", "rows"), [(2, 4), (3, 6), (8, 16)])
def test_a_ring_is_cut_into_arcs_even_when_its_clients_are_numbered_at_random(ranks, rows):
    ring = Topology.ring(64)
    shuffled = np.random.default_rng(0).permutation(64)[ring.edges]
    for edges in (ring.edges, shuffled):
        partition = partition_clients(edges, 64, ranks)
        assert (partition.volume, partition.cut_edges) == (rows, rows)


@pytest.mark.parametrize(
    ("shape", "rows"), [((8, 6), 24), ((6, 8), 24), ((10, 10), 40), ((5, 40), 20)]
)
def test_a_torus_is_cut_across_its_longer_side(shape, rows):
    partition = of(Topology.torus(*shape), 2)
    # Two cuts, a row or column on either side of each.
    assert (partition.volume, partition.cut_edges) == (rows, rows)


def test_four_ranks_on_a_grid_get_a_quarter_each():
    # Two straight cuts, both ways; strips would take 96.
    assert of(Topology.grid(16, 16), 4).cut_edges == 4 * 16


def test_a_clustered_graph_is_cut_between_its_clusters():
    """Four cliques of ten in a circle, numbered at random."""
    inside = [
        (10 * c + i, 10 * c + j) for c in range(4) for i in range(10) for j in range(10) if i != j
    ]
    between = [(10 * c, 10 * ((c + 1) % 4) + 1) for c in range(4)]
    edges = np.array(inside + between + [(j, i) for i, j in between])
    edges = np.random.default_rng(3).permutation(40)[edges]
    assert partition_clients(edges, 40, 4).cut_edges == 8
    assert partition_clients(edges, 40, 2).cut_edges == 4


def test_more_ranks_than_clients_are_refused():
    with pytest.raises(Misuse, match="4 ranks for 3 clients"):
        of(Topology.ring(3), 4)
    assert sorted(of(Topology.ring(3), 3).rank_of) == [0, 1, 2]


@settings(max_examples=30)
@given(clients=st.integers(2, 30), ranks=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_edges_are_numbered_as_rows_of_a_state_are(clients, ranks, seed):
    """Out-edges are ordered by (source, target), in-edges by (target, source)."""
    rng = np.random.default_rng(seed)
    edges = np.argwhere(rng.random((clients, clients)) < 0.3)
    edges = edges[edges[:, 0] != edges[:, 1]]
    rank_of = rng.integers(0, ranks, clients)
    partition = ClientPartition(rank_of, ranks, edges)
    listed = sorted(map(tuple, edges.tolist()))
    for rank in range(ranks):
        out_edges = [listed[k] for k in partition.out_edges(rank)]
        in_edges = [listed[k] for k in partition.in_edges(rank)]
        assert out_edges == [edge for edge in listed if rank_of[edge[0]] == rank]
        assert in_edges == sorted(
            (e for e in listed if rank_of[e[1]] == rank), key=lambda e: e[::-1]
        )
