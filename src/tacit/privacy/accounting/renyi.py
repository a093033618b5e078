"""From Rényi divergences to (ε, δ).

A curve D_α of Rényi divergences (Mironov 2017; the sum of the curves for composition) gives, for
every order α > 1 (Canonne, Kamath & Steinke 2020, proposition 12; here for all real orders):

    ε = D_α + log((α − 1)/α) − (log δ + log α)/(α − 1)
    log δ = (α − 1)(D_α + log((α − 1)/α) − ε) − log α

Every order gives a bound, so an imperfect search over orders still gives one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize

from tacit.privacy.accounting.checks import check_delta, check_epsilon

# The grid of log(α − 1).
LOG_EXCESS = np.linspace(math.log(1e-6), math.log(1e9), 241)


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
