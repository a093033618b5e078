"""Topologies against networkx, their determinism, and what they refuse."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tacit.core.errors import Misuse
from tacit.graph import Topology


def pairs(topology):
    return {tuple(edge) for edge in topology.edges.tolist()}


def expected(graph):
    """The directed edges of a networkx graph, nodes numbered in their order."""
    number = {node: index for index, node in enumerate(graph.nodes)}
    forward = {(number[a], number[b]) for a, b in graph.edges if a != b}
    return forward if graph.is_directed() else forward | {(b, a) for a, b in forward}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 13])
def test_families_have_the_edges_of_networkx(n):
    powers = [2**k for k in range(10) if 2**k < n]
    assert pairs(Topology.ring(n)) == expected(nx.cycle_graph(n))
    assert pairs(Topology.directed_ring(n)) == expected(nx.cycle_graph(n, create_using=nx.DiGraph))
    assert pairs(Topology.complete(n)) == expected(nx.complete_graph(n))
    assert pairs(Topology.star(n)) == expected(nx.star_graph(n - 1))
    assert pairs(Topology.exponential(n, directed=False)) == expected(nx.circulant_graph(n, powers))
    assert pairs(Topology.exponential(n)) == {
        (i, (i + power) % n) for i in range(n) for power in powers
    }


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 4), (2, 2), (2, 5), (3, 3), (4, 6)])
def test_lattices_have_the_edges_of_networkx(rows, columns):
    assert pairs(Topology.grid(rows, columns)) == expected(nx.grid_2d_graph(rows, columns))
    assert pairs(Topology.torus(rows, columns)) == expected(
        nx.grid_2d_graph(rows, columns, periodic=True)
    )


def test_geometric_graphs_join_exactly_the_points_within_the_radius():
    topology = Topology.random_geometric(40, 0.35, seed=3)
    points = dict(enumerate(topology.layout()))
    assert pairs(topology) == expected(nx.random_geometric_graph(40, 0.35, pos=points))


RANDOM = {
    "regular": lambda n, seed: Topology.random_regular(n, 4, seed),
    "regular, dense": lambda n, seed: Topology.random_regular(n, n - 2 - n % 2, seed),
    "erdos_renyi": lambda n, seed: Topology.erdos_renyi(n, 0.5, seed),
    "erdos_renyi, directed": lambda n, seed: Topology.erdos_renyi(n, 0.5, seed, directed=True),
    "geometric": lambda n, seed: Topology.random_geometric(n, 0.6, seed),
    "random_directed": lambda n, seed: Topology.random_directed(n, 0.2, seed),
}


@pytest.mark.parametrize("kind", RANDOM)
@settings(max_examples=15, deadline=None)
@given(n=st.integers(8, 24), seed=st.integers(0, 2**40))
def test_random_families_are_connected_canonical_and_repeatable(kind, n, seed):
    topology = RANDOM[kind](n, seed)
    oracle = topology.to_networkx()
    assert nx.is_strongly_connected(oracle) if topology.directed else nx.is_connected(oracle)
    assert topology.is_connected()
    assert topology.edges.tolist() == sorted(
        [source, target] for source, target in expected(oracle)
    )
    assert np.array_equal(topology.edges, RANDOM[kind](n, seed).edges)


@pytest.mark.parametrize("kind", RANDOM)
def test_another_seed_gives_another_graph(kind):
    assert len({RANDOM[kind](20, seed).edges.tobytes() for seed in range(5)}) == 5


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 30), data=st.data())
def test_regular_graphs_are_regular(n, data):
    degree = data.draw(st.integers(min(2, n - 1), n - 1).filter(lambda degree: n * degree % 2 == 0))
    topology = Topology.random_regular(n, degree, seed=1)
    assert (topology.degrees == degree).all()


@pytest.mark.parametrize("directed", [False, True])
def test_every_pair_is_drawn_with_probability_p(directed):
    n, p, draws = 9, 0.6, 400
    seen = np.zeros((n, n))
    for seed in range(draws):
        source, target = Topology.erdos_renyi(n, p, seed, directed).edges.T
        seen[source, target] += 1
    # Connectedness is all but certain here, so each pair is a binomial count: five deviations.
    away = np.abs(seen[~np.eye(n, dtype=bool)] - draws * p)
    assert away.max() < 5 * math.sqrt(draws * p * (1 - p))


def test_extreme_probabilities_give_all_edges_or_none():
    assert pairs(Topology.erdos_renyi(7, 1.0)) == pairs(Topology.complete(7))
    assert pairs(Topology.erdos_renyi(6, 1.0, directed=True)) == pairs(Topology.complete(6))
    assert pairs(Topology.random_directed(7, 0.0)) == pairs(Topology.directed_ring(7))
    assert pairs(Topology.random_directed(7, 1e-300)) == pairs(Topology.directed_ring(7))


def test_random_directed_contains_the_ring_and_more():
    topology = Topology.random_directed(30, 0.2, seed=5)
    assert pairs(Topology.directed_ring(30)) < pairs(topology)
    assert topology.directed


def test_degrees_count_what_leaves():
    topology = Topology.from_edges([(0, 1), (0, 2), (2, 1)], directed=True)
    assert topology.degrees.tolist() == [2, 0, 1]


def test_own_edges_are_sorted_deduplicated_and_mirrored():
    topology = Topology.from_edges([(2, 1), (0, 1), (1, 0), (0, 1)])
    assert topology.edges.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert topology.edges.dtype == np.int64
    assert Topology.from_edges([(2, 1), (0, 1), (0, 1)], directed=True).edges.tolist() == [
        [0, 1],
        [2, 1],
    ]
    assert Topology.from_edges([(0, 1)], clients=4).clients == 4
    assert Topology.from_edges([], clients=1).is_connected()


def test_edges_cannot_be_changed_behind_the_topology():
    with pytest.raises(ValueError, match="read-only"):
        Topology.ring(4).edges[0, 0] = 3


def test_edge_files_take_comments_commas_and_blanks(tmp_path):
    path = tmp_path / "ward.edges"
    path.write_text("# the ward\n0 1\n1,2  # by the stairs\n\n 2\t0\n")
    assert pairs(Topology.from_edge_file(path)) == pairs(Topology.ring(3))
    assert pairs(Topology.from_edge_file(path, directed=True)) == pairs(Topology.directed_ring(3))
    assert Topology.from_edge_file(path).name == "ward.edges"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 2 0.5\n", "line 2: '1 2 0.5' is not two integers"),
        ("0 one\n", "line 1"),
        ("# nothing\n", "lists no edge"),
        ("0 -1\n", r"row 0 is \(0, -1\)"),
    ],
)
def test_bad_edge_files_are_refused(tmp_path, text, message):
    path = tmp_path / "bad.edges"
    path.write_text(text)
    with pytest.raises(Misuse, match=message):
        Topology.from_edge_file(path)


def test_a_missing_edge_file_is_refused(tmp_path):
    with pytest.raises(Misuse, match="No such file"):
        Topology.from_edge_file(tmp_path / "nowhere")


def test_networkx_graphs_keep_their_labels_and_come_back():
    graph = nx.Graph([("Ann", "Bob"), ("Bob", "Cid")])
    topology = Topology.from_networkx(graph)
    assert topology.labels == ("Ann", "Bob", "Cid")
    assert pairs(topology) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    back = topology.to_networkx()
    assert [back.nodes[client]["label"] for client in range(3)] == ["Ann", "Bob", "Cid"]
    directed = Topology.from_networkx(nx.DiGraph([(5, 3), (3, 5), (3, 4)]))
    assert directed.directed
    assert pairs(directed) == {(0, 1), (1, 0), (1, 2)}
    assert pairs(Topology.from_networkx(nx.MultiGraph([(0, 1), (0, 1)]))) == {(0, 1), (1, 0)}


def test_connected_follows_the_direction_of_edges():
    one_way = [(0, 1), (1, 2)]
    assert Topology.from_edges(one_way).is_connected()
    assert not Topology.from_edges(one_way, directed=True).is_connected()
    assert not Topology.from_edges([(0, 1)], clients=3).is_connected()


@pytest.mark.parametrize(
    "topology",
    [
        *[
            Topology.ring(6),
            Topology.complete(5),
            Topology.star(6),
            Topology.star(1),
            Topology.grid(3, 4),
        ],
        *[Topology.random_geometric(10, 0.7), Topology.from_edges([(0, 1), (1, 2)])],
        Topology.from_edges([(i, i + 1) for i in range(400)]),
    ],
    ids=lambda topology: topology.name,
)
def test_layouts_put_everyone_at_a_place_of_their_own(topology):
    places = topology.layout()
    assert places.shape == (topology.clients, 2)
    assert len(np.unique(places.round(9), axis=0)) == topology.clients
    assert np.array_equal(places, topology.layout())


def test_layouts_follow_the_family():
    assert Topology.star(5).layout()[0].tolist() == [0, 0]
    assert np.linalg.norm(Topology.ring(7).layout(), axis=1) == pytest.approx(1)
    lengths = [
        np.linalg.norm(np.subtract(*Topology.grid(3, 4).layout()[edge]))
        for edge in Topology.grid(3, 4).edges
    ]
    assert lengths == pytest.approx([1] * len(lengths))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Topology.ring(0), "n is 0.*at least 1"),
        (lambda: Topology.ring(2.5), "n is 2.5.*whole number"),
        (lambda: Topology.ring(True), "n is True.*whole number"),
        (lambda: Topology.grid(3, 0), "columns is 0"),
        (lambda: Topology.random_regular(5, 5), "degree = 5 is impossible"),
        (lambda: Topology.random_regular(5, 3), "n · degree even"),
        (lambda: Topology.random_regular(6, 1), "cannot connect"),
        (lambda: Topology.random_regular(6, 3, seed=-1), "seed is -1"),
        (lambda: Topology.erdos_renyi(5, 1.2), "p is 1.2.*at least 0 and at most 1.*prob"),
        (lambda: Topology.erdos_renyi(5, math.nan), "p is nan"),
        (lambda: Topology.random_directed(5, -0.1), "p is -0.1"),
        (
            lambda: Topology.erdos_renyi(60, 0.01),
            r"p = 0.01 gave no connected .* 100 draws.*ln\(n\)/n = 0.0682",
        ),
        (lambda: Topology.erdos_renyi(3, 0.0), "Raise p"),
        (lambda: Topology.random_geometric(30, 0.01), "Raise radius"),
        (lambda: Topology.random_geometric(5, 0.0), "radius is 0.0"),
        (lambda: Topology.random_geometric(5, math.nan), "radius is nan"),
        (
            lambda: Topology.from_edges([(0, 3)], clients=3),
            r"row 0 is \(0, 3\), but clients are 0 to 2",
        ),
        (lambda: Topology.from_edges([(0, 1), (-1, 0)]), r"row 1 is \(-1, 0\)"),
        (lambda: Topology.from_edges([(0, 1), (2, 2)]), "row 1 is a self loop of client 2"),
        (lambda: Topology.from_edges([(0.0, 1.0)]), "float64, not integers"),
        (lambda: Topology.from_edges([(0, 1, 2)]), "shape"),
        (lambda: Topology.from_edges([(0, 1), (2,)]), "different lengths"),
        (lambda: Topology.from_edges([]), "clients is not given"),
        (lambda: Topology.from_networkx(nx.Graph()), "clients is 0"),
        (lambda: Topology.from_networkx(nx.Graph([(1, 1)])), "self loop"),
        (lambda: Topology(2, np.array([[0, 1]]), False, "pair", labels=("a",)), "1 given for 2"),
    ],
)
def test_impossible_graphs_are_refused(make, message):
    with pytest.raises(Misuse, match=message):
        make()
