import json
import math

import pytest

from support.misuse import assert_mentions, misuse_message
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.sampled_gaussian import sampled_gaussian_epsilon
from tacit.privacy.planning import (
    Training,
    alternatives,
    epsilon_by_coalition,
    epsilon_by_round,
    plan_epsilon,
    plan_noise,
    relative_noise_by_epsilon,
    round_up,
)

MNIST = Training(rounds=40, samples=60_000, batch=2_048, clients=10)
CLIENTS = Training(rounds=20, clients=100, unit="client", delta=1e-3)


@pytest.fixture(scope="module")
def plan():
    return plan_noise(MNIST, 3.0)


def test_iterations_are_rounds_of_whole_batches():
    assert MNIST.iterations == 40 * 29
    assert MNIST.sampling_rate == 2_048 / 60_000
    assert Training(3, samples=100, batch=60).iterations == 3
    assert Training(3, samples=100, batch=10, iterations_per_round=7).iterations == 21
    assert CLIENTS.iterations == 20
    assert CLIENTS.sampling_rate == 1
    local = Training(20, samples=1000, batch=100, clients=50, unit="client", delta=1e-3)
    assert (local.iterations, local.sampling_rate) == (200, 1.0)


def test_a_plan_keeps_its_promise(plan):
    arguments = (MNIST.sampling_rate, MNIST.iterations, MNIST.delta)
    assert 2.99 < sampled_gaussian_epsilon(plan.noise_multiplier, *arguments) <= 3.0
    back = plan_epsilon(MNIST, plan.noise_multiplier)
    assert 2.99 < back.epsilon <= 3.0
    assert plan.relative_noise == plan.noise_multiplier / 2_048
    assert plan.noise_per_client == plan.noise_multiplier / 3
    assert plan_noise(Training(1, samples=100, batch=9), 1.0).noise_per_client is None


def test_a_plan_for_clients():
    plan = plan_epsilon(CLIENTS, 10.0)
    assert plan.epsilon == gaussian_epsilon(1e-3, math.sqrt(20) / 10)
    assert plan.relative_noise == 0.1
    assert plan.noise_per_client == pytest.approx(10 / math.sqrt(99))


def test_epsilon_by_round_rises_to_the_promise(plan):
    found = epsilon_by_round(plan)
    assert list(found) == [1, 5, 10, 15, 20, 25, 30, 35, 40]
    assert list(found.values()) == sorted(found.values())
    assert 2.99 < found[40] <= 3.0
    once = epsilon_by_round(plan_noise(Training(1, samples=100, batch=10), 1.0))
    assert list(once) == [1]
    odd = epsilon_by_round(plan_epsilon(Training(137, clients=9, unit="client"), 9.0))
    assert list(odd) == [1, 20, 40, 60, 80, 100, 120, 137]


def test_alternatives_at_the_same_epsilon(plan):
    found = alternatives(plan, fixed="epsilon")
    assert {other.epsilon for other in found.values()} == {3.0}
    assert list(found) == [
        *("half the rounds", "twice the rounds"),
        *("half the batch", "twice the batch", "four times the batch", "twice the clients"),
    ]
    noise = {change: other.relative_noise / plan.relative_noise for change, other in found.items()}
    assert noise["half the rounds"] < 1 < noise["twice the rounds"]
    assert noise["four times the batch"] < noise["twice the batch"] < 1 < noise["half the batch"]
    more = found["twice the clients"]
    assert more.noise_multiplier == plan.noise_multiplier
    assert more.noise_per_client == pytest.approx(plan.noise_multiplier / math.sqrt(19))


def test_alternatives_with_the_same_noise():
    plan = plan_epsilon(CLIENTS, 10.0)
    found = alternatives(plan, fixed="noise_multiplier")
    assert list(found) == ["half the rounds", "twice the rounds", "twice the clients"]
    assert {other.noise_multiplier for other in found.values()} == {10.0}
    assert found["half the rounds"].epsilon < plan.epsilon < found["twice the rounds"].epsilon
    assert found["twice the clients"].epsilon == plan.epsilon
    assert found["twice the clients"].relative_noise == plan.relative_noise / 2


