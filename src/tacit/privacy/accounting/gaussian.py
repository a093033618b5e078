"""The Gaussian mechanism with μ = Δ/σ, Δ the L2 sensitivity.

Exact (Balle & Wang 2018, theorem 8), with t = ε/μ − μ/2 and s = ε/μ + μ/2:

    δ(ε) = Φ̄(t) − e^ε Φ̄(s) = φ(t) [R(t) − R(s)] = φ(t) ∫_t^s (1 − x R(x)) dx

where R = Φ̄/φ is the Mills ratio. The integral has no cancellation for small μ, the middle form
none for t ≥ 0.

Composition (Dong, Roth & Su 2022): releases with μ₁, μ₂, …, adaptive or not, are exactly one with
μ = √Σ μᵢ². Rényi divergences (Mironov 2017), D_α = αμ²/2, would give (ε, δ) only with some loss.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from tacit.privacy.accounting.checks import check_delta, check_epsilon, check_ratio
from tacit.privacy.accounting.noise_pair import Array

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ(ε) of one Gaussian release, exact, with μ = Δ/σ."""
    check_epsilon(epsilon)
    check_ratio("mu", mu)
    if mu == 0 or mu == math.inf:
        return 0.0 if mu == 0 else 1.0
    return math.exp(_log_delta(epsilon / mu, mu))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """The smallest ε ≥ 0 for which one Gaussian release is (ε, δ)-private, with μ = Δ/σ."""
    check_delta(delta)
    check_ratio("mu", mu)
    if mu == 0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta == 0 or mu == math.inf:
        return math.inf
    # Imported here because it takes longer than all the rest of this module.
    from scipy import optimize

    target = math.log(delta)
    # Since δ(ε) ≤ Φ̄(t) ≤ e^{−t²/2}.
    most = mu / 2 + math.sqrt(-2 * target) + 1.0
    root = optimize.brentq(lambda y: _log_delta(y, mu) - target, 0.0, most, xtol=1e-13, rtol=1e-14)
    return mu * float(root)


def _log_delta(y: float, mu: float) -> float:
    """Log δ(ε) at ε = μy."""
    t, s = y - mu / 2, y + mu / 2
    if mu < 1:
        x = y + mu / 2 * NODES
        difference = mu / 2 * float(WEIGHTS @ (1 - x * _mills(x)))
    elif t >= 0:
        difference = float(_mills(t) - _mills(s))
    else:
        a = float(special.log_ndtr(-t))
        # log Φ(−s) + ε, written without cancellation.
        b = -t * t / 2 - math.log(2 * math.pi) / 2 + math.log(float(_mills(s)))
        return a + math.log(-math.expm1(b - a))
    return -t * t / 2 - math.log(2 * math.pi) / 2 + math.log(difference)


def _mills(x: float | Array) -> Array:
    return np.asarray(math.sqrt(math.pi / 2) * special.erfcx(np.asarray(x) / math.sqrt(2)))
