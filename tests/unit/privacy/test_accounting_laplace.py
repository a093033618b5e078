import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism
from hypothesis import given, settings, strategies as st
from scipy import integrate, stats

from support.accounting import sum_delta
from tacit.privacy.accounting import laplace
from tacit.privacy.accounting.laplace import sum_pure_epsilon, sum_tail
from tacit.privacy.accounting.loss_distribution import PrivacyLoss

KS = [1, 2, 3, 8, 64]
ratios = st.floats(0.01, 20.0)
parts = st.floats(0.0, 0.999)


def sum_density(k, u):
    return np.exp(laplace.sum_log_density(k, u))


@pytest.mark.parametrize("ratio", [0.01, 1.0, 7.5])
def test_one_laplace_release_is_the_oracles(ratio):
    oracle = privacy_loss_mechanism.LaplacePrivacyLoss(1 / ratio)
    for epsilon in np.linspace(0, 1.2 * ratio, 13):
        expected = oracle.get_delta_for_epsilon(float(epsilon))
        assert sum_delta(float(epsilon), ratio, 1) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("k", KS)
def test_density_is_the_written_formula_in_exact_arithmetic(k):
    for u in (Fraction(0), Fraction(1, 3), Fraction(9)):
        total = sum(
            Fraction(
                math.factorial(k - 1 + j), math.factorial(j) * math.factorial(k - 1 - j) * 2**j
            )
            * u ** (k - 1 - j)
            for j in range(k)
        )
        expected = float(total / (2**k * math.factorial(k - 1))) * math.exp(-float(u))
        assert float(sum_density(k, float(u))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("k", KS)
def test_tail_is_the_integral_of_the_density(k):
    for u in (-2.0, 0.0, 1.5, 30.0):
        beyond = integrate.quad(
            lambda z: float(sum_density(k, z)), u, u + 120, points=[max(u, 0.0)], limit=200
        )[0]
        assert float(sum_tail(k, u)) == pytest.approx(beyond, rel=1e-7)


def test_small_masses_far_out_keep_their_digits_on_both_sides():
    pair = laplace.sum_pair(1.0, 2)
    low, high = np.array([60.0, -61.0]), np.array([61.0, -60.0])
    expected = integrate.quad(lambda u: (1 + u) * math.exp(-(u - 60)) / 4, 60, 61)[0] * math.exp(
        -60
    )
    np.testing.assert_allclose(pair.mass(low, high), expected, rtol=1e-10)


@pytest.mark.parametrize("k", KS)
def test_draws_follow_the_law(k):
    drawn = np.random.default_rng(k).laplace(size=(20_000, k)).sum(axis=1)
    assert stats.kstest(drawn, lambda u: sum_tail(k, -u)).pvalue > 1e-3
    counts, edges = np.histogram(drawn, bins=20)
    within = np.linspace(edges[:-1], edges[1:], 101)
    expected = sum_density(k, within).mean(axis=0) * np.diff(edges) * len(drawn)
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected + 1)).all()


def test_many_terms_far_out_do_not_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for u in (0.0, 1e-300, 1e3, 1e6):
            assert np.isfinite(laplace.sum_log_density(256, u))
    near_normal = stats.norm.pdf(3.0, scale=math.sqrt(512))
    assert float(sum_density(256, 3.0)) == pytest.approx(near_normal, rel=0.01)


@pytest.mark.parametrize("k", [1, 2, 5, 16])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 3.0])
def test_delta_is_the_integral_of_the_hockey_stick(k, ratio):
    for epsilon in (0.0, 0.3 * ratio, 0.8 * ratio):
        u = np.linspace(-60, 60 + ratio, 60_001)
        gap = np.maximum(sum_density(k, u - ratio) - math.exp(epsilon) * sum_density(k, u), 0)
        expected = float(integrate.trapezoid(gap, u))
        assert sum_delta(epsilon, ratio, k) == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_variance_matched_budget_fails_with_the_stated_probability():
    assert sum_delta(1 / math.sqrt(2), 1.0, 2) == pytest.approx(9.1e-3, rel=0.01)


@given(ratio=ratios, part=parts, more=parts, k=st.integers(1, 20))
@settings(max_examples=25)
def test_delta_falls_with_epsilon_and_terms_and_rises_with_the_ratio(ratio, part, more, k):
    epsilon = part * ratio
    here = sum_delta(epsilon, ratio, k)
    assert 0 <= here <= 1
    assert sum_delta(epsilon + more * (ratio - epsilon), ratio, k) <= here + 1e-14
    assert sum_delta(epsilon, ratio * (1 + more), k) >= here - 1e-14
    assert sum_delta(epsilon, ratio, k + 1) <= here + 1e-14


@given(ratio=ratios, k=st.integers(1, 20))
@settings(max_examples=30)
def test_pure_epsilon_is_the_ratio_and_no_less(ratio, k):
    assert sum_pure_epsilon(ratio, k) == ratio
    assert sum_delta(ratio, ratio, k) == 0
    far = np.array([-400.0, 400.0])
    steepest = laplace.sum_pair(ratio, k).loss(far)
    assert (np.abs(steepest) <= ratio * (1 + 1e-9)).all()
    assert np.abs(steepest).max() > ratio * (1 - (k + 1) / (400 - ratio))  # approached far out


def test_no_unknown_term_means_no_privacy():
    assert sum_pure_epsilon(0.1, 0) == math.inf
    assert sum_delta(50.0, 0.1, 0) == 1.0
    assert sum_delta(5.0, math.inf, 3) == 1.0
    assert sum_pure_epsilon(0.0, 0) == 0.0


@pytest.mark.parametrize("k", [1, 2, 6])
@pytest.mark.parametrize("share", [0.5, 0.2, 0.03])
def test_splitting_the_difference_over_coordinates_never_tells_more(k, share):
    ratio, slack = 1.5, 2e-5  # the loss distribution is itself a little pessimistic
    split = PrivacyLoss.laplace(share * ratio, k, step=1e-3).compose(
        PrivacyLoss.laplace((1 - share) * ratio, k, step=1e-3)
    )
    for epsilon in np.linspace(0, 0.99 * ratio, 15):
        assert split.delta(float(epsilon)) <= sum_delta(float(epsilon), ratio, k) + slack


def test_the_ledger_has_a_sentence_for_what_is_proved_and_assumed():
    assert laplace.ASSUMPTIONS.startswith("Proved")
    assert "Assumed" in laplace.ASSUMPTIONS