def test_alternatives_that_are_possible():
    plan = plan_noise(Training(1, samples=100, batch=60, delta=1e-3), 1.0)
    assert list(alternatives(plan, fixed="epsilon")) == ["twice the rounds", "half the batch"]


def test_epsilon_by_coalition_grows_and_keeps_the_promise_for_the_one_planned(plan):
    found = epsilon_by_coalition(plan)
    assert set(found) >= {0, 1, 9}
    assert list(found.values()) == sorted(found.values())
    assert found[0] < 2.99 < found[1] <= 3.0 < found[2]
    trusting = plan_noise(Training(40, 60_000, 2_048, clients=5, honest=3), 3.0)
    held = [size for size, epsilon in epsilon_by_coalition(trusting).items() if epsilon <= 3.0]
    assert held == [0, 1, 2]
    alone = plan_noise(Training(1, samples=100, batch=9), 1.0)
    assert epsilon_by_coalition(alone) == {}


def test_noise_falls_with_epsilon_and_with_the_batch(plan):
    curves = relative_noise_by_epsilon(plan, points=4)
    assert list(curves) == [1_024, 2_048, 4_096]
    for pairs in curves.values():
        epsilons, noise = zip(*pairs, strict=True)
        assert list(epsilons) == sorted(epsilons, reverse=True)
        assert list(noise) == sorted(noise)
        assert epsilons[0] == pytest.approx(10.0, rel=0.01)
        assert epsilons[-1] == pytest.approx(0.3, rel=0.01)
    assert curves[4_096][-1][1] < curves[2_048][-1][1] < curves[1_024][-1][1]
    few = relative_noise_by_epsilon(plan_epsilon(CLIENTS, 10.0), points=2)
    assert list(few) == [50, 100, 200]
    all_samples = plan_noise(Training(2, samples=50, batch=50, delta=1e-3), 1.0)
    assert list(relative_noise_by_epsilon(all_samples, points=2)) == [25, 50]


def test_a_plan_as_json(plan):
    values = json.loads(json.dumps(plan.as_dict(), allow_nan=False))
    assert values["iterations"] == 1160
    assert values["honest"] == 9
    assert values["noise_multiplier"] == plan.noise_multiplier
    bare = plan_epsilon(Training(1, samples=100, batch=9, delta=1e-3), 1e-7).as_dict()
    assert (bare["epsilon"], bare["honest"]) == (None, None)


@pytest.mark.parametrize(
    ("value", "digits", "rounded"),
    [(1.80131, 4, 1.802), (3.0, 3, 3.0), (0.1 + 0.2, 2, 0.3), (12_345.0, 3, 12_400.0)],
)
def test_rounding_up(value, digits, rounded):
    assert round_up(value, digits) == pytest.approx(rounded, rel=1e-12)
    assert round_up(0.0, 3) == 0
    assert round_up(math.inf, 3) == math.inf


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, ["rounds is 0", "at least 1"]),
        ({"batch": 0}, ["batch is 0"]),
        ({"samples": -5}, ["samples is -5"]),
        ({"batch": 60_001}, ["batch is 60001", "60000 samples", "at most 60000"]),
        ({"batch": None}, ["depends on batch"]),
        ({"batch": None, "samples": None}, ["samples and batch, of all clients"]),
        ({"unit": "client"}, ["depends on clients"]),
        ({"unit": "clients"}, ["unit is 'clients'"]),
        ({"honest": 3}, ["honest is 3", "clients"]),
        ({"honest": 6, "clients": 5}, ["honest is 6", "5 clients"]),
        ({"delta": 1e-4}, ["delta is 0.0001", "60,000 samples"]),
        ({"delta": 0.0}, ["delta is 0.0"]),
        ({"iterations_per_round": 0}, ["iterations_per_round is 0"]),
    ],
)
def test_impossible_trainings(options, words):
    values = {"rounds": 2, "samples": 60_000, "batch": 100} | options
    assert_mentions(misuse_message(Training, **values), *words)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_impossible_noise_and_epsilon(value):
    assert_mentions(misuse_message(plan_noise, MNIST, value), f"epsilon is {value}")
    assert_mentions(misuse_message(plan_epsilon, MNIST, value), f"noise_multiplier is {value}")
