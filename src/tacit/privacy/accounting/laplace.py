"""Laplace noise, and sums of Laplace terms of which k are unknown to an adversary.

Laplace(β) under L1 sensitivity Δ, with ratio r = Δ/β (Dwork & Roth 2014, section 3.3):

    ε = r,   δ(ε) = 1 − e^{(ε − r)/2} for 0 ≤ ε ≤ r

A sum (or difference: the law is even) of k independent Laplace(β) terms has, with u = |z|/β, the
density

    f_k(u) = e^{−u} / (β 2^k (k−1)!) · Σ_{j<k} (k−1+j)! / (j! (k−1−j)!) 2^{−j} u^{k−1−j}
           = Σ_{j<k} w_j · Gamma(k−j)(u) / β,   w_j = C(k−1+j, j) 2^{−(k+j)},   Σ_j w_j = 1/2

a mixture with positive weights, so that density and tail are sums without cancellation.

Why one coordinate is enough: f_k is log-concave, as a convolution of log-concave densities. Hence

(1) |d log f_k/dz| ≤ 1/β, so pure ε = r for every k ≥ 1, however the difference is split over
    coordinates.
(2) In one coordinate the trade-off function of a shift s is T_s(α) = F(F⁻¹(1−α) − s), the
    likelihood ratio being monotone; so T_{s'} ∘ (1 − T_s) = T_{s+s'}. Make a difference
    (s₁, …, s_d) one coordinate at a time: each step is a pair with trade-off function T_{|s_i|}
    (the other coordinates are independent and unchanged), and a chain of pairs obeys
    T(P, R) ≥ T(Q, R) ∘ (1 − T(P, Q)) (group privacy; Dong, Roth & Su 2022, section 2.5).
    So T ≥ T_{|s₁|+…+|s_d|} ≥ T_Δ: no split reveals more than the whole Δ in one coordinate.
(3) If one pair is never easier to distinguish than another, neither are their compositions (ibid.,
    section 3), also adaptive ones.
(4) f_{k+1} is f_k with more noise: post-processing. So δ does not grow with k.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from tacit.core.checks import check_count
from tacit.privacy.accounting.checks import check_ratio
from tacit.privacy.accounting.noise_pair import Array, NoisePair

ASSUMPTIONS = (
    "Proved for any split of the L1 difference over coordinates: epsilon = Δ/β for k ≥ 1 unknown "
    "Laplace terms, and the (epsilon, delta) curve of the whole difference in one coordinate, "
    "which is the worst split because the law is log-concave. Assumed: an L1 bound Δ that clipping "
    "enforces; coordinates and uses with fresh noise, independent of the data and of each other; "
    "an adversary who does not know k terms of each and sees no combination in which they cancel; "
    "noise from the continuous law (pseudo-random, rounded numbers only approximate it)."
)


def sum_log_density(k: int, u: Any) -> Array:
    """Logarithm of the density f_k(u) for β = 1, elementwise; does not underflow."""
    check_count("k", k)
    u = np.abs(np.asarray(u, dtype=np.float64))[..., None]
    # k − 1 − j
    power = np.arange(k)[::-1]
    terms = _log_weights(k) - special.gammaln(power + 1) + special.xlogy(power, u)
    largest = terms.max(axis=-1)
    return np.asarray(largest + np.log(np.exp(terms - largest[..., None]).sum(axis=-1)) - u[..., 0])


def sum_tail(k: int, u: Any) -> Array:
    """P(Z > u) for a sum Z of k independent Laplace(1) terms, accurate where it is small."""
    check_count("k", k)
    u = np.asarray(u, dtype=np.float64)
    # k − j
    shapes = np.arange(k, 0, -1)
    beyond = special.gammaincc(shapes, np.abs(u)[..., None]) @ np.exp(_log_weights(k))
    return np.asarray(np.where(u >= 0, beyond, 1 - beyond))


def sum_pure_epsilon(ratio: float, k: int) -> float:
    """The pure ε of a release with k unknown Laplace terms: r = Δ/β for k ≥ 1, ∞ for k = 0."""
    check_ratio("ratio", ratio)
    check_count("k", k, at_least=0)
    return ratio if k > 0 or ratio == 0 else math.inf


def sum_pair(ratio: float, k: int) -> NoisePair:
    """The sum of k ≥ 1 Laplace(1) terms, with and without a shift by r = Δ/β."""
    return NoisePair(lambda z: sum_log_density(k, z), lambda z: sum_tail(k, z), ratio, pure=ratio)


def _log_weights(k: int) -> Array:
    j = np.arange(k)
    log_choices = special.gammaln(k + j) - special.gammaln(k) - special.gammaln(j + 1)
    return np.asarray(log_choices - (k + j) * math.log(2))
