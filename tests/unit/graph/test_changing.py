"""Schedules of graphs and participation: pure functions of the iteration and the seed."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tacit
from support.graphs import connected_graphs
from support.misuse import assert_mentions, misuse_message
from tacit import Absence, Graph, GraphFunction, Matchings, Participation, Phases, Topology
from tacit.graph import World
from tacit.graph.schedule import as_schedule

RING, STAR = Topology.ring(6).mixing("metropolis"), Topology.star(6).mixing("metropolis")

MATCHED = [[0, 1], [1, 0], [2, 5], [3, 4], [4, 3], [5, 2]]
PRESENT = [0, 3, 4, 7]
DELAYS = [2, 0, 1, 0, 3, 2, 0, 2, 0, 0, 1, 1]


@settings(max_examples=40, deadline=None)
@given(connected_graphs(), st.integers(0, 50), st.integers(0, 3))
def test_matchings_are_maximal_matchings_of_the_edges(graph, t, seed):
    matched = Matchings(graph.topology).at(t, seed)
    degrees = matched.topology.degrees
    assert set(degrees.tolist()) <= {0, 1}
    pairs, edges = map(set, (map(tuple, matched.edges.tolist()), map(tuple, graph.edges.tolist())))
    assert pairs <= edges
    # No edge is left between two clients without a partner.
    assert all(degrees[a] or degrees[b] for a, b in edges)
    assert matched.symmetric
    assert matched.doubly_stochastic
    again = Matchings(graph.topology).at(t, seed)
    assert np.array_equal(matched.edges, again.edges)


def test_matchings_differ_between_iterations_and_seeds_and_use_every_edge():
    matchings = Matchings(Topology.complete(8))
    drawn = [matchings.at(t, 0).edges.tolist() for t in range(100)]
    assert drawn[0] != drawn[1]
    assert drawn != [matchings.at(t, 1).edges.tolist() for t in range(100)]
    assert {tuple(edge) for one in drawn for edge in one} == set(
        map(tuple, matchings.union.edges.tolist())
    )


def test_a_seed_of_their_own_keys_matchings():
    one, other = Matchings(Topology.complete(8), seed=3), Matchings(Topology.complete(8))
    assert all(np.array_equal(one.at(t, 0).edges, other.at(t, 3).edges) for t in range(5))


def test_draws_stay_the_same_between_versions():
    """Runs of published results must not change when a library draws in another order."""
    assert Matchings(Topology.complete(6)).at(0, 0).edges.tolist() == MATCHED
    present = Participation(share=0.5).present(0, 0, 8)
    assert np.flatnonzero(present).tolist() == PRESENT
    assert Participation(delay=3).delays(9, 0, RING.edges).tolist() == DELAYS


def test_phases_return_and_their_union_has_average_weights():
    phases = Phases([(RING, 3), (STAR, 1)])
    assert [phases.at(t, 0) is RING for t in range(8)] == [True] * 3 + [False] + [True] * 3 + [
        False
    ]
    assert np.allclose(phases.union.W, 0.75 * RING.W + 0.25 * STAR.W)
    assert phases.union.doubly_stochastic
    assert phases.union.symmetric


def test_lists_and_functions_become_schedules():
    assert as_schedule(RING) == (RING, None)
    union, schedule = as_schedule([RING, STAR])
    assert schedule.at(1, 0) is STAR
    assert union is schedule.union
    union, schedule = as_schedule(lambda t: STAR if t == 3 else RING)
    assert schedule.at(3, 0) is STAR
    # The star is used once in the first hundred iterations.
    assert np.allclose(union.W, 0.99 * RING.W + 0.01 * STAR.W)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Phases([]), ["no phases", "tacit.Phases"]),
        (lambda: Phases([(RING, 0)]), ["0 iterations"]),
        (lambda: Phases([(RING, 1), (Topology.ring(5).mixing(), 1)]), ["5 and 6 clients"]),
        (lambda: Phases([(Topology.ring(5), 1)]), ["Topology", "mixing"]),
        (lambda: Phases([RING]), ["phase", "iterations"]),
        (lambda: Matchings(RING), ["Graph", "tacit.Topology"]),
        (lambda: Matchings(Topology.directed_ring(4)), ["undirected"]),
        (lambda: GraphFunction(lambda t: None), ["NoneType for iteration 0"]),
        (lambda: GraphFunction(lambda t: RING, window=0), ["window"]),
        (lambda: Participation(share=0), ["share", "above 0"]),
        (lambda: Participation(share=1.5), ["share"]),
        (lambda: Participation(delay=-1), ["delay"]),
        (lambda: Participation(delay=2, share=0.5), ["Late messages", "absent"]),
        (lambda: Participation(stragglers=(1,)), ["Stragglers", "delay"]),
        (lambda: Participation(absences=[3]), ["Absence"]),
        (lambda: Absence(-1), ["client"]),
        (lambda: Absence(1, 5, 4), ["5 to 4"]),
        (lambda: World(RING, None, Participation(absences=(Absence(9),))).check(), ["client 9"]),
        (
            lambda: World(RING, Phases([(RING, 1)]), Participation(delay=1)).check(),
            ["Late messages", "graph that changes"],
        ),
        (
            lambda: World(
                Topology.ring(6).mixing("laplacian"), None, Participation(share=0.5)
            ).check(),
            ["laplacian", "metropolis"],
        ),
    ],
)
def test_what_is_not_possible_is_refused_with_a_remedy(make, words):
    assert_mentions(misuse_message(make), *words)


def test_shares_are_exact_and_absences_come_first():
    some = Participation(share=0.5, absences=(Absence(2, 3, 5),))
    assert [int(some.present(t, 0, 6).sum()) for t in range(8)] == [3, 3, 3, 2, 2, 2, 3, 3]
    assert not any(some.present(t, 0, 6)[2] for t in (3, 4, 5))
    counts = sum(Participation(share=0.5).present(t, 0, 6).astype(int) for t in range(600))
    assert counts.min() > 250
    # At least one client always takes part.
    assert int(Participation(share=0.01).present(0, 0, 6).sum()) == 1


def test_the_graph_of_present_clients_has_weights_of_its_own():
    world = World(STAR, None, Participation(absences=(Absence(0),)))
    alone = world.at(0)
    assert len(alone.graph.edges) == 0
    assert np.array_equal(alone.graph.W, np.eye(6))
    world = World(RING.lazy(), None, Participation(absences=(Absence(0),)))
    graph = world.at(0).graph
    assert graph.rule == "lazy metropolis"
    assert graph.W[1].tolist() == pytest.approx([0, 0.5 + 2 / 6, 1 / 6, 0, 0, 0])


def test_out_degree_weights_divide_what_a_client_has():
    graph = Topology.from_edges([(0, 1), (0, 2), (1, 2), (2, 0)], 3, directed=True).mixing(
        "out-degree"
    )
    assert graph.column_stochastic
    assert not graph.row_stochastic
    assert np.allclose(graph.W[:, 0], [1 / 3, 1 / 3, 1 / 3])
    assert np.allclose(graph.W[:, 1], [0, 1 / 2, 1 / 2])


def test_a_world_is_static_unless_something_changes():
    assert World(RING).is_static
    assert World(RING, None, Participation()).is_static
    assert not World(RING, None, Participation(delay=1)).is_static
    assert not World(RING, Phases([(RING, 1)])).is_static
    assert isinstance(tacit.Matchings(Topology.ring(4)).union, Graph)
