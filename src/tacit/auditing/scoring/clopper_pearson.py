"""Exact limits of a probability after some successes in independent trials."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]


def clopper_pearson(hits: int | NDArray[np.int64], total: int, tail: float) -> tuple[Array, Array]:
    """Clopper–Pearson limits of a probability, each wrong with probability at most `tail`.

    Args:
        hits: Successes, a number or an array.
        total: Trials.
        tail: The probability that a limit is wrong.
    """
    hits = np.asarray(hits)
    low = np.where(hits == 0, 0.0, special.betaincinv(np.maximum(hits, 1), total - hits + 1, tail))
    high = np.where(
        hits == total, 1.0, special.betainccinv(hits + 1, np.maximum(total - hits, 1), tail)
    )
    return low, high
