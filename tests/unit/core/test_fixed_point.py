import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit import Topology
from tacit.core import fixed_point, native
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.fixed_point import (
    LARGEST_TOTAL,
    MASK,
    MODULUS,
    FixedPoint,
    IntegerRows,
    summed,
    wrapped,
)
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.randomness import Philox
from tacit.core.workers import WorkerPool

CODE = FixedPoint(scale=1000.0)
# Positions of integers within the range, and the numbers that they stand for.
numbers = st.floats(-1000, 1000)


@given(st.lists(numbers, min_size=1, max_size=8), st.sampled_from([torch.float32, torch.float64]))
def test_numbers_are_rounded_to_the_nearest_integer(values, dtype):
    rows = torch.tensor([values], dtype=dtype)
    encoded = CODE.encode(rows)
    assert encoded.dtype == torch.int32
    expected = [round(1000 * float(x)) for x in rows[0]]
    assert encoded[0].tolist() == expected
    decoded = CODE.decode(encoded, torch.float64)
    assert float((decoded - rows.double()).abs().max()) <= 0.5 / 1000 + 1e-12


@given(st.lists(numbers, min_size=2, max_size=6))
def test_the_sum_of_integers_is_the_sum_of_numbers_up_to_rounding(values):
    rows = torch.tensor(values, dtype=torch.float64)[:, None]
    total = CODE.decode(wrapped(CODE.encode(rows).sum(0)), torch.float64)
    assert float(total) == pytest.approx(sum(values), abs=0.5 * len(values) / 1000 + 1e-9)


@pytest.mark.parametrize("tile", [1, 7, 12, 10**6])
def test_tiles_change_nothing(tile, monkeypatch):
    monkeypatch.setattr(fixed_point, "TILE", tile)
    rows = torch.arange(30, dtype=torch.float64).reshape(6, 5) - 12.3
    encoded = FixedPoint(10.0).encode(rows)
    assert torch.equal(encoded, (10 * rows).round().int())
    large = encoded * 10_000_000
    assert torch.equal(summed(large), large.long().sum(0, keepdim=True))
    assert torch.equal(summed(encoded[:0]), torch.zeros(1, 5, dtype=torch.int64))
    message = misuse_message(FixedPoint(10.0, limit=150).encode, rows)
    assert_mentions(message, "has passed 15")


def test_halves_go_to_even_integers_and_rows_are_left_as_they_are():
    rows = torch.tensor([[0.5, 1.5, -0.5, -2.5]])
    assert FixedPoint(1.0).encode(rows).tolist() == [[0, 2, 0, -2]]
    assert rows.tolist() == [[0.5, 1.5, -0.5, -2.5]]


def test_what_is_not_a_number_counts_as_the_limit():
    code = FixedPoint(1.0, limit=7)
    rows = torch.tensor([[math.nan, 7.4, -7.0, 0.0]])
    assert code.encode(rows).tolist() == [[7, 7, -7, 0]]


@pytest.mark.parametrize("value", [7.6, -8.0, math.inf, -math.inf])
def test_numbers_beyond_the_limit_stop_a_run(value):
    message = misuse_message(FixedPoint(0.5, limit=3).encode, torch.tensor([[0.0, value]]))
    assert_mentions(message, "has passed 6", "range", "Lower the learning rate")


@pytest.mark.parametrize(
    "total", [LARGEST_TOTAL + 1, -LARGEST_TOTAL - 1, 2**31 - 1, -(2**31), 1 - 2**31]
)
def test_a_total_close_to_the_end_of_the_range_stops_a_run(total):
    rows = torch.tensor([[0, total]], dtype=torch.int32)
    assert_mentions(misuse_message(CODE.decode, rows, torch.float32), "A total has passed 1.07e+06")


@pytest.mark.parametrize("total", [LARGEST_TOTAL, -LARGEST_TOTAL, 0, -1])
def test_a_total_within_the_range_is_read_as_a_signed_number(total):
    rows = torch.tensor([[total]], dtype=torch.int32)
    assert CODE.decode(rows, torch.float64).tolist() == [[total / 1000]]
    assert CODE.decode(rows, torch.float32).dtype == torch.float32


def test_units_of_noise_and_modulus():
    assert CODE.modulus == MODULUS / 1000
    assert CODE.noise_deviation == 0
    assert FixedPoint(1000.0, DiscreteGaussian(3)).noise_deviation == pytest.approx(
        1.024 * math.sqrt(10)
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": 0.0}, "The scale of integers is 0.0"),
        ({"scale": math.inf}, "The scale of integers is inf"),
        ({"scale": -1.0}, "The scale of integers is -1.0"),
        ({"scale": 1.0, "limit": 0}, "The limit of integers is 0"),
        ({"scale": 1.0, "limit": 1.5}, "The limit of integers is 1.5"),
    ],
)
def test_impossible_codes(options, words):
    assert_mentions(misuse_message(FixedPoint, **options), words)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5))
def test_integers_are_taken_modulo_two_to_the_32(values):
    found = wrapped(torch.tensor(values))
    assert found.dtype == torch.int32
    assert [x % MODULUS for x in found.tolist()] == [x % MODULUS for x in values]


