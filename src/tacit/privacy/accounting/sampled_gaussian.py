"""Poisson-sampled Gaussian noise: what T iterations of private training reveal about one sample.

In each iteration every sample is used with probability q, the clipped contributions are summed and
Gaussian noise is added, with standard deviation σ times the clipping norm. Two datasets that
differ in one sample are at most as easy to distinguish as (Mironov, Talwar & Zhang 2019; Zhu, Dong
& Wang 2022)

    P = (1 − q) N(0, σ²) + q N(1, σ²)  from  Q = N(0, σ²),   with the loss of an output y
    ℓ(y) = log dP/dQ(y) = log(1 − q + q e^{(2y − 1)/2σ²})

if the sample is removed, and as Q from P, with the loss −ℓ, if it is added. The guarantee is the
worse of both. ℓ increases in y, so a cell of the grid of losses is an interval of outputs, whose
masses are differences of normal distribution functions. Composition is that of `loss_distribution`,
and every approximation is pessimistic. For q = 1 the noise is plainly Gaussian, with an exact
formula.

Google's dp-accounting computes the same: tests compare with it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from tacit.core.checks import check_count, check_number
from tacit.privacy.accounting.checks import check_delta, check_epsilon
from tacit.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss, grid_step, spread_cells
from tacit.privacy.accounting.noise_pair import Array

# Steps of the grid in the spread of the loss of one iteration: ε is up to about 0.1 % too large.
CELLS_PER_SPREAD = 16
# The shortest and the longest grid of one iteration.
FEWEST_CELLS, MOST_CELLS = 2**10, 2**16
# What is cut off the tails of one iteration, and of all together, as parts of δ.
TAIL_OF_ONE, TAIL_OF_ALL, SMALLEST_TAIL = 1e-12, 1e-6, 1e-300
# Less noise counts as none, and more as this much.
LEAST_NOISE, MOST_NOISE = 1e-6, 1e9


def sampled_gaussian_epsilon(
    noise_multiplier: float, sampling_rate: float, steps: int, delta: float
) -> float:
    """An upper bound on the smallest ε ≥ 0 for which `steps` iterations are (ε, δ)-private.

    Args:
        noise_multiplier: Standard deviation of the noise over the clipping norm, σ; 0 for no noise.
        sampling_rate: The probability q that an iteration uses a sample; 1 uses all.
        steps: The number of iterations T.
        delta: The δ of the guarantee.

    Example:
        >>> round(sampled_gaussian_epsilon(1.0, sampling_rate=0.01, steps=1000, delta=1e-5), 2)
        1.83
    """
    check_mechanism(noise_multiplier, sampling_rate, steps)
    check_delta(delta)
    if steps == 0:
        return 0.0
    if noise_multiplier < LEAST_NOISE:
        return math.inf
    if sampling_rate == 1:
        return gaussian_epsilon(delta, math.sqrt(steps) / noise_multiplier)
    tail, cut = (max(part * delta, SMALLEST_TAIL) for part in (TAIL_OF_ONE, TAIL_OF_ALL))
    losses = sampled_gaussian_losses(min(noise_multiplier, MOST_NOISE), sampling_rate, tail)
    return max(loss.self_compose(steps, cut).epsilon(delta) for loss in losses)


def sampled_gaussian_delta(
    noise_multiplier: float, sampling_rate: float, steps: int, epsilon: float
) -> float:
    """An upper bound on the smallest δ for which `steps` iterations are (ε, δ)-private."""
    check_mechanism(noise_multiplier, sampling_rate, steps)
    check_epsilon(epsilon)
    if steps == 0:
        return 0.0
    if noise_multiplier < LEAST_NOISE:
        return 1.0
    if sampling_rate == 1:
        return gaussian_delta(epsilon, math.sqrt(steps) / noise_multiplier)
    losses = sampled_gaussian_losses(min(noise_multiplier, MOST_NOISE), sampling_rate, 1e-20)
    return max(loss.self_compose(steps).delta(epsilon) for loss in losses)


def loss_spread(noise_multiplier: float, sampling_rate: float) -> float:
    """About the standard deviation of the loss of one iteration: q√(e^{1/σ²} − 1), at most 1/σ."""
    sigma, q = noise_multiplier, sampling_rate
    return min(q * math.sqrt(math.expm1(min(1 / sigma**2, 600.0))), 1 / sigma)


@lru_cache(maxsize=16)
def sampled_gaussian_losses(sigma: float, q: float, tail: float) -> tuple[PrivacyLoss, PrivacyLoss]:
    """The losses of one iteration, if the sample is removed and if it is added.

    Args:
        sigma: The noise multiplier.
        q: The sampling rate, below 1.
        tail: Mass of the noise that may count as an infinite loss.
    """
    low = sigma * float(special.ndtri(tail))
    high = max(-low, 1 - sigma * float(special.ndtri(min(tail / q, 0.5))))
    lowest, highest = (_loss(y, sigma, q) for y in (low, high))
    width = highest - lowest
    step = grid_step(min(loss_spread(sigma, q) / CELLS_PER_SPREAD, width / FEWEST_CELLS))
    step = max(step, 2 * grid_step(width / MOST_CELLS))
    first, last = math.floor(lowest / step), math.ceil(highest / step)
    y = _output(step * np.arange(first, last + 1, dtype=np.float64), sigma, q)
    left, right = special.ndtr(y / sigma), special.ndtr(-y / sigma)
    moved_left, moved_right = special.ndtr((y - 1) / sigma), special.ndtr((1 - y) / sigma)
    without = _masses(left, right)
    mixed = (1 - q) * without + q * _masses(moved_left, moved_right)
    # Beyond the grid: low losses move up to it, high ones count as infinite.
    removed = spread_cells(mixed, without, first, step)
    removed[0] += (1 - q) * left[0] + q * moved_left[0]
    beyond = (1 - q) * right[-1] + q * moved_right[-1]
    added = spread_cells(without[::-1], mixed[::-1], -last, step)
    added[0] += right[-1]
    return (
        PrivacyLoss(first, step, removed, float(beyond)),
        PrivacyLoss(-last, step, added, float(left[0]), pure=-math.log1p(-q)),
    )


def _loss(y: float, sigma: float, q: float) -> float:
    return float(np.logaddexp(math.log1p(-q), math.log(q) + (2 * y - 1) / (2 * sigma**2)))


def _output(loss: Array, sigma: float, q: float) -> Array:
    """The output with this loss; −∞ where the loss is lower than that of every output."""
    least = math.log1p(-q)
    above = np.maximum(loss, least)
    # 1 − (1 − q) e^{−ℓ}, without cancellation.
    part = np.maximum(q * np.exp(-above) - np.expm1(-above), 0.0)
    with np.errstate(divide="ignore"):
        y = 0.5 + sigma**2 * (above + np.log(part / q))
    return np.where(loss > least, y, -np.inf)


def _masses(left: Array, right: Array) -> Array:
    """Masses [m] between edges [m + 1], from the nearer tail so that small ones keep digits."""
    return np.maximum(np.where(left[:-1] > 0.5, -np.diff(right), np.diff(left)), 0.0)


def check_mechanism(noise_multiplier: float, sampling_rate: float, steps: int) -> None:
    """Require the parameters of sampled Gaussian noise."""
    check_number("noise_multiplier", noise_multiplier, at_least=0)
    check_number("sampling_rate", sampling_rate, above=0, at_most=1)
    check_count("steps", steps, at_least=0)
