"""Sums of discrete Gaussians against discrete Gaussians, by brute force where they differ."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from tacit.core import discrete_gaussian
from tacit.core.discrete_gaussian import DiscreteGaussian, convolution_distance, thresholds

# Probabilities are sums of a few hundred rounded numbers.
ROUNDING = 1e-14


def ideal(scale, limit):
    """The discrete Gaussian's probabilities of −limit, …, limit."""
    rho = np.exp(-(np.arange(-limit, limit + 1) ** 2) / (2 * scale**2))
    return rho / rho.sum()


def spread(probability, factor):
    """The probabilities of `factor` times a number."""
    out = np.zeros((len(probability) - 1) * factor + 1)
    out[::factor] = probability
    return out


def distance(one, other):
    """The total variation distance of two distributions around zero."""
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    margin = (len(longer) - len(shorter)) // 2
    return float(np.abs(longer - np.pad(shorter, margin)).sum() / 2)


def beta(tau_squared):
    return 2 * sum(math.exp(-2 * math.pi**2 * tau_squared * n**2) for n in range(1, 40))


@settings(max_examples=200)
@given(scale=st.floats(0.5, 5), factor=st.integers(1, 8))
def test_probabilities_of_a_x_plus_y_are_within_the_ratio(scale, factor):
    """P(Z = k) / G(k) is between (1 − β)/(1 + β) and (1 + β)/(1 − β)."""
    tau_squared = scale**2 / (factor**2 + 1)
    b = beta(tau_squared)
    assume(b < 0.9)
    base = ideal(scale, math.ceil(14 * scale))
    z = np.convolve(spread(base, factor), base)
    wide = scale * math.sqrt(factor**2 + 1)
    centre = len(z) // 2
    g = ideal(wide, centre)
    # Within 7 σ the truncation of the brute force does not matter.
    inside = slice(centre - math.floor(7 * wide), centre + math.floor(7 * wide) + 1)
    ratio = z[inside] / g[inside]
    assert ratio.max() <= (1 + b) / (1 - b) + 1e-8
    assert ratio.min() >= (1 - b) / (1 + b) - 1e-8
    assert distance(z, g) <= convolution_distance(tau_squared) + ROUNDING


@pytest.mark.parametrize(("scale", "factor"), [(1.0, 2), (1.0, 3), (2.0, 5), (2.0, 7), (3.0, 10)])
def test_the_bound_is_not_far_from_the_distance(scale, factor):
    """What is bounded is there: for small scales the two distributions differ."""
    base = ideal(scale, 40)
    z = np.convolve(spread(base, factor), base)
    found = distance(z, ideal(scale * math.sqrt(factor**2 + 1), len(z) // 2))
    bound = convolution_distance(scale**2 / (factor**2 + 1))
    assert bound / 6 < found <= bound


@settings(max_examples=60)
@given(scale=st.floats(0.4, 2), clients=st.integers(2, 6))
def test_the_sum_of_clients_is_within_one_bound_per_client(scale, clients):
    """Adding one to m others costs β/(1 − β) with τ² = σ²m/(m + 1)."""
    one = total = ideal(scale, math.ceil(14 * scale))
    bound = 0.0
    for others in range(1, clients):
        total = np.convolve(total, one)
        bound += convolution_distance(scale**2 * others / (others + 1))
    assert distance(total, ideal(scale * math.sqrt(clients), len(total) // 2)) <= bound + ROUNDING


def test_the_sum_of_clients_costs_nothing_at_our_scale():
    assert convolution_distance(DiscreteGaussian(0).variance / 2) == 0.0


@settings(max_examples=100)
@given(scale=st.integers(1, 6), deviations=st.integers(1, 8), factor=st.integers(0, 5))
def test_the_distance_covers_truncation_and_thresholds(scale, deviations, factor):
    """Numbers drawn from a small table, with its own truncation, against the ideal ones."""
    limit = deviations * scale
    edges = [0, *thresholds(scale, limit), 1 << 127]
    magnitude = np.array([(high - low) / 2**127 for low, high in pairwise(edges)])
    drawn = np.concatenate((magnitude[:0:-1] / 2, magnitude[:1], magnitude[1:] / 2))
    if factor:
        drawn = np.convolve(spread(drawn, factor), drawn)
    wide = scale * math.sqrt(factor**2 + 1)
    found = distance(drawn, ideal(wide, max(len(drawn) // 2, math.ceil(12 * wide))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discrete_gaussian, "BASE_SCALE", scale)
        patch.setattr(discrete_gaussian, "BASE_LIMIT", limit)
        bound = DiscreteGaussian(factor).distance(1)
    assert found <= bound + ROUNDING
