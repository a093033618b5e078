"""Combinations of masked messages in which all masks cancel."""

import numpy as np
import pytest

from tacit.auditing.bounds.unmasked import without_masks


def test_iterations_with_masks_of_their_own_are_combined_each_by_itself():
    """So that a combination is known when its iteration has ended."""
    block = np.array([[1.0, 0], [-1, 1], [0, -1]])
    masks = np.kron(np.eye(4), block)
    rows, made_of = without_masks(np.eye(12), masks)
    assert made_of == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    np.testing.assert_allclose(rows, np.kron(np.eye(4), np.ones((1, 3))), atol=1e-12)


def test_coefficients_are_simple():
    """Five clients on a path: what the middle one sees of both sides."""
    # Masks of the edges 0-1, 1-2, 2-3, 3-4, the middle ones known and left out.
    masks = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    rows, _ = without_masks(np.eye(4), masks)
    np.testing.assert_allclose(sorted(rows.tolist()), [[0, 0, 1, 1], [1, 1, 0, 0]])


@pytest.mark.parametrize("seed", range(8))
def test_they_span_all_combinations_without_masks(seed):
    rng = np.random.default_rng(seed)
    messages, unknowns, hidden = 9, 12, 5
    matrix = rng.normal(size=(messages, unknowns))
    masks = rng.integers(-1, 2, size=(messages, hidden)).astype(float)
    masks[3] = 0
    rows, made_of = without_masks(matrix, masks)
    assert len(rows) == len(made_of)
    # Messages without masks come first, as they are.
    plain = np.flatnonzero(~masks.any(axis=1))
    assert made_of[: len(plain)] == [[k] for k in plain]
    np.testing.assert_array_equal(rows[: len(plain)], matrix[plain])
    # Every row is a combination of messages whose masks cancel …
    both = np.hstack([matrix, masks])
    padded = np.hstack([rows, np.zeros((len(rows), hidden))])
    combined, *_ = np.linalg.lstsq(both.T, padded.T, rcond=None)
    np.testing.assert_allclose(both.T @ combined, padded.T, atol=1e-8)
    # … of the messages it is said to be made of …
    for row, made in zip(rows, made_of, strict=True):
        some, *_ = np.linalg.lstsq(both[made].T, np.append(row, np.zeros(hidden)), rcond=None)
        np.testing.assert_allclose(both[made].T @ some, np.append(row, np.zeros(hidden)), atol=1e-8)
    # … and there are no others.
    assert np.linalg.matrix_rank(rows) == messages - np.linalg.matrix_rank(masks)
