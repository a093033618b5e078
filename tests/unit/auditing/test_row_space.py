import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tacit.auditing.symbolic.row_space import RowSpace


def filled(rows, *cuts):
    """The space of rows that are added block by block."""
    space = RowSpace(rows.shape[1])
    for block in np.split(rows, sorted(cuts)):
        space.add(block)
    return space


def reproduced(space, rows, target):
    """The part of the target inside the span, computed as a combination of the rows."""
    coefficients = space.combination((space.basis @ target)[None])
    return coefficients[0] @ rows[space.pivots]


def low_rank(rng, rows, columns, rank):
    return rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_rank_span_and_combinations_agree_with_dense_algebra(seed, data):
    rng = np.random.default_rng(seed)
    k, columns = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 20))
    rank = data.draw(st.integers(1, min(k, columns)))
    rows = low_rank(rng, k, columns, rank) * 10.0 ** rng.integers(-6, 7, size=(k, 1))  # of any size
    space = filled(rows, *data.draw(st.lists(st.integers(0, k), max_size=4)))
    assert space.rank == len(set(space.pivots)) == len(space.sizes) == rank
    np.testing.assert_allclose(space.basis @ space.basis.T, np.eye(rank), atol=1e-12)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(unit @ space.basis.T @ space.basis, unit, atol=1e-8)
    target = rng.normal(size=k) @ unit
    np.testing.assert_allclose(reproduced(space, rows, target), target, rtol=0, atol=1e-7)


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


def test_only_rows_that_add_something_are_pivots():
    space = filled(np.array([[0.0, 0], [2, 0], [-1, 0], [0, 0], [3, 4], [1, 1]]), 1, 3, 5)
    assert (space.rank, space.pivots) == (2, [1, 4])
    assert space.sizes == pytest.approx([2, 5])


def test_zero_rows_add_nothing():
    space = RowSpace(3)
    space.add(np.zeros((0, 3)))
    space.add(np.zeros((4, 3)))
    assert space.rank == 0
    assert space.basis.shape == (0, 3)
    space.add(np.array([[0.0, 0, 7]]))
    assert space.pivots == [4]  # zero rows are counted


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("extra", "rank"), [(1e-3, 2), (1e-6, 2), (3e-8, 2), (1e-11, 1), (0.0, 1)])
def test_small_additions_count_and_rounding_does_not(extra, rank, together):
    rng = np.random.default_rng(0)
    common, secret = np.linalg.qr(rng.normal(size=(12, 2)))[0].T
    rows = np.stack([5 * common, 1e4 * (common + extra * secret)])
    space = filled(rows) if together else filled(rows, 1)
    assert space.rank == rank
    inside = float(np.linalg.norm(space.basis @ secret))
    assert inside == pytest.approx(rank - 1, abs=1e-6)
    if rank == 2:
        np.testing.assert_allclose(reproduced(space, rows, secret), secret, atol=1e-13 / extra)


def test_many_small_additions_in_one_block():
    """Messages of small steps hardly differ: every difference is found exactly."""
    rng = np.random.default_rng(1)
    common, *secrets = np.linalg.qr(rng.normal(size=(40, 13)))[0].T
    powers = [2, 2.9, 4, 6] * 3
    noisy = [common + 10.0**-power * secret for power, secret in zip(powers, secrets, strict=True)]
    rows = np.stack([common, *noisy])
    for space in (filled(rows), filled(rows, 4, 5), filled(rows[::-1].copy())):
        assert space.rank == 13
        np.testing.assert_allclose(space.basis @ space.basis.T, np.eye(13), rtol=0, atol=1e-13)
        assert np.linalg.norm(space.basis @ np.stack(secrets).T, axis=0) == pytest.approx(
            1, abs=1e-7
        )


def test_growth_and_narrow_blocks():
    """Rows of early messages are shorter: they have fewer unknowns."""
    rng = np.random.default_rng(2)
    narrow, wide = rng.normal(size=(30, 50)), rng.normal(size=(150, 200))
    space = RowSpace(200)
    space.add(narrow)
    space.add(wide)
    rows = np.concatenate((np.pad(narrow, ((0, 0), (0, 150))), wide))
    assert space.rank == 180
    target = rng.normal(size=180) @ rows
    np.testing.assert_allclose(reproduced(space, rows, target), target, rtol=1e-8, atol=1e-8)
