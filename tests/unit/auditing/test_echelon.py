import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.auditing.symbolic.echelon import Echelon


def filled(rows, *cuts):
    """The rows taken in block by block."""
    echelon = Echelon(rows.shape[1])
    for block in np.split(rows, sorted(cuts)):
        echelon.add(block)
    return echelon


def reproduced(echelon, rows, target):
    """The target's share inside the span, rebuilt from the rows by the combination that is given."""
    coefficients = echelon.combination((echelon.basis @ target)[None])
    return coefficients[0] @ rows[echelon.pivots]


def low_rank(rng, rows, columns, rank):
    return rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_rank_span_and_combinations_are_those_of_dense_algebra(seed, data):
    rng = np.random.default_rng(seed)
    k, columns = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 20))
    rank = data.draw(st.integers(1, min(k, columns)))
    rows = low_rank(rng, k, columns, rank) * 10.0 ** rng.integers(-6, 7, size=(k, 1))  # of any size
    echelon = filled(rows, *data.draw(st.lists(st.integers(0, k), max_size=4)))
    assert echelon.rank == len(set(echelon.pivots)) == len(echelon.sizes) == rank
    np.testing.assert_allclose(echelon.basis @ echelon.basis.T, np.eye(rank), atol=1e-12)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(unit @ echelon.basis.T @ echelon.basis, unit, atol=1e-8)
    target = rng.normal(size=k) @ unit
    np.testing.assert_allclose(reproduced(echelon, rows, target), target, rtol=0, atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_neither_order_nor_blocks_change_the_span(seed, data):
    rng = np.random.default_rng(seed)
    rows = low_rank(rng, 24, 16, data.draw(st.integers(1, 15)))
    order = rng.permutation(24)
    ways = [
        filled(rows),
        filled(rows, *range(1, 24)),
        filled(rows[order]),
        filled(rows[order], 3, 11),
    ]
    targets = np.concatenate((rows, rng.normal(size=(3, 16))))
    known = [np.linalg.norm(way.basis @ targets.T, axis=0) for way in ways]
    assert len({way.rank for way in ways}) == 1
    for other in known[1:]:
        np.testing.assert_allclose(other, known[0], rtol=0, atol=1e-9)


def test_what_was_said_before_is_a_pivot_and_what_repeats_it_is_not():
    echelon = filled(np.array([[0.0, 0], [2, 0], [-1, 0], [0, 0], [3, 4], [1, 1]]), 1, 3, 5)
    assert (echelon.rank, echelon.pivots) == (2, [1, 4])
    assert echelon.sizes == pytest.approx([2, 5])


def test_nothing_and_zeros_say_nothing():
    echelon = Echelon(3)
    echelon.add(np.zeros((0, 3)))
    echelon.add(np.zeros((4, 3)))
    assert echelon.rank == 0
    assert echelon.basis.shape == (0, 3)
    echelon.add(np.array([[0.0, 0, 7]]))
    assert echelon.pivots == [4]  # rows that said nothing are counted


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("extra", "rank"), [(1e-3, 2), (1e-6, 2), (3e-8, 2), (1e-11, 1), (0.0, 1)])
def test_a_small_addition_is_heard_and_rounding_is_not(extra, rank, together):
    rng = np.random.default_rng(0)
    common, secret = np.linalg.qr(rng.normal(size=(12, 2)))[0].T
    rows = np.stack([5 * common, 1e4 * (common + extra * secret)])
    echelon = filled(rows) if together else filled(rows, 1)
    assert echelon.rank == rank
    inside = float(np.linalg.norm(echelon.basis @ secret))
    assert inside == pytest.approx(rank - 1, abs=1e-6)
    if rank == 2:
        np.testing.assert_allclose(reproduced(echelon, rows, secret), secret, atol=1e-13 / extra)


def test_many_small_additions_in_one_block():
    """Messages that hardly differ, as those of a short step do: every difference is found, and exactly."""
    rng = np.random.default_rng(1)
    common, *secrets = np.linalg.qr(rng.normal(size=(40, 13)))[0].T
    powers = [2, 2.9, 4, 6] * 3
    said = [common + 10.0**-power * secret for power, secret in zip(powers, secrets, strict=True)]
    rows = np.stack([common, *said])
    for echelon in (filled(rows), filled(rows, 4, 5), filled(rows[::-1].copy())):
        assert echelon.rank == 13
        np.testing.assert_allclose(echelon.basis @ echelon.basis.T, np.eye(13), rtol=0, atol=1e-13)
        assert np.linalg.norm(echelon.basis @ np.stack(secrets).T, axis=0) == pytest.approx(
            1, abs=1e-7
        )


def test_it_grows_beyond_its_first_size_and_takes_narrow_blocks():
    """Early messages have fewer unknowns: their rows are shorter."""
    rng = np.random.default_rng(2)
    narrow, wide = rng.normal(size=(30, 50)), rng.normal(size=(150, 200))
    echelon = Echelon(200)
    echelon.add(narrow)
    echelon.add(wide)
    rows = np.concatenate((np.pad(narrow, ((0, 0), (0, 150))), wide))
    assert echelon.rank == 180
    target = rng.normal(size=180) @ rows
    np.testing.assert_allclose(reproduced(echelon, rows, target), target, rtol=1e-8, atol=1e-8)
