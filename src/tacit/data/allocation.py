"""Integer allocation: how many samples each client gets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

# Outside of these bounds a Dirichlet draw is practically equal or one-sided, and floats overflow.
_MIN_ALPHA, _MAX_ALPHA = 1e-5, 1e8


def split_evenly(total: int, parts: int) -> Counts:
    """Divide `total` into `parts` that differ by at most one."""
    counts = np.full(parts, total // parts, dtype=np.int64)
    counts[: total % parts] += 1
    return counts


def split_dirichlet(total: int, parts: int, alpha: float, rng: np.random.Generator) -> Counts:
    """Divide `total` in proportions drawn from the symmetric Dirichlet distribution."""
    proportions = rng.dirichlet(np.full(parts, min(max(alpha, _MIN_ALPHA), _MAX_ALPHA)))
    ends = np.floor(np.cumsum(proportions) * total + 0.5).astype(np.int64)
    ends[-1] = total
    return np.diff(np.minimum(ends, total), prepend=0)


def split_proportionally(total: int, weights: Counts, most: Counts) -> Counts:
    """Divide `total` in proportion to `weights`, with at least 1 and at most `most` each.

    D'Hondt's method, because it maximises the smallest weight per share: here, the smallest shard.
    """
    total = int(min(total, most.sum()))

    def counts_at(rate: float) -> Counts:
        counts: Counts = np.clip(np.floor(rate * weights).astype(np.int64), 1, most)
        return counts

    # Weights are at least 1, so the upper rate gives everyone the most.
    low, high = 0.0, float(total + 1)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if counts_at(middle).sum() <= total else (low, middle)
    counts = counts_at(low)
    # What is left are ties, fewer than there are weights.
    while counts.sum() < total:
        claims = np.where(counts < most, weights / (counts + 1), -1.0)
        counts[int(claims.argmax())] += 1
    return counts


def take_from_largest(sizes: Counts, available: Counts, amount: int) -> Counts:
    """How many to take from each, `amount` in total, so that the largest sizes shrink first.

    All sizes above a common level shrink to it, as far as `available` allows.
    """

    def taken_above(level: int) -> Counts:
        return np.clip(sizes - level, 0, available)

    low, high = int(sizes.min(initial=0)) - 1, int(sizes.max(initial=0))
    while high - low > 1:
        level = (low + high) // 2
        low, high = (level, high) if taken_above(level).sum() >= amount else (low, level)
    taken = taken_above(low)
    # The last level takes one too many from some.
    surplus = int(taken.sum()) - amount
    taken[np.flatnonzero(taken > taken_above(low + 1))[:surplus]] -= 1
    return taken


def raise_to_minimum(sizes: Counts, minimum: int) -> Counts:
    """Sizes with the same sum that are all at least `minimum`; the largest sizes shrink."""
    lacking = np.maximum(minimum - sizes, 0)
    spare = np.maximum(sizes - minimum, 0)
    return sizes + lacking - take_from_largest(sizes, spare, int(lacking.sum()))


def fill_in_order(room: Counts, amount: int) -> Counts:
    """Distribute `amount` over the rooms, the first room first."""
    filled: Counts = np.clip(amount - (np.cumsum(room) - room), 0, room)
    return filled
