"""Randomized response: n signs, each kept with probability p = e^{ε₀}/(1 + e^{ε₀}).

A vector of d coordinates released in T rounds is n = Td uses in the worst case (every sign
differs), and pure ε = nε₀. With J the number of flipped signs, J ~ Bin(n, 1 − p), the loss is
ε₀(n − 2J), so

    δ(ε) = Σ_{j: ε₀(n − 2j) > ε} P(J = j) (1 − e^{ε − ε₀(n − 2j)})

No n uses of any ε₀-private mechanism reveal more (Kairouz, Oh & Viswanath 2015), so this also
bounds those.

Up to 10¹⁰ uses the sum is exact over a window of 12 standard deviations; a Chernoff bound of the
rest is added. Beyond, the bound is Rényi's, with the divergence

    D_α = log(1 + 2 sinh(αε₀/2) sinh((α − 1)ε₀/2) / cosh(ε₀/2)) / (α − 1)   per use.

Any curve D_α of Rényi divergences (Mironov 2017; the sum of the curves for composition) gives, for
every order α > 1 (Canonne, Kamath & Steinke 2020, proposition 12; here for all real orders):

    ε = D_α + log((α − 1)/α) − (log δ + log α)/(α − 1)
    log δ = (α − 1)(D_α + log((α − 1)/α) − ε) − log α

Every order gives a bound, so an imperfect search over orders still gives one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, special, stats

from tacit.core.checks import check_count, check_number
from tacit.privacy.accounting.checks import check_delta, check_epsilon

MOST_EXACT = 10**10
# Relative. SciPy's probabilities are more accurate than this up to MOST_EXACT uses.
ACCURACY = 1e-9
# The grid of log(α − 1).
LOG_EXCESS = np.linspace(math.log(1e-6), math.log(1e9), 241)


def response_pure_epsilon(coordinate_epsilon: float, coordinates: int, rounds: int = 1) -> float:
    """Tdε₀: the pure ε of d coordinates released in T rounds."""
    check_epsilon(coordinate_epsilon)
    check_count("coordinates", coordinates)
    check_count("rounds", rounds)
    return rounds * coordinates * coordinate_epsilon


def response_method(uses: int) -> str:
    """How the bound for this number of uses is computed, in words."""
    check_count("uses", uses)
    return "exact binomial" if uses <= MOST_EXACT else "Rényi bound"


def response_delta(epsilon: float, coordinate_epsilon: float, uses: int) -> float:
    """An upper bound on δ(ε) of n uses with ε₀ each; exact up to rounding for 10¹⁰ uses."""
    check_epsilon(epsilon)
    pure = response_pure_epsilon(coordinate_epsilon, uses)
    if epsilon >= pure:
        return 0.0
    if uses > MOST_EXACT:
        return rdp_delta(lambda alpha: uses * response_rdp(alpha, coordinate_epsilon), epsilon)
    flip = float(special.expit(-coordinate_epsilon))
    # Where the loss is ε.
    edge = (uses - epsilon / coordinate_epsilon) / 2
    width = 12 * math.sqrt(uses * flip * (1 - flip)) + 60
    first = max(math.floor(min(edge, uses * flip) - width), 0)
    last = min(math.floor(edge), math.ceil(uses * flip + width))
    flips = np.arange(first, last + 1)
    kept = -np.expm1(-2 * coordinate_epsilon * np.maximum(edge - flips, 0.0))
    inside = float(stats.binom.pmf(flips, uses, flip) @ kept)
    outside = _beyond(first, uses, flip) if first > 0 else 0.0
    outside += _beyond(last, uses, flip) if last < math.floor(edge) else 0.0
    return min((1 + ACCURACY) * inside + outside, 1.0)


def response_epsilon(delta: float, coordinate_epsilon: float, uses: int) -> float:
    """The smallest ε with δ(ε) ≤ delta after n uses, from above; nε₀ for δ = 0."""
    check_delta(delta)
    pure = response_pure_epsilon(coordinate_epsilon, uses)
    if delta == 0 or pure == 0:
        return pure
    most = min(
        rdp_epsilon(lambda alpha: uses * response_rdp(alpha, coordinate_epsilon), delta), pure
    )
    if uses > MOST_EXACT:
        return most

    def excess(epsilon: float) -> float:
        return math.log(max(response_delta(epsilon, coordinate_epsilon, uses), 1e-320) / delta)

    if excess(0.0) <= 0:
        return 0.0
    # As good as exact when it is not enough after rounding.
    epsilon = most
    if excess(most) <= 0:
        epsilon = float(optimize.brentq(excess, 0.0, most, xtol=1e-12 * most, rtol=1e-12))
    while excess(epsilon) > 0:
        # To the safe side of the root.
        epsilon = min(epsilon * (1 + 1e-12), pure)
    return epsilon


def response_rdp(alpha: float, coordinate_epsilon: float) -> float:
    """D_α of one use, without cancellation for small ε₀ or overflow for large."""
    check_number("alpha", alpha, above=1, hint="the order of a Rényi divergence")
    check_epsilon(coordinate_epsilon)
    whole = alpha * coordinate_epsilon / 2
    rest = (alpha - 1) * coordinate_epsilon / 2
    half = coordinate_epsilon / 2
    if whole < 20:
        return math.log1p(2 * math.sinh(whole) * math.sinh(rest) / math.cosh(half)) / (alpha - 1)
    ends = math.log1p(math.exp(-2 * (whole + rest))) - math.log1p(math.exp(-2 * half))
    return (2 * rest + ends) / (alpha - 1)


def rdp_epsilon(rdp: Callable[[float], float], delta: float) -> float:
    """The best ε at δ that a curve α ↦ D_α gives."""
    check_delta(delta)
    if delta == 0:
        return math.inf

    def bound(alpha: float, excess: float) -> float:
        slack = (math.log(delta) + math.log(alpha)) / excess
        return rdp(alpha) - math.log1p(1 / excess) - slack

    return max(_least(bound), 0.0)


def rdp_delta(rdp: Callable[[float], float], epsilon: float) -> float:
    """The best δ at ε that a curve α ↦ D_α gives."""
    check_epsilon(epsilon)

    def bound(alpha: float, excess: float) -> float:
        return excess * (rdp(alpha) - math.log1p(1 / excess) - epsilon) - math.log(alpha)

    return math.exp(min(_least(bound), 0.0))


def _beyond(end: int, uses: int, flip: float) -> float:
    """P(J < end) or P(J > end), on the side away from the mean: at most e^{−n KL(end/n ‖ flip)}."""
    share = end / uses
    divergence = special.rel_entr(share, flip) + special.rel_entr(1 - share, 1 - flip)
    return math.exp(-uses * max(float(divergence), 0.0))


def _least(bound: Callable[[float, float], float]) -> float:
    """The minimum over orders of bound(α, α − 1): on a grid, then near its best point."""

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)
        return bound(1 + excess, excess)

    values = [at(float(point)) for point in LOG_EXCESS]
    best = int(np.argmin(values))
    if not math.isfinite(values[best]):
        return math.inf
    low, high = max(best - 1, 0), min(best + 1, len(LOG_EXCESS) - 1)
    bounds = (float(LOG_EXCESS[low]), float(LOG_EXCESS[high]))
    refined = optimize.minimize_scalar(at, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    return min(float(refined.fun), values[best])
