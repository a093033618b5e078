"""Thresholds against high precision, ties, and the bounds of the law."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tacit import Misuse
from tacit.core import native
from tacit.core.discrete_gaussian import (
    BASE_LIMIT,
    BASE_SCALE,
    MAX_FACTOR,
    DiscreteGaussian,
    Table,
    base_table,
    exact_draw,
)

TABLE = base_table(torch.device("cpu"))
COMPILED = pytest.param(
    "compiled", marks=pytest.mark.skipif(not native.is_compiled(), reason="there was no C compiler")
)


@pytest.fixture(params=[COMPILED, "tensor operations"])
def either(request, monkeypatch):
    """With compiled loops and without them."""
    if request.param != "compiled":
        monkeypatch.setattr(native, "_library", lambda: None)
    return request.param


def never(row, at):
    raise AssertionError(f"word {at} of row {row} does not tie")


# --- The table -----------------------------------------------------------------------------------


def test_thresholds_are_those_of_high_precision():
    """All of them, rounded down from 200 digits."""
    with mpmath.workdps(200):
        rho = [mpmath.exp(mpmath.mpf(-k * k) / (2 * BASE_SCALE**2)) for k in range(BASE_LIMIT + 1)]
        total = 2 * mpmath.fsum(rho) - 1
        cumulative, expected = -rho[0], []
        for one in rho[:-1]:
            cumulative += 2 * one
            expected.append(int(mpmath.floor(mpmath.ldexp(cumulative / total, 127))))
    assert list(TABLE.thresholds) == expected


def test_the_words_of_the_table_are_its_thresholds():
    words = TABLE.words.to(torch.int64) & 0xFFFFFFFF
    joined = [sum(word << 96 - 32 * at for at, word in enumerate(row)) for row in words.tolist()]
    assert joined == list(TABLE.thresholds)
    assert TABLE.first_words.tolist() == words[:, 0].tolist()
    assert bool((TABLE.first_words >= 0).all())
    assert sorted(joined) == joined


# --- From words to numbers -----------------------------------------------------------------------


def magnitude_by_hand(table, word, further=()):
    """How many thresholds are at most the bits; None on a tie without further words."""
    bits = word & 0x7FFFFFFF
    if further:
        bits = bits << 96 | sum(one << 64 - 32 * at for at, one in enumerate(further))
        return sum(threshold <= bits for threshold in table)
    if any(threshold >> 96 == bits for threshold in table):
        return None
    return sum(threshold >> 96 < bits for threshold in table)


def test_numbers_around_every_threshold(either):
    """One below the first word of each threshold, one above, with both signs."""
    first = np.unique(TABLE.first_words.numpy()).astype(np.int64)
    magnitudes = np.setdiff1d(np.concatenate((first - 1, first + 1)), first)
    magnitudes = magnitudes[(magnitudes >= 0) & (magnitudes < 1 << 31)]
    expected = np.searchsorted(TABLE.first_words.numpy(), magnitudes, side="right")
    zero = np.zeros_like(magnitudes)
    for sign, bit in ((1, 0), (-1, 1 << 31)):
        pairs = np.stack((magnitudes | bit, zero), axis=1).reshape(1, -1)
        got = DiscreteGaussian(3).numbers(torch.from_numpy(pairs), never)
        assert got.dtype == torch.int32
        assert got[0].tolist() == (3 * sign * expected).tolist()
    assert len(magnitudes) > 8000


@settings(max_examples=50)
@given(words=st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=40), factor=st.integers(0, 9))
def test_numbers_of_any_words(words, factor):
    words = words[: len(words) // 2 * 2]
    rest = (7, 0, 2**32 - 1)
    drawn = [exact_draw(word, rest, TABLE) for word in words]
    expected = drawn
    if factor:
        expected = [factor * x + y for x, y in zip(drawn[::2], drawn[1::2], strict=True)]
    for bits in (torch.tensor([words]), torch.tensor([words]).to(torch.int32)):
        got = DiscreteGaussian(factor).numbers(bits, lambda row, at: rest)
        assert got[0].tolist() == expected
    for word, one in zip(words, drawn, strict=True):
        assert abs(one) == magnitude_by_hand(TABLE.thresholds, word, rest)
        assert one * (1 - 2 * (word >> 31)) >= 0


@pytest.mark.parametrize("m", [0, 1, 17, 1000, 2279, 2600, 3329, 5000, 6000])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_further_words_decide_ties(m, sign, shift, either):
    """All 127 bits of a threshold, one less and one more."""
    threshold = TABLE.thresholds[m]
    bits = threshold + shift
    word = bits >> 96 | (0 if sign > 0 else 1 << 31)
    rest = [bits >> 64 & 0xFFFFFFFF, bits >> 32 & 0xFFFFFFFF, bits & 0xFFFFFFFF]
    asked = []

    def further(row, at):
        asked.append((row, at))
        return rest if at in (4, 7) else (0, 0, 0)

    # Word 4 is X of number 2 in row 1, word 7 is Y of number 3.
    words = torch.ones(2, 10, dtype=torch.int64)
    words[1, 4] = words[1, 7] = word
    expected = sign * (m if shift < 0 else m + 1)
    got = DiscreteGaussian(5).numbers(words, further)
    assert got.tolist() == [[0] * 5, [0, 0, 5 * expected, expected, 0]]
    assert {(1, 4), (1, 7)} <= set(asked) <= {(1, 4), (1, 5), (1, 6), (1, 7)}


def test_the_largest_word_ties_with_many_thresholds(either):
    """Thresholds that differ only in further words."""
    first = TABLE.thresholds[-1] >> 96
    tied = [m for m in range(BASE_LIMIT) if TABLE.thresholds[m] >> 96 == first]
    assert first == 0x7FFFFFFF
    assert len(tied) > 5000
    for m in (tied[0], tied[100], tied[-1]):
        bits = TABLE.thresholds[m]
        rest = (bits >> 64 & 0xFFFFFFFF, bits >> 32 & 0xFFFFFFFF, bits & 0xFFFFFFFF)
        got = DiscreteGaussian(0).numbers(torch.tensor([[first]]), lambda row, at, rest=rest: rest)
        assert got.item() == m + 1
    largest = DiscreteGaussian(0).numbers(torch.tensor([[first]]), lambda row, at: (2**32 - 1,) * 3)
    assert largest.item() == BASE_LIMIT


@settings(max_examples=60)
@given(st.data())
def test_compiled_loops_find_their_way_in_any_table(data):
    """Tables with thresholds in few cells or many, at the ends of cells, and equal ones."""
    edge = st.integers(0, 2**13).map(lambda cell: (cell << 18) % 2**31)
    near = st.tuples(edge, st.integers(-2, 2)).map(lambda pair: min(max(sum(pair), 0), 2**31 - 1))
    tail = st.integers(0, 2**18).map(lambda back: 2**31 - 1 - back)
    first = st.one_of(st.integers(0, 2**31 - 1), near, tail)
    tops = sorted(data.draw(st.lists(first, min_size=1, max_size=40)))
    table = Table.of([top << 96 | at for at, top in enumerate(tops)])
    pool = st.one_of(first, st.sampled_from(tops), st.sampled_from(tops).map(lambda top: top ^ 1))
    words = data.draw(st.lists(pool, min_size=2, max_size=60))
    words = torch.tensor([words[: len(words) // 2 * 2]]).to(torch.int32)
    law = DiscreteGaussian(3)
    slow = law._by_tensor_operations(words, table)
    if native.is_compiled():
        quick = torch.empty_like(slow)
        native.integers_of_words((table.guide, table.words, 3), words, quick)
        assert torch.equal(quick, slow)
    x, y = (
        [magnitude_by_hand(table.thresholds, w) for w in words[0, at::2].tolist()] for at in (0, 1)
    )
    for got, one, two in zip(slow[0].tolist(), x, y, strict=True):
        assert got == (native.UNDECIDED if None in (one, two) else 3 * one + two)


# --- The law -------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [-1, 601, 1.0, True, None])
def test_factors_that_are_refused(factor):
    with pytest.raises(Misuse, match="factor of integer noise is"):
        DiscreteGaussian(factor)


@settings(max_examples=100)
@given(scale=st.floats(0, 614_000))
def test_the_smallest_noise_of_a_scale(scale):
    law = DiscreteGaussian.at_least(scale)
    assert law.variance >= Fraction(scale) ** 2
    if law.factor:
        assert DiscreteGaussian(law.factor - 1).variance < Fraction(scale) ** 2


def test_scales():
    assert DiscreteGaussian.at_least(0) == DiscreteGaussian.at_least(1024) == DiscreteGaussian(0)
    assert DiscreteGaussian.at_least(math.nextafter(1024.0, 2000.0)) == DiscreteGaussian(1)
    largest = DiscreteGaussian(MAX_FACTOR)
    assert largest.scale == pytest.approx(1024 * math.sqrt(360_001))
    assert DiscreteGaussian.at_least(math.nextafter(largest.scale, 0.0)) == largest
    with pytest.raises(Misuse, match="at most 614401: encode with a smaller scale"):
        DiscreteGaussian.at_least(614_402)
    with pytest.raises(Misuse, match="scale of integer noise is nan"):
        DiscreteGaussian.at_least(math.nan)


def test_numbers_fit_int32():
    assert (MAX_FACTOR + 1) * BASE_LIMIT < 2**31


def test_distances():
    for factor in (0, 1, 7, 300, 500):
        assert 0 < DiscreteGaussian(factor).distance(10**12) < 1e-20
    assert DiscreteGaussian(0).distance(0) == 0.0
    assert DiscreteGaussian(MAX_FACTOR).distance(10**12) < 1e-12
    assert DiscreteGaussian(MAX_FACTOR).distance(10**40) == 1.0
    one, many = (DiscreteGaussian(7).distance(draws) for draws in (1, 10**6))
    assert many == pytest.approx(10**6 * one)


def test_the_distance_is_at_least_that_of_the_table():
    """Of the table's own probabilities to those of the untruncated distribution, by mpmath."""
    with mpmath.workdps(80):
        bound = mpmath.mpf(DiscreteGaussian(0).distance(1))
        rho = [mpmath.exp(mpmath.mpf(-k * k) / (2 * BASE_SCALE**2)) for k in range(20 * BASE_SCALE)]
        total = 2 * mpmath.fsum(rho) - 1
        edges = [0, *TABLE.thresholds, 1 << 127]
        drawn = [mpmath.ldexp(high - low, -127) for low, high in pairwise(edges)]
        ideal = [(1 if k == 0 else 2) * one / total for k, one in enumerate(rho)]
        drawn += [mpmath.mpf(0)] * (len(ideal) - len(drawn))
        distance = mpmath.fsum(abs(p - q) for p, q in zip(drawn, ideal, strict=True)) / 2
        assert bound / 100 < distance <= bound
