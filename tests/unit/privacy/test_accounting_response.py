import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as oracle
from hypothesis import given, settings, strategies as st

from tacit.privacy.accounting import randomized_response
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.randomized_response import (
    response_delta,
    response_epsilon,
    response_method,
    response_pure_epsilon,
    response_rdp,
)


def high_precision_delta(epsilon, each, uses):
    """The binomial sum with 40 digits."""
    with mpmath.workdps(40):
        odds, total = mpmath.exp(mpmath.mpf(each)), mpmath.mpf(0)
        for j in range(uses + 1):
            loss = mpmath.mpf(each) * (uses - 2 * j)
            if loss > epsilon:
                mass = mpmath.binomial(uses, j) * odds ** (uses - j) / (1 + odds) ** uses
                total += mass * (1 - mpmath.exp(epsilon - loss))
        return float(total)


def test_pure_budget_adds_up_over_coordinates_and_rounds():
    assert response_pure_epsilon(0.5, 10) == 5.0
    assert response_pure_epsilon(0.5, 10, rounds=3) == 15.0
    assert response_epsilon(0.0, 0.5, 30) == 15.0


@pytest.mark.parametrize(("each", "uses"), [(0.1, 400), (2.0, 300), (1e-3, 50), (0.5, 1)])
def test_delta_is_the_binomial_sum_in_high_precision_from_above(each, uses):
    for part in (0.0, 0.05, 0.3, 0.9):
        epsilon = part * each * uses
        expected = high_precision_delta(epsilon, each, uses)
        assert (
            expected <= response_delta(epsilon, each, uses) * (1 + 1e-12) <= expected * (1 + 1e-8)
        )


@pytest.mark.parametrize(("each", "uses"), [(0.2, 200), (1.0, 20)])
def test_composition_is_the_oracles(each, uses):
    noise = 2 / (1 + math.exp(each))  # their parameter: the chance of answering at random
    theirs = oracle.from_randomized_response(noise, 2, value_discretization_interval=each / 1000)
    theirs = theirs.self_compose(uses)
    for delta in (1e-3, 1e-6):
        assert response_epsilon(delta, each, uses) == pytest.approx(
            theirs.get_epsilon_for_delta(delta), rel=2e-3
        )


@given(
    each=st.floats(1e-4, 8.0),
    uses=st.integers(1, 5000),
    part=st.floats(0.0, 1.0),
    log=st.floats(-60, -0.1),
)
@settings(max_examples=50)
def test_bounds_move_the_right_way(each, uses, part, log):
    pure = each * uses
    here = response_delta(part * pure, each, uses)
    assert 0 <= here <= 1
    assert response_delta(min(part * 1.1, 1.0) * pure, each, uses) <= here * (1 + 1e-9)
    assert response_delta(part * pure, each, uses + 1) >= here * (1 - 2e-9)
    assert response_delta(pure, each, uses) == 0
    delta = math.exp(log)
    epsilon = response_epsilon(delta, each, uses)
    assert epsilon <= pure
    assert response_delta(epsilon, each, uses) <= delta * (1 + 1e-12)
    if epsilon > 0:
        assert response_delta(epsilon * (1 - 1e-6), each, uses) > delta * (1 - 2e-9)


def test_many_coordinates_and_rounds_stay_exact():
    """With small budgets the losses are nearly normal, so the answer is near that of a Gaussian."""
    for each, uses in ((0.01, 10**6), (1e-4, 10**9)):
        expected = gaussian_epsilon(1e-5, each * math.sqrt(uses))
        assert response_epsilon(1e-5, each, uses) == pytest.approx(expected, rel=1e-3)
    mean = 4.0 * 10**9 * math.tanh(2.0)  # with large budgets it is near the mean loss
    assert response_delta(0.99 * mean, 4.0, 10**9) == pytest.approx(1.0)
    assert response_delta(1.01 * mean, 4.0, 10**9) < 1e-12


@pytest.mark.parametrize(("epsilon", "each"), [(3.0, 0.1), (0.5, 4.0)])  # cut off below, and above
def test_what_lies_outside_the_window_is_added(monkeypatch, epsilon, each):
    before = response_delta(epsilon, each, 10_000)
    monkeypatch.setattr(randomized_response.stats.binom, "pmf", lambda j, n, p: np.zeros(len(j)))
    outside = response_delta(epsilon, each, 10_000)
    assert 0 < outside < 1e-25 < before


@pytest.mark.parametrize("alpha", [1.01, 2.0, 17.0, 900.0])
@pytest.mark.parametrize("each", [1e-6, 0.5, 6.0])
def test_renyi_divergence_is_that_of_two_coins(alpha, each):
    with mpmath.workdps(60):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(each)))
        a = mpmath.mpf(alpha)
        moment = p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)
        expected = float(mpmath.log(moment) / (a - 1))
    assert response_rdp(alpha, each) == pytest.approx(expected, rel=1e-10, abs=0)


def test_beyond_the_exact_range_the_renyi_bound_is_used_and_named(monkeypatch):
    exact = {
        uses: (response_epsilon(1e-5, 0.1, uses), response_delta(8.0, 0.1, uses))
        for uses in (300, 3000)
    }
    assert response_method(10**9) == "exact binomial"
    assert response_method(10**13) == "Rényi bound"
    assert math.isfinite(response_epsilon(1e-5, 1e-6, 10**13))
    monkeypatch.setattr(randomized_response, "MOST_EXACT", 100)
    for uses, (epsilon, delta) in exact.items():
        assert epsilon <= response_epsilon(1e-5, 0.1, uses) <= 1.2 * epsilon
        assert delta <= response_delta(8.0, 0.1, uses) <= 20 * delta
