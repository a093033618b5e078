import json
import math

import pytest

from support.misuse import assert_mentions, misuse_message
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.sampled_gaussian import sampled_gaussian_epsilon
from tacit.privacy.guarantee import RESERVE, Budget, Privacy

RATE, STEPS = 0.05, 200


@pytest.fixture(scope="module")
def budget():
    return Privacy(2.0, 1e-5).budget(RATE, STEPS, clients=10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0.0}, ["epsilon is 0.0", "above 0", "math.inf"]),
        ({"epsilon": -3}, ["epsilon is -3"]),
        ({"epsilon": math.nan}, ["epsilon is nan"]),
        ({"epsilon": -math.inf}, ["epsilon is -inf"]),
        ({"epsilon": "3"}, ["epsilon is '3'"]),
        ({"epsilon": 1.0, "delta": 0.0}, ["delta is 0.0", "above 0 and below 1"]),
        ({"epsilon": 1.0, "delta": 1.0}, ["delta is 1.0"]),
        ({"epsilon": 1.0, "delta": math.nan}, ["delta is nan"]),
        ({"epsilon": 1.0, "unit": "user"}, ["unit is 'user'", '"client" (all data']),
        ({"epsilon": 1.0, "honest": 0}, ["honest is 0", "at least 1"]),
        ({"epsilon": 1.0, "honest": 1.5}, ["honest is 1.5"]),
        ({"epsilon": 1.0, "noise_multiplier": 0.0}, ["noise_multiplier is 0.0", "above 0"]),
        ({"epsilon": math.inf, "noise_multiplier": 1.0}, ["epsilon = inf", "no noise is added"]),
        ({"epsilon": 1.0, "clip": 0.0}, ["clip is 0.0", "above 0"]),
        ({"epsilon": 1.0, "clip": -1.0}, ["clip is -1.0"]),
        ({"epsilon": 1.0, "clip": math.nan}, ["clip is nan"]),
        ({"epsilon": 1.0, "clip": math.inf}, ["Without clipping", "clip = 1.0", "epsilon = inf"]),
        ({"epsilon": 1.0, "samples": 0}, ["samples is 0"]),
        ({"epsilon": 1.0, "sampling_rate": 0.0}, ["sampling_rate is 0.0"]),
        ({"epsilon": 1.0, "sampling_rate": 1.5}, ["sampling_rate is 1.5", "at most 1"]),
    ],
)
def test_impossible_promises(options, words):
    assert_mentions(misuse_message(Privacy, **options), *words)


def test_delta_must_be_below_one_over_the_number_of_units():
    promise = Privacy(1.0, 1e-3)
    promise.check(samples=999, clients=10_000)
    message = misuse_message(promise.check, samples=1000)
    assert_mentions(message, "delta is 0.001", "1,000 samples", "1/1000", "e.g. 0.0001")
    message = misuse_message(Privacy(1.0, 0.1, "client").check, samples=10**6, clients=10)
    assert_mentions(message, "10 clients", "e.g. 0.01")
    # Without a guarantee δ means nothing.
    Privacy(math.inf, 1e-3).check(samples=1000)


def test_honest_clients():
    assert Privacy(1.0).honest_among(5) == 4
    assert Privacy(1.0).honest_among(1) == 1
    assert Privacy(1.0, honest=2).honest_among(5) == 2
    message = misuse_message(Privacy(1.0, honest=6).check, samples=100, clients=5)
    assert_mentions(message, "honest is 6", "5 clients", "at most 4")


def test_a_budget_keeps_its_promise_with_little_to_spare(budget):
    assert budget.honest == 9
    assert budget.spent(0) == 0
    assert 0 < budget.spent(STEPS // 2) < budget.spent(STEPS) <= 2.0
    assert budget.spent(STEPS) > 0.998 * 2.0
    assert STEPS <= budget.allowed_steps <= 1.01 * STEPS
    assert budget.spent(int(budget.allowed_steps)) <= 2.0 < budget.spent(budget.allowed_steps + 1)


def test_clients_are_not_sampled():
    budget = Privacy(2.0, 1e-3, "client").budget(1.0, 16, clients=10)
    assert budget.unit == "client"
    assert budget.spent(16) == gaussian_epsilon(1e-3, 4 / budget.noise_multiplier)


def test_noise_of_fewer_honest_clients_protects_less(budget):
    assert budget.epsilon_against(9) == budget.spent(STEPS)
    half = sampled_gaussian_epsilon(budget.noise_multiplier * math.sqrt(4 / 9), RATE, STEPS, 1e-5)
    assert budget.epsilon_against(4) == half
    assert budget.epsilon_against(4, steps=10) < half
    assert budget.epsilon_against(10) < 2.0
    assert budget.epsilon_against(0) == math.inf


def test_calibration_leaves_room_for_extra_delta(budget):
    roomy = Privacy(2.0, 1e-5).budget(RATE, STEPS, clients=10, extra_delta=5e-6)
    assert roomy.noise_multiplier > budget.noise_multiplier
    assert roomy.spent(STEPS) <= 2.0
    expected = sampled_gaussian_epsilon(roomy.noise_multiplier, RATE, STEPS, 5e-6)
    assert roomy.spent(STEPS) == expected
    message = misuse_message(Privacy(2.0).budget, RATE, STEPS, clients=10, extra_delta=1e-5)
    assert_mentions(message, "extra_delta")


def test_noise_that_is_almost_gaussian_always_fits(budget):
    distance = RESERVE * 1e-5 / (1 + math.exp(2.0))
    almost = budget.with_distance(distance)
    assert almost.extra_delta == pytest.approx(RESERVE * 1e-5)
    assert almost.spent(STEPS) <= 2.0
    assert budget.with_distance(0.0) == budget
    assert_mentions(misuse_message(budget.with_distance, 1e-3), "0.001", "extra_delta")
    assert_mentions(misuse_message(budget.with_distance, 1e-6), "8.4e-06 of delta")


def test_no_promise():
    budget = Privacy(math.inf).budget(RATE, STEPS, clients=4)
    assert budget.noise_multiplier == 0
    assert budget.spent(0) == 0
    assert budget.spent(1) == math.inf
    assert budget.allowed_steps == math.inf
    assert budget.epsilon_against(2) == math.inf
    assert budget.with_distance(0.5) == budget
    assert Budget.from_dict(json.loads(json.dumps(budget.as_dict(), allow_nan=False))) == budget


def test_budgets_survive_a_file(budget):
    again = Budget.from_dict(json.loads(json.dumps(budget.as_dict(), allow_nan=False)))
    assert again == budget
    assert again.spent(50) == budget.spent(50)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": 1}, ["colour", "keys"]),
        ({"noise_multiplier": -1.0}, ["noise_multiplier is -1.0"]),
        ({"steps": "many"}, ["steps is 'many'"]),
        ({"epsilon": 0}, ["epsilon is 0"]),
        ({"extra_delta": 1.0}, ["extra_delta is 1.0"]),
        ({"sampling_rate": None}, ["sampling_rate is None"]),
    ],
)
def test_a_damaged_budget_is_refused(budget, change, words):
    assert_mentions(misuse_message(Budget.from_dict, budget.as_dict() | change), *words)


def test_a_budget_with_a_missing_key_is_refused(budget):
    values = budget.as_dict()
    del values["delta"]
    assert_mentions(misuse_message(Budget.from_dict, values), "delta")
