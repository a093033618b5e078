import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tacit.core import neighbourhood
from tacit.core.neighbourhood import Neighbourhood, slots
from tacit.core.noise import Laplace
from tacit.core.randomness import Philox
from tacit.core.rows import NoiseRows
from tacit.graph import Topology

WIDTH = 3


@st.composite
def hosted_graphs(draw, undirected=False):
    """(edges in any order, hosted ids ascending)."""
    n = draw(st.integers(1, 7))
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    edges = set(draw(st.lists(st.sampled_from(pairs), unique=True))) if pairs else set()
    if undirected:
        edges |= {(j, i) for i, j in edges}
    ids = sorted(draw(st.sets(st.integers(0, n - 1), min_size=1)))
    shuffled = draw(st.permutations(sorted(edges)))
    return np.array(shuffled, dtype=np.int64).reshape(-1, 2), np.array(ids)


def leaving(edges, ids):
    return sorted((i, j) for i, j in edges.tolist() if i in ids)


def entering(edges, ids):
    return sorted(
        ((i, j) for i, j in edges.tolist() if j in ids), key=lambda edge: (edge[1], edge[0])
    )


def incidence(ids, ends):
    """[n, edges]: one where the hosted client is this end of the edge."""
    matrix = torch.zeros(len(ids), len(ends), dtype=torch.float64)
    for column, end in enumerate(ends):
        matrix[ids.tolist().index(end), column] = 1
    return matrix


def whole_numbers(rows, start=1):
    """Distinct rows of whole numbers, whose sums are exact."""
    return torch.arange(start, start + rows * WIDTH, dtype=torch.float64).reshape(rows, WIDTH) ** 2


@settings(max_examples=40)
@given(hosted_graphs())
def test_slots_name_the_edges_of_hosted_clients_in_order(case):
    edges, ids = case
    here = Neighbourhood.of(edges, ids)
    assert list(zip(here.out_source.tolist(), here.out_target.tolist(), strict=True)) == leaving(
        edges, ids
    )
    assert list(zip(here.in_source.tolist(), here.in_target.tolist(), strict=True)) == entering(
        edges, ids
    )
    assert here.out_degree.tolist() == [sum(i == own for i, _ in edges.tolist()) for own in ids]
    assert here.in_degree.tolist() == [sum(j == own for _, j in edges.tolist()) for own in ids]


@settings(max_examples=40)
@given(hosted_graphs())
def test_sums_are_products_with_incidence_matrices(case):
    edges, ids = case
    here = Neighbourhood.of(edges, ids)
    out = incidence(ids, [i for i, _ in leaving(edges, ids)])
    into = incidence(ids, [j for _, j in entering(edges, ids)])
    rows = whole_numbers(len(ids))
    sent, received = whole_numbers(out.shape[1], 7), whole_numbers(into.shape[1], 11)
    assert torch.equal(here.lift(rows), out.T @ rows)
    assert torch.equal(here.total_out(sent), out @ sent)
    assert torch.equal(here.total_in(received), into @ received)
    assert torch.equal(here.net_out(sent, received), out @ sent - into @ received)


