import math
import subprocess
import sys

import numpy as np
import pytest

from support.misuse import misuse_message
from tacit.privacy.accounting import calibration, sampled_gaussian
from tacit.privacy.accounting.calibration import (
    calibrate_noise_multiplier,
    steps_within,
)
from tacit.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon
from tacit.privacy.accounting.integer_noise import TAU, continuous_scale, rounding_distance
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.privacy.accounting.sampled_gaussian import (
    sampled_gaussian_delta,
    sampled_gaussian_epsilon,
)
from tacit.privacy.accounting.second_opinion import second_opinion


def test_using_all_samples_is_the_exact_gaussian():
    assert sampled_gaussian_epsilon(4.0, 1.0, 100, 1e-5) == gaussian_epsilon(1e-5, 2.5)
    assert sampled_gaussian_delta(4.0, 1.0, 100, 1.0) == gaussian_delta(1.0, 2.5)
    almost = sampled_gaussian_epsilon(4.0, 1 - 1e-12, 100, 1e-5)
    assert almost == pytest.approx(gaussian_epsilon(1e-5, 2.5), rel=2e-3)


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.0, 0.01, 1000), (0.6, 0.3, 7)])
def test_delta_and_epsilon_are_inverse(sigma, rate, steps):
    for delta in (1e-3, 1e-6):
        epsilon = sampled_gaussian_epsilon(sigma, rate, steps, delta)
        assert sampled_gaussian_delta(sigma, rate, steps, epsilon) == pytest.approx(delta, rel=1e-4)


def test_limits():
    assert sampled_gaussian_epsilon(1.0, 0.1, 0, 1e-5) == 0
    assert sampled_gaussian_delta(1.0, 0.1, 0, 0.0) == 0
    assert sampled_gaussian_epsilon(0.0, 0.1, 1, 1e-5) == math.inf
    assert sampled_gaussian_delta(0.0, 0.1, 1, 100.0) == 1
    assert sampled_gaussian_epsilon(1.0, 0.1, 10, 0.0) == math.inf
    # The chance that the sample is used at all is below δ.
    assert sampled_gaussian_epsilon(1e-3, 1e-9, 1000, 1e-5) == 0


@pytest.mark.parametrize("rate", [1e-9, 0.1, 1 - 1e-15, 1.0])
@pytest.mark.parametrize("sigma", [1e-300, 1e-5, 0.02, 1e6, 1e300])
def test_extreme_noise_gives_numbers_without_warnings(sigma, rate):
    with np.errstate(all="raise", under="ignore"):
        for steps in (1, 1000):
            assert sampled_gaussian_epsilon(sigma, rate, steps, 1e-5) >= 0


def test_what_is_cut_off_is_paid_for(monkeypatch):
    exact = sampled_gaussian_epsilon(0.8, 0.02, 300, 1e-5)
    for tail in (1e-4, 1e-3):
        monkeypatch.setattr(sampled_gaussian, "TAIL_OF_ONE", tail)
        monkeypatch.setattr(sampled_gaussian, "TAIL_OF_ALL", tail)
        assert exact < sampled_gaussian_epsilon(0.8, 0.02, 300, 1e-5) < 1.2 * exact


@pytest.mark.parametrize("order", [1, -1])
def test_the_worse_direction_counts(monkeypatch, order):
    losses = (PrivacyLoss.none(), PrivacyLoss.everything())[::order]
    monkeypatch.setattr(sampled_gaussian, "sampled_gaussian_losses", lambda *_: losses)
    assert sampled_gaussian_epsilon(1.0, 0.1, 3, 1e-5) == math.inf
    assert sampled_gaussian_delta(1.0, 0.1, 3, 5.0) == 1


def test_rare_large_losses_do_not_make_the_grid_long():
    for loss in sampled_gaussian.sampled_gaussian_losses(0.7, 0.001, 1e-20):
        assert len(loss.self_compose(30).mass) < 1.5 * len(loss.mass)


@pytest.mark.parametrize("tail", [1e-20, 1e-3])
@pytest.mark.parametrize(("sigma", "rate"), [(0.7, 0.001), (2.0, 0.9)])
def test_no_mass_is_lost(sigma, rate, tail):
    for loss in sampled_gaussian.sampled_gaussian_losses(sigma, rate, tail):
        assert loss.mass.sum() + loss.infinity == pytest.approx(1, abs=1e-12)
        assert loss.infinity <= 2 * tail


