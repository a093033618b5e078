"""Masked sums: exact for every graph, and a coalition learns the sums of components, no more."""

from dataclasses import dataclass
from typing import ClassVar

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats
from torch import Tensor

import tacit
from support.graphs import connected_graphs
from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.linear_knowledge import LinearKnowledge
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.fixed_point import FixedPoint, IntegerRows
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.randomness import Philox
from tacit.engines.stacked import StackedNetwork
from tacit.graph.spanning_tree import SpanningTree
from tacit.record.masked_sums import tree_messages
from tacit.record.transcript import Transcript, TranscriptRecorder

CODE = FixedPoint(scale=2.0**20)


@dataclass(frozen=True)
class SumState:
    theta: Tensor


@dataclass(frozen=True)
class SumOfGradients(Algorithm):
    """Every client learns the sum of all gradients."""

    name: ClassVar[str] = "sum-of-gradients"
    needs_total: ClassVar[bool] = True

    def start(self, here) -> SumState:
        return SumState(here.theta0)

    def step(self, s, here) -> SumState:
        (total,) = here.net.total(grad=here.fixed_point("grad", here.grad(s.theta), CODE))
        return SumState(s.theta - total)


def rows_of(graph, integers, seed=0, tick=1):
    hood = Neighbourhood.of(graph.edges, np.arange(graph.clients))
    randomness = Philox(seed, integers.shape[1])

    def masks():
        return randomness.masks("grad", tick, *hood.edge_ends)

    return IntegerRows(
        tuple(integers.shape), lambda: integers, hood, masks, None, lambda total: total, 2.0**32
    )


@given(graph=connected_graphs(), seed=st.integers(0, 99), data=st.data())
def test_the_total_is_exact_for_any_graph_and_any_integers(graph, seed, data):
    word = st.integers(-(2**31), 2**31 - 1)
    row = st.lists(word, min_size=3, max_size=3)
    rows = data.draw(st.lists(row, min_size=graph.clients, max_size=graph.clients))
    integers = torch.tensor(rows, dtype=torch.int32)
    expected = np.array(rows, dtype=np.int64).sum(0).astype(np.int32)
    sent = rows_of(graph, integers, seed)
    up, down = tree_messages("grad", sent, SpanningTree.of(graph.edges, graph.clients))
    assert down.rows.tolist() == [expected.astype(float).tolist()] * (graph.clients - 1)
    assert len(up.rows) == graph.clients - 1
    network = StackedNetwork(graph, torch.float32, "cpu")
    (total,) = network.total(grad=sent)
    assert total.tolist() == [expected.tolist()] * graph.clients
    assert network.bytes_sent == 2 * (graph.clients - 1) * 3 * 4


@given(graph=connected_graphs())
def test_the_tree_spans_the_graph_from_its_centre(graph):
    tree = SpanningTree.of(graph.edges, graph.clients)
    plain = nx.Graph(graph.edges.tolist())
    assert tree.root in nx.center(plain)
    assert sorted([tree.root, *tree.bottom_up.tolist()]) == list(range(graph.clients))
    seen = set()
    for client in tree.bottom_up.tolist():
        assert plain.has_edge(client, int(tree.parent[client]))
        assert set(tree.children(client)) <= seen
        seen.add(client)


def components(graph, coalition):
    honest = nx.Graph(graph.edges.tolist())
    honest.remove_nodes_from(coalition)
    return [sorted(component) for component in nx.connected_components(honest)]


@settings(deadline=None)
@given(graph=connected_graphs(7), data=st.data())
def test_a_coalition_knows_exactly_the_sums_of_components(graph, data):
    clients = range(graph.clients)
    coalition = data.draw(st.sets(st.sampled_from(clients), max_size=graph.clients - 1))
    run = run_on_symbols(SumOfGradients(), graph, steps=1)
    who = Adversary.curious(*coalition) if coalition else Adversary.eavesdropper()
    knowledge = LinearKnowledge(run, who)
    found = components(graph, coalition) if coalition else [list(clients)]
    # Combinations of what it sees in which all unknown masks cancel, as sums of gradients.
    is_mask = np.array([unknown.kind == "mask" for unknown in knowledge.hidden])
    is_gradient = np.array([unknown.kind == "gradient" for unknown in knowledge.hidden])
    basis = knowledge.basis
    free = _null_space(basis[:, is_mask].T)
    known = (free.T @ basis)[:, is_gradient]
    owners = [
        u.client for u, gradient in zip(knowledge.hidden, is_gradient, strict=True) if gradient
    ]
    sums = np.array([[client in part for client in owners] for part in found], dtype=float)
    rank = np.linalg.matrix_rank(known, tol=1e-8)
    assert rank == len(found) == np.linalg.matrix_rank(np.vstack([known, sums]), tol=1e-8)


