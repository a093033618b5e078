"""Laws of privacy losses on a uniform grid, always pessimistic.

A part of the output space with masses (p, q) under (P, Q) and losses in [a, b], b = a + h, is
replaced by

    p_b = (p − e^a q) / (1 − e^{−h}) at loss b,   p_a = p − p_b at loss a

which keeps both masses. The new pair is at least as easy to distinguish as the true one: its δ, as
a function of e^ε, is the chord of the true convex one between grid points (Doroshenko et al. 2022,
"connect the dots"). Rounding every loss up would be pessimistic too, but off by h/2 for every use,
where this is off by O(h²).

Steps are powers of two: losses are exact numbers, and a grid is part of every finer one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.core.checks import check_positive
from tacit.privacy.accounting.noise_pair import LARGEST_EXPONENT, Array


def grid_step(most: float) -> float:
    """The largest power of two that is at most this."""
    check_positive("The step of a grid of losses", most)
    return 2.0 ** max(math.floor(math.log2(most)), -500)


def spread_cells(p: Array, q: Array, first: int, step: float) -> Array:
    """Masses [m + 1] at grid points first, first + 1, … from the cells between them.

    Args:
        p: Masses of the m cells under P.
        q: Masses of the m cells under Q.
        first: The first grid point, in steps.
        step: The step of the grid.
    """
    a = (first + np.arange(len(p))) * step
    # A number below e^a moves more mass up, which is pessimistic.
    scale = np.exp(np.minimum(a, LARGEST_EXPONENT))
    up = np.clip((p - scale * q) / -math.expm1(-step), 0.0, p)
    at = np.zeros(len(p) + 1)
    at[:-1] += p - up
    at[1:] += up
    return at


def spread_atoms(losses: Array, p: Array, step: float) -> tuple[int, Array]:
    """First grid point and masses from single losses ℓ of mass p under P, so e^{−ℓ} p under Q."""
    below = np.floor(losses / step)
    up = p * np.clip(np.expm1(below * step - losses) / math.expm1(-step), 0.0, 1.0)
    index: NDArray[np.int64] = below.astype(np.int64)
    first = int(index.min())
    index -= first
    at: Array = np.bincount(index, p - up, minlength=int(index.max()) + 2).astype(np.float64)
    at[1:] += np.bincount(index, up, minlength=len(at) - 1)
    return first, at


def trim(first: int, at: Array, tail: float) -> tuple[int, Array, float]:
    """Cut up to `tail` of mass from each end: the lower part moves up, the upper is returned."""
    positive = np.flatnonzero(at > 0)
    if len(positive) == 0:
        return 0, np.zeros(1), 0.0
    first, at = first + int(positive[0]), at[positive[0] : positive[-1] + 1]
    above = int(np.searchsorted(np.cumsum(at[::-1]), tail, side="right"))
    end = max(len(at) - above, 1)
    lost = float(at[end:].sum())
    at = at[:end]
    start = min(int(np.searchsorted(np.cumsum(at), tail, side="right")), len(at) - 1)
    kept = at[start:].copy()
    kept[0] += at[:start].sum()
    return first + start, kept, lost


def window(at: Array, count: int, tail: float) -> tuple[int, int]:
    """Indices that a sum of `count` draws from `at` exceeds with probability ≤ tail on each side.

    Chernoff: P(S ≥ nm + t) ≤ tail for t = min over λ of (n log E e^{λ(X − m)} − log tail)/λ.
    """
    index = np.arange(len(at), dtype=np.float64)
    p = at / at.sum()
    mean = float((p * index).sum())
    deviation = math.sqrt(float((p * (index - mean) ** 2).sum()))
    last = count * (len(at) - 1)
    if deviation == 0:
        return round(count * mean), round(count * mean)
    need = -math.log(tail)

    def reach(sign: float) -> float:
        """The bound for the best λ, which is searched twice: widely, then nearby."""
        deviations = sign * (index - mean)
        # Rounding may leave no difference to the mean.
        longest = max(float(deviations.max()), deviation)

        def bound(rate: float) -> float:
            # Relative to the largest term; what would underflow is rounded up.
            terms = np.exp(np.maximum(rate * (deviations - longest), -600.0))
            log_moment = rate * longest + math.log(float((p * terms).sum()))
            return (count * log_moment + need) / rate

        # That of a Gaussian; and where one draw is likely to be the sum.
        usual, least = math.sqrt(2 * need / count) / deviation, need / (2 * longest)
        rates = np.geomspace(min(usual, least) / 4, 8 * usual, 12)
        bounds = [bound(rate) for rate in rates]
        best = int(np.argmin(bounds))
        near = np.geomspace(rates[max(best - 1, 0)], rates[min(best + 1, 11)], 7)
        return min(*bounds, *(bound(rate) for rate in near))

    low = max(math.floor(count * mean - reach(-1.0)), 0)
    return low, min(math.ceil(count * mean + reach(1.0)), last)
