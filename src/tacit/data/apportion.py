"""Sharing whole numbers: the arithmetic of the partitions, all vectorised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

_MILDEST, _HARSHEST = 1e8, 1e-5
"""Beyond these concentrations a Dirichlet draw is all but equal or one-sided, and floats overflow."""


def equal_shares(total: int, parts: int) -> Counts:
    """Divide `total` into `parts` that differ by at most one."""
    shares = np.full(parts, total // parts, dtype=np.int64)
    shares[: total % parts] += 1
    return shares


def dirichlet_shares(total: int, parts: int, alpha: float, rng: np.random.Generator) -> Counts:
    """Divide `total` in proportions drawn from the symmetric Dirichlet law."""
    proportions = rng.dirichlet(np.full(parts, min(max(alpha, _HARSHEST), _MILDEST)))
    ends = np.floor(np.cumsum(proportions) * total + 0.5).astype(np.int64)
    ends[-1] = total
    return np.diff(np.minimum(ends, total), prepend=0)


def proportional_shares(total: int, weights: Counts, most: Counts) -> Counts:
    """Divide `total` like `weights` (D'Hondt's rule), with at least 1 and at most `most` each.

    D'Hondt makes the smallest weight per share as large as possible: here, the smallest shard.
    """
    least = np.ones_like(weights)
    total = int(min(total, most.sum()))

    def shares_at(rate: float) -> Counts:
        shares: Counts = np.clip(np.floor(rate * weights).astype(np.int64), least, most)
        return shares

    low, high = 0.0, float(total + 1)  # weights are at least 1, so `high` gives everyone the most
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if shares_at(middle).sum() <= total else (low, middle)
    shares = shares_at(low)
    while shares.sum() < total:  # ties at the last step, fewer than there are weights
        claims = np.where(shares < most, weights / (shares + 1), -1.0)
        shares[int(claims.argmax())] += 1
    return shares


def take_from_largest(sizes: Counts, available: Counts, amount: int) -> Counts:
    """Return how many to take from each so that `amount` comes together and the largest give first.

    Everyone above a common level comes down to it, as far as `available` lets them.
    """

    def taken_above(level: int) -> Counts:
        return np.clip(sizes - level, 0, available)

    low, high = int(sizes.min(initial=0)) - 1, int(sizes.max(initial=0))
    while high - low > 1:
        level = (low + high) // 2
        low, high = (level, high) if taken_above(level).sum() >= amount else (low, level)
    taken = taken_above(low)
    surplus = int(taken.sum()) - amount
    # The last step down took one too many from some: they keep it.
    keepers = np.flatnonzero(taken > taken_above(low + 1))[:surplus]
    taken[keepers] -= 1
    return taken


def raise_to(sizes: Counts, minimum: int) -> Counts:
    """Return sizes of the same sum that are all at least `minimum`; the largest pay (sum suffices)."""
    lacking = np.maximum(minimum - sizes, 0)
    return (
        sizes
        + lacking
        - take_from_largest(sizes, np.maximum(sizes - minimum, 0), int(lacking.sum()))
    )


def fill_in_order(room: Counts, amount: int) -> Counts:
    """Hand out `amount`, filling the first room first."""
    handed: Counts = np.clip(amount - (np.cumsum(room) - room), 0, room)
    return handed