@pytest.mark.parametrize("cells", [2, 4, 8])
def test_a_coarser_grid_is_more_pessimistic(monkeypatch, cells):
    exact = sampled_gaussian_epsilon(3.0, 0.02, 300, 1e-5)
    monkeypatch.setattr(sampled_gaussian, "CELLS_PER_SPREAD", cells)
    monkeypatch.setattr(sampled_gaussian, "FEWEST_CELLS", 2)
    sampled_gaussian.sampled_gaussian_losses.cache_clear()
    assert exact < sampled_gaussian_epsilon(3.0, 0.02, 300, 1e-5) < 1.05 * exact
    sampled_gaussian.sampled_gaussian_losses.cache_clear()


def test_calibration_takes_few_evaluations(monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return sampled_gaussian_epsilon(*arguments)

    monkeypatch.setattr(calibration, "sampled_gaussian_epsilon", counted)
    for epsilon in (1.0, 3.0, 8.0):
        calibrate_noise_multiplier(epsilon, 1e-5, 2048 / 60000, 1160)
    assert len(calls) <= 24


@pytest.mark.parametrize("epsilon", [1e-3, 1000.0])
@pytest.mark.parametrize("rate", [1e-3, 0.9, 1.0])
def test_calibration_for_unusual_promises(epsilon, rate):
    sigma = calibrate_noise_multiplier(epsilon, 1e-5, rate, 50)
    assert sampled_gaussian_epsilon(sigma, rate, 50, 1e-5) <= epsilon
    assert sampled_gaussian_epsilon(0.99 * sigma, rate, 50, 1e-5) > epsilon


def test_no_promise_and_no_iteration_need_no_noise():
    assert calibrate_noise_multiplier(math.inf, 1e-5, 0.1, 100) == 0
    assert calibrate_noise_multiplier(1.0, 1e-5, 0.1, 0) == 0


def test_a_delta_below_rounding_is_refused():
    message = misuse_message(calibrate_noise_multiplier, 1.0, 1e-14, 0.01, 1000)
    assert "delta" in message


@pytest.mark.parametrize("near", [1, 90, 100_000])
def test_steps_within_is_the_last_number_that_keeps_the_promise(near):
    steps = steps_within(2.0, 1e-5, 2.0, 0.1, near)
    assert sampled_gaussian_epsilon(2.0, 0.1, steps, 1e-5) <= 2.0
    assert sampled_gaussian_epsilon(2.0, 0.1, steps + 1, 1e-5) > 2.0


def test_steps_within_may_be_none_or_very_many(monkeypatch):
    assert steps_within(1.0, 1e-5, 0.1, 0.5) == 0
    monkeypatch.setattr(calibration, "MOST_STEPS", 5000)
    assert steps_within(1.0, 1e-5, 1e6, 0.5) == 5000


def test_the_library_agrees():
    ours = sampled_gaussian_epsilon(1.8, 2048 / 60000, 1160, 1e-5)
    theirs = second_opinion(1.8, 2048 / 60000, 1160, 1e-5)
    assert theirs.pld == pytest.approx(ours, rel=2e-3)
    assert ours < theirs.rdp < 1.2 * ours
    assert second_opinion(0.0, 0.1, 5, 1e-5).pld == math.inf
    assert second_opinion(1.0, 0.1, 0, 1e-5).rdp == 0


def test_the_library_is_loaded_only_for_a_second_opinion():
    code = """
import sys
import tacit.privacy.guarantee
tacit.privacy.guarantee.Privacy(3.0).budget(0.01, 100, clients=3)
for heavy in ("dp_accounting", "torch", "scipy.stats", "scipy.signal", "scipy.optimize"):
    assert heavy not in sys.modules, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("scale", [TAU, 8.0, 30.0])
def test_rounding_continuous_noise_gives_discrete_gaussian_noise(scale):
    """The law of the integer to which Gaussian noise is rounded at random, by quadrature."""
    inner = max(continuous_scale(scale), 1e-9)
    y = np.linspace(-9, 9, 20_001) * inner
    weights = np.exp(-0.5 * (y / inner) ** 2)
    weights /= weights.sum()
    k = np.arange(-400, 401)
    kernel = np.exp(-0.5 * ((k[:, None] - y) / TAU) ** 2)
    rounded = (kernel / kernel.sum(0)) @ weights
    discrete = np.exp(-0.5 * (k / scale) ** 2)
    np.testing.assert_allclose(rounded, discrete / discrete.sum(), atol=1e-12)


def test_rounding_costs_nothing_that_counts():
    assert 0 < rounding_distance(1) < 1e-136
    assert rounding_distance(10**15) == pytest.approx(1e15 * rounding_distance(1))
    assert 0.99999 < continuous_scale(1024.0) / 1024.0 < 1
