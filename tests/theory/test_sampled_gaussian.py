"""Composition of sampled Gaussian noise: bounds of another library, and orders that must hold."""

import math

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution as library
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from tacit.privacy.accounting.calibration import calibrate_noise_multiplier
from tacit.privacy.accounting.sampled_gaussian import (
    loss_spread,
    sampled_gaussian_epsilon,
    sampled_gaussian_losses,
)

DELTA = 1e-5
# Of a bound whose grid changes with its arguments.
DISCRETIZATION = 2e-3
# MNIST with an expected batch of 2,048 and 40 rounds.
RATE, STEPS = 2048 / 60000, 40 * 29

multipliers = st.floats(math.log(0.5), math.log(50.0)).map(math.exp)
rates = st.floats(math.log(1e-3), 0.0).map(math.exp)
counts = st.floats(0.0, math.log(3000.0)).map(lambda x: round(math.exp(x)))
factors = st.floats(1.0, 3.0)


def fine_epsilon(sigma, rate, steps, delta=DELTA):
    """The library's bound on a grid that is much finer than ours."""
    interval = loss_spread(sigma, rate) / 40
    pld = library.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=interval
    )
    return pld.self_compose(steps).get_epsilon_for_delta(delta)


def renyi_epsilon(sigma, rate, steps, delta=DELTA):
    accountant = RdpAccountant([*range(2, 65), 128, 256, 512, 1024])
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))
    return accountant.compose(event, steps).get_epsilon(delta)


@pytest.mark.parametrize("steps", [1, 60, 3000])
@pytest.mark.parametrize("rate", [0.002, 0.03, 0.4, 1.0])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0, 20.0])
def test_epsilon_is_the_librarys_within_one_percent_and_not_below(sigma, rate, steps):
    ours = sampled_gaussian_epsilon(sigma, rate, steps, DELTA)
    theirs = fine_epsilon(sigma, rate, steps)
    assert 0.999 * theirs <= ours <= 1.01 * theirs + 1e-9
    assert renyi_epsilon(sigma, rate, steps) >= ours


@pytest.mark.parametrize("delta", [1e-3, 1e-8])
@pytest.mark.parametrize(("sigma", "rate", "steps"), [(0.5, 1e-3, 1000), (1.1, 0.02, 500)])
def test_epsilon_is_the_librarys_for_other_deltas(sigma, rate, steps, delta):
    theirs = fine_epsilon(sigma, rate, steps, delta)
    assert sampled_gaussian_epsilon(sigma, rate, steps, delta) == pytest.approx(theirs, rel=1e-3)


@given(sigma=multipliers, rate=rates, epsilon=st.floats(0.0, 5.0))
def test_one_iteration_is_bounded_by_its_exact_divergences_from_above(sigma, rate, epsilon):
    """δ(ε) of both directions, from the output where the loss is ε or −ε."""
    rate = min(rate, 0.999)
    for sign, loss in zip((1, -1), sampled_gaussian_losses(sigma, rate, 1e-20), strict=True):
        # 1 − q + q e^{(2y − 1)/2σ²} = e^{±ε}
        part = (math.expm1(sign * epsilon) + rate) / rate
        y = 0.5 + sigma**2 * math.log(part) if part > 0 else -math.inf
        without = norm.sf(sign * y / sigma)
        mixed = (1 - rate) * without + rate * norm.sf(sign * (y - 1) / sigma)
        first, second = (mixed, without) if sign == 1 else (without, mixed)
        exact = first - math.exp(epsilon) * second
        found = loss.delta(epsilon)
        assert exact - 1e-13 <= found <= exact + 0.005 * loss.delta(0.0) + 1e-13


@given(sigma=multipliers, rate=rates, steps=counts, more=factors)
def test_epsilon_rises_with_iterations(sigma, rate, steps, more):
    fewer = sampled_gaussian_epsilon(sigma, rate, steps, DELTA)
    assert sampled_gaussian_epsilon(sigma, rate, math.ceil(steps * more), DELTA) >= fewer - 1e-9


@given(sigma=multipliers, rate=rates, steps=counts, more=factors)
def test_epsilon_rises_with_the_sampling_rate(sigma, rate, steps, more):
    lower = sampled_gaussian_epsilon(sigma, rate, steps, DELTA)
    higher = sampled_gaussian_epsilon(sigma, min(rate * more, 1.0), steps, DELTA)
    assert higher >= (1 - DISCRETIZATION) * lower - 1e-9


@given(sigma=multipliers, rate=rates, steps=counts, more=factors)
def test_epsilon_falls_with_noise(sigma, rate, steps, more):
    less = sampled_gaussian_epsilon(sigma, rate, steps, DELTA)
    assert sampled_gaussian_epsilon(sigma * more, rate, steps, DELTA) <= (
        (1 + DISCRETIZATION) * less + 1e-9
    )


@given(
    log_epsilon=st.floats(math.log(0.1), math.log(20.0)),
    rate=st.floats(math.log(5e-3), 0.0).map(math.exp),
    steps=counts,
)
@settings(max_examples=15)
def test_calibrated_noise_is_enough_and_hardly_more(log_epsilon, rate, steps):
    epsilon = math.exp(log_epsilon)
    sigma = calibrate_noise_multiplier(epsilon, DELTA, rate, steps)
    assert sampled_gaussian_epsilon(sigma, rate, steps, DELTA) <= epsilon
    assert sampled_gaussian_epsilon(0.99 * sigma, rate, steps, DELTA) > epsilon


@pytest.mark.parametrize(("epsilon", "renyi"), [(1.0, 4.84), (3.0, 1.93), (8.0, 1.03)])
def test_noise_of_the_prototype(epsilon, renyi):
    """Rényi accounting needs this much noise, privacy-loss distributions somewhat less."""
    assert renyi_epsilon(renyi, RATE, STEPS) == pytest.approx(epsilon, rel=0.02)
    sigma = calibrate_noise_multiplier(epsilon, DELTA, RATE, STEPS)
    assert 0.9 * renyi < sigma < 0.96 * renyi
    assert fine_epsilon(sigma, RATE, STEPS) == pytest.approx(epsilon, rel=2e-3)
