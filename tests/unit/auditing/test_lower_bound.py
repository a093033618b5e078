import math

import numpy as np
import pytest
from scipy import stats

from support.accounting import sum_delta
from tacit.auditing.scoring import lower_bound as module
from tacit.auditing.scoring.lower_bound import lower_bound
from tacit.core.errors import Misuse


def responses(generator, epsilon, members, others):
    """Answers of randomized response: 1 for most members, 0 for most others."""
    p = 1 / (1 + math.exp(-epsilon))
    return generator.random(members) < p, generator.random(others) < 1 - p


@pytest.mark.parametrize("size", [(60, 60), (300, 90)])
def test_randomized_response_is_seldom_overestimated(size):
    """The true ε is above the bound in 80 % of 250 experiments, up to their own error."""
    generator, trials = np.random.default_rng(1), 250
    wrong = sum(
        lower_bound(*responses(generator, 1.0, *size), delta=0.0, confidence=0.8).epsilon > 1.0
        for _ in range(trials)
    )
    assert stats.binomtest(wrong, trials, 0.2, alternative="greater").pvalue > 0.01


def test_laplace_is_seldom_overestimated_although_thresholds_are_chosen():
    generator, trials, confidence = np.random.default_rng(2), 250, 0.8
    epsilon = 0.5
    delta = sum_delta(epsilon, 1.0, 1)
    for order in (np.asarray, np.sort):  # the order in which scores come must not matter
        wrong = 0
        for _ in range(trials):
            members, others = (
                order(1.0 + generator.laplace(size=120)),
                order(generator.laplace(size=120)),
            )
            wrong += lower_bound(members, others, delta, confidence).epsilon > epsilon
        assert stats.binomtest(wrong, trials, 1 - confidence, alternative="greater").pvalue > 0.01


def test_useless_scores_show_nothing_most_of_the_time():
    generator = np.random.default_rng(3)
    shown = [
        lower_bound(*generator.standard_normal((2, 100)), delta=0.0, confidence=0.9).epsilon > 0
        for _ in range(200)
    ]
    assert np.mean(shown) < 0.1


def test_the_true_epsilon_is_nearly_found_with_many_scores():
    generator = np.random.default_rng(4)
    members, others = responses(generator, 1.0, 100_000, 100_000)
    assert 0.97 < lower_bound(members, others, 0.0).epsilon <= 1.0
    found = lower_bound(1.0 + generator.laplace(size=100_000), generator.laplace(size=100_000), 0.0)
    assert 0.95 < found.epsilon <= 1.0
    strong = lower_bound(*responses(generator, 4.0, 100_000, 100_000), delta=1e-5)
    assert 3.85 < strong.epsilon <= 4.0


@pytest.mark.parametrize("seed", range(3, 8))
def test_the_threshold_is_not_one_that_looked_good_by_chance(seed):
    generator = np.random.default_rng(seed)
    found = lower_bound(1.0 + generator.laplace(size=20_000), generator.laplace(size=20_000), 0.0)
    assert 0.85 < found.epsilon <= 1.0


def test_both_directions_count():
    """Few members are surely caught, or few others are surely cleared: each shows a large ε."""
    half = np.arange(2000) % 2
    caught = lower_bound(half, np.zeros(2000), 0.0)
    cleared = lower_bound(np.ones(2000), half, 0.0)
    assert caught.epsilon == pytest.approx(cleared.epsilon, rel=0.1)
    assert caught.epsilon > 4
    assert caught.fpr[1] < 0.01
    assert cleared.tpr[0] > 0.99


def test_intervals_are_clopper_and_pearsons():
    members, others = np.arange(300) % 3 > 0, np.arange(200) % 5 > 3
    found = lower_bound(members, others, 0.01, confidence=0.9)
    assert (found.members, found.nonmembers) == (150, 100)
    assert found.threshold == 1.0
    caught = int(sum(module._halves(members.astype(float))[1]))
    mistaken = int(sum(module._halves(others.astype(float))[1]))
    tpr = stats.binomtest(caught, 150).proportion_ci(0.9, method="exact")
    fpr = stats.binomtest(mistaken, 100).proportion_ci(0.9, method="exact")
    assert found.tpr == pytest.approx((tpr.low, tpr.high))
    assert found.fpr == pytest.approx((fpr.low, fpr.high))
    shown = [math.log((tpr.low - 0.01) / fpr.high), math.log((1 - fpr.high - 0.01) / (1 - tpr.low))]
    assert found.epsilon == pytest.approx(max(shown))


def test_a_larger_delta_and_confidence_show_less():
    scores = responses(np.random.default_rng(5), 2.0, 1000, 1000)
    base = lower_bound(*scores, delta=0.0)
    assert lower_bound(*scores, delta=0.05).epsilon < base.epsilon
    assert lower_bound(*scores, delta=0.0, confidence=0.999).epsilon < base.epsilon
    assert lower_bound(*scores, delta=0.0) == base  # nothing random


def test_the_bound_of_a_perfect_attack():
    perfect = lower_bound(np.ones(200), np.zeros(200), 0.0)
    assert 3 < perfect.epsilon < 4
    assert str(perfect).startswith(
        f"the attack shows epsilon >= {perfect.epsilon:.4g} at delta = 0"
    )
    assert lower_bound([1.0, 1.0], [0.0, 0.0], 0.0).epsilon == 0


def test_infinite_scores_are_scores():
    assert lower_bound(np.full(200, np.inf), np.full(200, -np.inf), 0.0).epsilon > 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: lower_bound([1.0], [0.0, 0.0], 0.0),
        lambda: lower_bound([1.0, math.nan], [0.0, 0.0], 0.0),
        lambda: lower_bound([[1.0, 2.0]], [0.0, 0.0], 0.0),
        lambda: lower_bound([1.0, 1.0], [0.0, 0.0], 1.0),
        lambda: lower_bound([1.0, 1.0], [0.0, 0.0], 0.0, confidence=1.0),
    ],
)
def test_invalid_arguments_have_a_remedy(call):
    with pytest.raises(Misuse) as refusal:
        call()
    assert refusal.value.remedy