def _null_space(matrix):
    """Columns that span {x: matrix @ x = 0}."""
    if not matrix.size:
        return np.eye(matrix.shape[1])
    _, sigma, vectors = np.linalg.svd(matrix)
    rank = int((sigma > 1e-9).sum())
    return vectors[rank:].T


@settings(deadline=None, max_examples=20)
@given(graph=connected_graphs(5))
def test_symbols_say_what_the_algorithm_computes(graph):
    run = run_on_symbols(SumOfGradients(), graph, steps=2)
    assert replay(SumOfGradients(), graph, run) == []


RING = tacit.Topology.ring(6).mixing("metropolis")


def words_seen(secret, coalition, seed):
    """Who sends masked sums to the coalition, and their words."""
    hood = Neighbourhood.of(RING.edges, np.arange(6))
    transcript = Transcript()
    recorder = TranscriptRecorder(StackedNetwork(RING, torch.float64, "cpu"), transcript, hood)
    recorder.total(grad=rows_of(RING, secret, seed))
    up = next(message for message in transcript.messages if message.tag == "grad/up")
    seen = Adversary.curious(*coalition).sees(up, transcript.edges)
    senders = [int(source) for source in up.source[seen] if int(source) not in coalition]
    rows = up.rows[seen][[int(s) not in coalition for s in up.source[seen]]]
    return senders, rows.long() % 2**32


@pytest.mark.parametrize("coalition", [(0,), (1,), (0, 1), (2, 4)])
def test_what_a_coalition_sees_is_uniform_whatever_the_rows_are(coalition):
    width, buckets = 40_000, 256
    torch.manual_seed(0)
    small = torch.randint(-50, 50, (6, width), dtype=torch.int32)
    large = torch.full((6, width), 2**30, dtype=torch.int32)
    for secret in (small, large):
        senders, rows = words_seen(secret, coalition, seed=7)
        assert senders, "the coalition sees nothing"
        for row in rows:
            counts = np.bincount((row // (2**32 // buckets)).numpy(), minlength=buckets)
            assert stats.chisquare(counts).pvalue > 1e-4
            # Nor do the low bits, or the rows themselves, show through.
            low = np.bincount((row % buckets).numpy(), minlength=buckets)
            assert stats.chisquare(low).pvalue > 1e-4
        correlation = np.corrcoef(rows.double().numpy(), small.double().numpy())
        between = correlation[: len(rows), len(rows) :]
        assert np.abs(between).max() < 5 / np.sqrt(width)


def test_pairs_of_words_are_independent_of_each_other():
    """Two messages that a coalition sees: their joint distribution is uniform on a grid."""
    width, cells = 64_000, 16
    secret = torch.zeros(6, width, dtype=torch.int32)
    _, rows = words_seen(secret, (0,), seed=3)
    assert len(rows) == 2
    cell = rows // (2**32 // cells)
    counts = np.bincount((cells * cell[0] + cell[1]).numpy(), minlength=cells**2)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_a_mask_that_is_used_twice_shows_the_difference_of_rows():
    """The same tick with other rows: the masks cancel in the difference, and the row is there."""
    first = torch.zeros(6, 8, dtype=torch.int32)
    second = first.clone()
    second[3] = torch.arange(8, dtype=torch.int32)
    _, one = words_seen(first, (0,), seed=3)
    _, other = words_seen(second, (0,), seed=3)
    differences = (other - one) % 2**32
    assert (differences == torch.arange(8)).all(1).any()
    other_tick = rows_of(RING, second, seed=3, tick=2).masked()
    same_tick = rows_of(RING, first, seed=3, tick=1).masked()
    differences = (other_tick.long() - same_tick.long()) % 2**32
    assert not (differences == torch.arange(8)).all(1).any()


def test_clients_that_are_surrounded_are_known():
    """Both neighbours of client 3 are curious: its component is itself."""
    run = run_on_symbols(SumOfGradients(), RING, steps=1)
    knowledge = LinearKnowledge(run, Adversary.curious(2, 4))
    gradient = next(u for u in run.unknowns if u.kind == "gradient" and u.client == 3)
    assert knowledge.estimate(knowledge.vector((gradient, 1.0))).status == "exact"
    alone = LinearKnowledge(run, Adversary.curious(2))
    assert alone.estimate(alone.vector((gradient, 1.0))).status == "hidden"
