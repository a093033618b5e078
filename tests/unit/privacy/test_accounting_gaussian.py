import math
import warnings

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from hypothesis import given, settings, strategies as st

from support.accounting import masked_mu
from tacit.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon
from tacit.privacy.accounting.randomized_response import rdp_delta, rdp_epsilon
from tacit.privacy.correlated_noise import precision

TRIANGLE_PAIR_LONER = [(0, 1), (1, 2), (2, 0), (3, 4)]


def exact_delta(epsilon, mu):
    """Balle & Wang's formula with 60 digits."""
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-9, 1e-4, 0.3, 0.999, 1.0, 4.0, 60.0, 2000.0])
@pytest.mark.parametrize("y", [0.0, 0.4, 3.0, 12.0])
def test_delta_is_the_formula_in_high_precision(mu, y):
    for epsilon in (mu * y, mu * y + mu * mu / 2):
        expected = exact_delta(epsilon, mu)
        if expected > mpmath.mpf("1e-290"):
            assert gaussian_delta(epsilon, mu) == pytest.approx(float(expected), rel=1e-9, abs=0)


@given(log_mu=st.floats(-20.0, 8.0), log_delta=st.floats(-200.0, -0.01))
@settings(max_examples=150)
def test_epsilon_inverts_delta_for_every_size(log_mu, log_delta):
    mu, delta = math.exp(log_mu), math.exp(log_delta)
    epsilon = gaussian_epsilon(delta, mu)
    if epsilon > 0:
        assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-6, abs=0)
    else:
        assert gaussian_delta(0.0, mu) <= delta


def test_limits_of_the_gaussian():
    assert gaussian_epsilon(1e-5, 0.0) == 0
    assert gaussian_epsilon(1e-5, math.inf) == math.inf
    assert gaussian_epsilon(0.0, 1.0) == math.inf
    assert gaussian_delta(3.0, 0.0) == 0
    assert gaussian_delta(3.0, math.inf) == 1
    assert gaussian_epsilon(0.5, 0.1) == 0


@pytest.mark.parametrize("mu", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_renyi_conversion_is_the_oracles(mu, delta):
    orders = 1 + np.geomspace(0.02, 1e4, 3000)
    theirs, _ = compute_epsilon(orders, orders * mu**2 / 2, delta)
    ours = rdp_epsilon(lambda alpha: alpha * mu**2 / 2, delta)
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert gaussian_epsilon(delta, mu) <= ours <= 1.3 * gaussian_epsilon(delta, mu)
    again = rdp_delta(lambda alpha: alpha * mu**2 / 2, ours)
    assert again == pytest.approx(delta, rel=1e-4, abs=0)


def test_an_infinite_renyi_divergence_guarantees_nothing():
    assert rdp_epsilon(lambda alpha: math.inf, 1e-5) == math.inf


def test_precision_is_the_inverse_of_the_covariance():
    laplacian = np.zeros((6, 6))
    for i, j in TRIANGLE_PAIR_LONER:
        edge = np.zeros(6)
        edge[i], edge[j] = 1, -1
        laplacian += np.outer(edge, edge)
    expected = np.linalg.inv(0.09 * np.eye(6) + 4.0 * laplacian)
    found = precision(TRIANGLE_PAIR_LONER, 6, 0.3, 2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    both_ways = [*TRIANGLE_PAIR_LONER, *[(j, i) for i, j in TRIANGLE_PAIR_LONER]]
    np.testing.assert_allclose(precision(np.array(both_ways), 6, 0.3, 2.0), found)


def test_budget_of_masks_is_that_of_their_covariance():
    """The divergence of two Gaussians whose means differ by 2C in one message, from samples."""
    clip, sigma, sigma_cor = 0.7, 0.5, 1.5
    generator = np.random.default_rng(4)
    masks = sigma_cor * generator.standard_normal((400_000, 4))
    noise = sigma * generator.standard_normal((400_000, 6))
    for mask, (i, j) in zip(masks.T, TRIANGLE_PAIR_LONER, strict=True):
        noise[:, i] += mask
        noise[:, j] -= mask
    seen = np.linalg.inv(np.cov(noise.T))
    mus = masked_mu(clip, TRIANGLE_PAIR_LONER, 6, sigma, sigma_cor)
    np.testing.assert_allclose(mus, 2 * clip * np.sqrt(np.diagonal(seen)), rtol=0.01)
    assert int(mus.argmax()) == 5  # the one without masks
    assert mus[5] == pytest.approx(2 * clip / sigma)


def test_masks_help_down_to_the_noise_of_the_sum():
    ring = [(i, (i + 1) % 5) for i in range(5)]
    huge = precision(ring, 5, 1e-3, 1e6)
    np.testing.assert_allclose(huge, 1 / (5 * 1e-6), rtol=1e-6)
    assert (np.diff([masked_mu(1.0, ring, 5, 0.3, s)[0] for s in (0.0, 0.1, 1.0, 10.0)]) < 0).all()


def test_masks_without_noise_guarantee_nothing_and_say_so_quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (masked_mu(1.0, TRIANGLE_PAIR_LONER, 6, 0.0, 2.0) == math.inf).all()
        assert masked_mu(1.0, [], 1, 1e-200, 0.0) == math.inf
        assert np.isinf(np.diagonal(precision([(0, 1)], 3, 0.0, 1.0))).all()
