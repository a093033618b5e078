"""Every accountant refuses what has no meaning, and says what to give."""

import math

import pytest

from tacit.core.errors import Misuse
from tacit.privacy.accounting.calibration import calibrate_noise_multiplier
from tacit.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon
from tacit.privacy.accounting.integer_noise import continuous_scale, rounding_distance
from tacit.privacy.accounting.laplace import sum_log_density, sum_pure_epsilon, sum_tail
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.privacy.accounting.randomized_response import (
    rdp_epsilon,
    response_delta,
    response_epsilon,
    response_method,
    response_pure_epsilon,
    response_rdp,
)
from tacit.privacy.accounting.sampled_gaussian import (
    sampled_gaussian_delta,
    sampled_gaussian_epsilon,
)
from tacit.privacy.accounting.second_opinion import second_opinion
from tacit.privacy.correlated_noise import precision


@pytest.mark.parametrize(
    "call",
    [
        lambda: gaussian_delta(-1.0, 1.0),
        lambda: gaussian_epsilon(1.5, 1.0),
        lambda: gaussian_epsilon(1e-5, -1.0),
        lambda: rdp_epsilon(lambda alpha: alpha, -1.0),
        lambda: precision([(0, 0)], 3, 1.0, 1.0),
        lambda: precision([(0, 3)], 3, 1.0, 1.0),
        lambda: precision([(0.5, 1.0)], 3, 1.0, 1.0),
        lambda: precision([(0, 1)], 3, -1.0, 1.0),
        lambda: precision([(0, 1)], 0, 1.0, 1.0),
        lambda: sum_pure_epsilon(-1.0, 1),
        lambda: sum_pure_epsilon(math.nan, 1),
        lambda: sum_pure_epsilon("1", 1),
        lambda: sum_pure_epsilon(1.0, -1),
        lambda: sum_pure_epsilon(1.0, 1.5),
        lambda: sum_log_density(0, 1.0),
        lambda: sum_tail(True, 1.0),
        lambda: PrivacyLoss.laplace(-0.1),
        lambda: PrivacyLoss.laplace(0.1, -1),
        lambda: PrivacyLoss.laplace(0.1).self_compose(-1),
        lambda: PrivacyLoss.laplace(0.1).self_compose(2.0),
        lambda: PrivacyLoss.laplace(0.1).epsilon(1.0),
        lambda: PrivacyLoss.laplace(0.1).delta(-1.0),
        lambda: PrivacyLoss.laplace(0.1, step=0.0),
        lambda: PrivacyLoss.laplace(0.1, step=math.nan),
        lambda: sampled_gaussian_epsilon(-1.0, 0.1, 1, 1e-5),
        lambda: sampled_gaussian_epsilon(math.nan, 0.1, 1, 1e-5),
        lambda: sampled_gaussian_epsilon(1.0, 0.0, 1, 1e-5),
        lambda: sampled_gaussian_epsilon(1.0, 1.1, 1, 1e-5),
        lambda: sampled_gaussian_epsilon(1.0, 0.1, -1, 1e-5),
        lambda: sampled_gaussian_epsilon(1.0, 0.1, 1.5, 1e-5),
        lambda: sampled_gaussian_epsilon(1.0, 0.1, 1, 1.0),
        lambda: sampled_gaussian_delta(1.0, 0.1, 1, -1.0),
        lambda: calibrate_noise_multiplier(0.0, 1e-5, 0.1, 1),
        lambda: calibrate_noise_multiplier(1.0, 0.0, 0.1, 1),
        lambda: second_opinion(1.0, 2.0, 1, 1e-5),
        lambda: continuous_scale(1.0),
        lambda: rounding_distance(-1),
        lambda: response_delta(-1.0, 1.0, 1),
        lambda: response_delta(1.0, math.nan, 1),
        lambda: response_delta(1.0, 1.0, 0),
        lambda: response_epsilon(1.0, 1.0, 1),
        lambda: response_pure_epsilon(1.0, 3, rounds=0),
        lambda: response_rdp(1.0, 1.0),
        lambda: response_method(2.5),
    ],
)
def test_invalid_arguments_raise_misuse_with_a_remedy(call):
    with pytest.raises(Misuse) as caught:
        call()
    assert caught.value.remedy
