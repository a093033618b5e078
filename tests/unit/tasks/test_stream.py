"""Streams: a batch is a pure function of seed, client and number, in any order."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tacit.core.workers import WorkerPool
from tacit.tasks import stream
from tacit.tasks.batches import one_chunk
from tacit.tasks.stream import Stream, normals, uniforms

CLIENTS = 6


def numbers(count=CLIENTS):
    """A stream whose batches are the drawn numbers, and the constant plus the batch number."""
    constants = (10.0 * torch.arange(count),)
    return Stream(constants, 3, lambda number, drawn, constant: (drawn, constant + number))


def batch(source, number, ids=None, positions=None, seed=0, chunk=100):
    ids = torch.arange(source.clients) if ids is None else torch.tensor(ids)
    loader = source.loader(ids, ids if positions is None else torch.tensor(positions), seed, "cpu")
    pool = WorkerPool(1)
    groups = [
        (rows, load())
        for rows, load in loader.chunks(number, lambda count: pool.split(count, chunk))
    ]
    assert torch.equal(
        torch.cat([torch.arange(len(ids))[rows] for rows, _ in groups]), torch.arange(len(ids))
    )
    return [torch.cat(column) for column in zip(*(arrays for _, arrays in groups), strict=True)]


@settings(max_examples=30)
@given(st.sets(st.integers(0, CLIENTS - 1), min_size=1), st.integers(0, 10_000), st.integers(1, 7))
def test_a_batch_does_not_depend_on_other_hosted_clients(hosted, number, chunk):
    ids = sorted(hosted)
    everyone, some = batch(numbers(), number), batch(numbers(), number, ids, chunk=chunk)
    for one, all_of_them in zip(some, everyone, strict=True):
        assert torch.equal(one, all_of_them[ids])


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=6))
def test_a_batch_is_a_function_of_its_number_alone(order):
    ids = torch.arange(CLIENTS)
    in_any_order = numbers().loader(ids, ids, 0, "cpu")
    for number in order:
        ((_, load),) = in_any_order.chunks(number, one_chunk)
        for one, fresh in zip(load(), batch(numbers(), number), strict=True):
            assert torch.equal(one, fresh)


def test_prefetching_does_not_change_batches(monkeypatch):
    before = [batch(numbers(), number)[0] for number in range(9)]
    for ahead in (1, 18, 40):
        monkeypatch.setattr(stream, "PREFETCH", ahead)
        for number, one in enumerate(before):
            assert torch.equal(batch(numbers(), number)[0], one)


def test_the_numbers_are_those_of_seed_client_and_batch():
    drawn = {
        tuple(row.tolist())
        for seed in (0, 1)
        for number in (0, 1, 7000)
        for row in batch(numbers(), number, seed=seed)[0]
    }
    assert len(drawn) == 2 * 3 * CLIENTS


def test_positions_select_constants_and_ids_key_numbers():
    drawn, constants = batch(numbers(), 4, ids=[5, 2], positions=[0, 1])
    assert torch.equal(drawn, batch(numbers(), 4)[0][[5, 2]])
    assert constants.tolist() == [4.0, 14.0]


def test_a_stream_of_no_numbers_is_not_random():
    still = Stream((torch.arange(3.0),), 0, lambda number, drawn, constant: (constant * number,))
    assert batch(still, 2)[0].tolist() == [0, 2, 4]
    assert torch.equal(batch(still, 5, seed=1)[0], batch(still, 5)[0])


def test_clients_steps_and_numbers_of_a_stream():
    source = numbers()
    assert (source.clients, source.steps_per_epoch, source.batch_numel) == (CLIENTS, 1, 4)


def test_uniform_and_normal_numbers_have_their_laws():
    ids = torch.arange(500)
    uniform, normal = uniforms(1, 0, ids, 200), normals(1, 0, ids, 200)
    assert 0 < float(uniform.min()) < float(uniform.max()) < 1
    assert float(uniform.mean()) == pytest.approx(1 / 2, abs=0.004)
    assert float(uniform.var()) == pytest.approx(1 / 12, rel=0.02)
    assert float(normal.mean()) == pytest.approx(0, abs=0.015)
    assert float(normal.var()) == pytest.approx(1, rel=0.02)
    assert float((normal**4).mean()) == pytest.approx(3, rel=0.04)
    # Rows and columns are independent: sample correlations are of the size 1/√n.
    assert float(torch.corrcoef(normal).fill_diagonal_(0).abs().max()) < 6 / 200**0.5
    assert float(torch.corrcoef(normal.T).fill_diagonal_(0).abs().max()) < 6 / 500**0.5