def test_numbers_of_audits_are_left_as_they_are():
    rows = torch.tensor([[2.0**40 + 0.5]], dtype=torch.float64)
    assert wrapped(rows) is rows


def ring_rows(integers, tag="x", tick=1):
    graph = Topology.ring(len(integers)).mixing("metropolis")
    hood = Neighbourhood.of(graph.edges, np.arange(len(integers)))

    def masks():
        return Philox(5, integers.shape[1]).masks(tag, tick, *hood.edge_ends)

    return IntegerRows(
        tuple(integers.shape),
        lambda: integers,
        hood,
        masks,
        None,
        lambda total: total,
        float(MODULUS),
    )


def test_masks_are_added_by_the_smaller_end_and_cancel():
    integers = torch.randint(-(2**31), 2**31 - 1, (4, 6), dtype=torch.int32)
    sent = ring_rows(integers)
    masked, masks, hood = sent.masked(), sent.masks(), sent.graph
    ends = zip(hood.out_source.tolist(), hood.out_target.tolist(), strict=True)
    by_edge = {edge: masks[k].tolist() for k, edge in enumerate(ends)}
    assert all(by_edge[i, j] == by_edge[j, i] for i, j in by_edge)
    for i in range(4):
        for k in range(6):
            signed = [(1 if i < j else -1) * mask[k] for (s, j), mask in by_edge.items() if s == i]
            expected = int(integers[i, k]) + sum(signed)
            assert int(masked[i, k]) % MODULUS == expected % MODULUS
    assert not (masked == integers).any(1).all()
    assert torch.equal(wrapped(masked.sum(0)), wrapped(integers.sum(0)))


def test_other_tags_and_ticks_have_other_masks():
    zero = torch.zeros(3, 8, dtype=torch.int32)
    first = ring_rows(zero).masked()
    assert torch.equal(first, ring_rows(zero).masked())
    assert not torch.equal(first, ring_rows(zero, tag="y").masked())
    assert not torch.equal(first, ring_rows(zero, tick=2).masked())


def test_masks_in_audits_are_numbers_of_any_size():
    u = torch.tensor([1e-6, 0.25, 0.5, 0.75, 1 - 1e-6], dtype=torch.float64)
    small, low, middle, high, large = MASK.quantile(u).tolist()
    assert small < -1e5 < low < middle < high < 1e5 < large
    assert (low, middle, high) == pytest.approx((-1, 0, 1))
    assert MASK.variance == math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (40, 5000)])
def test_the_sum_of_encoded_rows_is_the_sum_of_their_integers(dtype, compiled, shape, monkeypatch):
    if not compiled:
        monkeypatch.setattr(native, "_library", lambda: None)
    code = FixedPoint(1234.5)
    rows = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    rows[0, 0] = math.nan
    rows[-1, -1] = 2.5 / code.scale
    found = code.encoded_sum(rows, WorkerPool(2))
    assert found.dtype == torch.int64
    assert torch.equal(found, code.encode(rows).sum(0, keepdim=True, dtype=torch.int64))


@pytest.mark.parametrize("large", [1e9, -1e9, math.inf, -math.inf])
def test_the_sum_refuses_what_is_out_of_range(large):
    rows = torch.zeros(3, 70)
    rows[1, 66] = large
    with pytest.raises(Misuse, match="A number to be summed has passed"):
        FixedPoint(1e3).encoded_sum(rows, WorkerPool(2))


@pytest.mark.parametrize("large", [1e9, -1e9, math.inf, math.nan])
def test_with_noise_no_error_tells_of_a_number_out_of_range(large):
    code = FixedPoint(1e3, DiscreteGaussian(0))
    rows = torch.zeros(2, 5)
    rows[1, 3] = large
    limit = math.copysign(code.limit, large) if large == large else code.limit
    assert code.encode(rows)[1, 3] == limit
    assert code.encoded_sum(rows, WorkerPool(1))[0, 3] == limit


def test_rows_are_added_up_at_once_unless_their_integers_are_known():
    rows = torch.arange(6).view(2, 3)
    sent = IntegerRows(
        (2, 3), lambda: rows, None, None, None, None, 1.0, add_up=lambda: rows.sum(0)[None] + 100
    )
    assert sent.total().tolist() == [[103, 105, 107]]
    assert sent.with_integers(rows + 1).total().tolist() == [[5, 7, 9]]
    assert sent.integers is rows
    assert sent.total().tolist() == [[3, 5, 7]]


@dataclass(frozen=True)
class ReusesMasks(tacit.DSG):
    """Masks rows with the tag of the sums before training."""

    name: ClassVar[str] = "reuses-masks"

    def step(self, s, here):
        here.fixed_point(f"{fixed_point.RESERVED} columns", s.theta, CODE)
        return super().step(s, here)


def test_an_algorithm_cannot_use_masks_of_other_sums():
    task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.zeros(3, 2))
    graph = Topology.ring(3).mixing("metropolis")
    message = misuse_message(tacit.run, task, ReusesMasks(lr=0.1), graph, steps=1)
    assert_mentions(message, "reserved for sums")