@settings(max_examples=40)
@given(hosted_graphs(), st.integers(1, 20))
def test_lazy_rows_sum_like_tensors_in_any_workspace(case, workspace):
    edges, ids = case
    here = Neighbourhood.of(edges, ids)
    source = Philox(5, WIDTH, torch.float64)
    sent = source.rows("delta", Laplace(1.0), 2, here.out_source, here.out_target)
    received = source.rows("delta", Laplace(1.0), 2, here.in_source, here.in_target)
    expected = [
        here.total_out(sent.tensor()),
        here.total_in(received.tensor()),
        here.net_out(sent.tensor(), received.tensor()),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for size in (neighbourhood.WORKSPACE, workspace):
            patch.setattr(neighbourhood, "WORKSPACE", size)
            got = [here.total_out(sent), here.total_in(received), here.net_out(sent, received)]
            assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
            got = [here.total_out(sent.tensor()), here.total_in(received.tensor())]
            assert all(torch.equal(a, b) for a, b in zip(got, expected[:2], strict=True))


def test_a_small_workspace_never_draws_more_rows_than_fit(monkeypatch):
    monkeypatch.setattr(neighbourhood, "WORKSPACE", 2 * WIDTH)
    here = Neighbourhood.of(Topology.complete(6).edges, np.arange(6))
    asked = []

    def draw(index):
        asked.append(len(index))
        return whole_numbers(30)[index]

    total = here.total_out(NoiseRows(30, WIDTH, torch.float64, torch.device("cpu"), draw))
    assert torch.equal(total, whole_numbers(30).reshape(6, 5, WIDTH).sum(1))
    assert max(asked) <= 2
    assert sum(asked) == 30


def test_sums_leave_the_edge_rows_alone():
    here = Neighbourhood.of(Topology.ring(4).edges, np.arange(4))
    sent, received = whole_numbers(8), whole_numbers(8, 5)
    here.net_out(sent, received).zero_()
    here.total_out(sent).zero_()
    assert torch.equal(sent, whole_numbers(8))
    assert torch.equal(received, whole_numbers(8, 5))


@settings(max_examples=40)
@given(hosted_graphs(undirected=True))
def test_undirected_slots_pair_the_two_directions_of_an_edge(case):
    here = Neighbourhood.of(*case)
    assert torch.equal(here.out_row, here.in_row)
    assert torch.equal(here.out_target, here.in_source)


@settings(max_examples=40)
@given(hosted_graphs(undirected=True))
def test_signs_are_plus_for_the_smaller_end_and_antisymmetric(case):
    edges, ids = case
    here = Neighbourhood.of(edges, ids)
    assert here.signs.shape == (len(here.out_row), 1)
    sign = dict(zip(leaving(edges, ids), here.signs[:, 0].tolist(), strict=True))
    for (i, j), value in sign.items():
        assert value == (1.0 if i < j else -1.0)
        if (j, i) in sign:
            assert sign[j, i] == -value


@settings(max_examples=40)
@given(hosted_graphs())
def test_masks_that_two_ends_share_cancel_over_all_clients(case):
    edges, ids = case
    everyone = Neighbourhood.of(
        edges, np.arange(max([*ids.tolist(), *edges.flatten().tolist()]) + 1)
    )
    weight = {edge: float(k + 1) for k, edge in enumerate(map(tuple, edges.tolist()))}

    def rows(sources, targets):
        values = [weight[edge] for edge in zip(sources.tolist(), targets.tolist(), strict=True)]
        return torch.tensor(values, dtype=torch.float64).reshape(-1, 1)

    net = everyone.net_out(
        rows(everyone.out_source, everyone.out_target), rows(everyone.in_source, everyone.in_target)
    )
    assert float(net.sum()) == 0
    part = Neighbourhood.of(edges, ids)
    hosted = part.net_out(
        rows(part.out_source, part.out_target), rows(part.in_source, part.in_target)
    )
    assert torch.equal(hosted, net[ids])


@settings(max_examples=40)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_slots_visit_every_edge_once_and_no_row_twice_at_a_time(degrees):
    seen = []
    for rows, edges in slots(torch.tensor(degrees)):
        assert len(set(rows.tolist())) == len(rows)
        seen += zip(edges.tolist(), rows.tolist(), strict=True)
    owner = [row for row, degree in enumerate(degrees) for _ in range(degree)]
    assert sorted(seen) == list(enumerate(owner))


def test_the_own_share_is_what_mixing_gives_a_client_of_its_row():
    graph = Topology.star(5).mixing("metropolis")
    ids = np.array([0, 3])
    here = Neighbourhood.of(graph.edges, ids, "cpu", graph.weights)
    rows = whole_numbers(2).to(torch.float32)
    expected = graph.W.diagonal()[[0, 3]][:, None].float() * rows
    assert torch.equal(here.own(rows), expected)
    with pytest.raises(ValueError, match="own weights"):
        Neighbourhood.of(graph.edges, ids).own(rows)


def test_a_client_alone_has_no_weights_of_others():
    graph = Topology.complete(1).mixing("metropolis")
    alone = Neighbourhood.of(graph.edges, np.arange(1), weights=graph.weights)
    assert alone.weights.shape == (0, 1)
    assert alone.weights.dtype == torch.float64
    assert alone.own_weights.tolist() == [[1.0]]


def test_own_and_weighted_rows_are_what_mixing_gives():
    graph = Topology.star(5).mixing("metropolis")
    here = Neighbourhood.of(graph.edges, np.arange(5), weights=graph.weights)
    rows = torch.randn(5, 3)
    mixed = here.own(rows) + here.total_in(here.weighted(rows[here.in_source]))
    torch.testing.assert_close(mixed, graph.W.float() @ rows)
    assert mixed.dtype == rows.dtype
    with pytest.raises(ValueError, match="weights"):
        Neighbourhood.of(graph.edges, np.arange(5)).weighted(rows)
