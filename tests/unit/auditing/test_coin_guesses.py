import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from tacit.auditing.scoring.coin_guesses import (
    gaussian_trade_off_epsilon,
    independent_trials_bound,
    one_run_bound,
    one_run_epsilon,
    one_run_p_value,
)
from tacit.core.errors import Misuse
from tacit.privacy.accounting.gaussian import gaussian_epsilon


def most_likely(coins, guesses, correct, epsilon, delta):
    """The largest P[V ≥ v] of all (ε, δ)-private releases of guesses: a linear program.

    Permuting coins and swapping their sides changes neither privacy nor V, and privacy is convex:
    a worst release depends on the number k of correct guesses only. Variables are P[V = k] and the
    excess over e^ε times the neighbour's probability, where one correct guess becomes wrong and
    where one wrong guess becomes correct.
    """
    r, most = guesses, math.exp(epsilon)
    size = 3 * r + 1
    rows = np.zeros((2 * r + 1, size))
    for k in range(1, r + 1):
        one, other = k / coins, (r - k + 1) / coins
        rows[k - 1, [k, k - 1, r + k]] = one, -most * other, -1
        rows[r + k - 1, [k - 1, k, 2 * r + k]] = other, -most * one, -1
    rows[-1, r + 1 :] = 1
    limits = np.append(np.zeros(2 * r), delta)
    gain = np.zeros(size)
    gain[correct : r + 1] = 1
    total = (np.arange(size) <= r).astype(float)[None]
    return -optimize.linprog(-gain, rows, limits, total, [1.0], method="highs").fun


def test_the_one_run_theorem_covers_every_release():
    sizes = ((1, 1), (2, 1), (2, 2), (4, 3), (9, 9), (20, 5), (20, 20), (40, 40))
    tested = 0
    for epsilon, delta in itertools.product((0.0, 0.7, 2.0), (0.0, 1e-4, 0.01)):
        for coins, guesses in sizes:
            for correct in range(1, guesses + 1):
                claimed = one_run_p_value(coins, guesses, correct, epsilon, delta)
                worst = most_likely(coins, guesses, correct, epsilon, delta)
                assert claimed >= worst - 1e-6
                if delta == 0:  # Randomized response is the worst.
                    assert claimed == pytest.approx(worst, abs=1e-6)
                tested += claimed < 1
    assert tested > 300


def test_above_one_half_the_published_bound_is_not_used():
    """There a release that fails only when it must does better than the bound says."""
    q = 1 / (1 + math.exp(-2.0))
    published = 1 - (1 - q) ** 2 + 2 * 2 * 0.02 * (1 - q) ** 2
    assert most_likely(2, 2, 1, 2.0, 0.02) > published + 1e-3
    assert one_run_p_value(2, 2, 1, 2.0, 0.02) == 1.0


def test_few_coins_by_hand():
    """Two coins: q² + 4δ times the larger of P[one correct] and P[none or one]/2, q = 1/2."""
    assert one_run_p_value(2, 2, 2, 0.0, 0.01) == pytest.approx(0.25 + 0.04 * 0.5)
    # The failed coins count, also those that are not guessed.
    assert one_run_p_value(5, 2, 2, 0.0, 0.01) == pytest.approx(0.25 + 0.1 * 0.5)
    assert one_run_p_value(5, 3, 0, 1.0, 0.1) == 1.0


def test_the_slope_is_the_steepest_over_any_number_of_failures():
    law = stats.binom(20, 1 / (1 + math.exp(-0.5)))
    slope = max((law.sf(17 - i) - law.sf(17)) / i for i in range(1, 21))
    expected = law.sf(17) + 2 * 40 * 1e-3 * slope
    assert one_run_p_value(40, 20, 18, 0.5, 1e-3) == pytest.approx(expected)


def test_an_epsilon_is_rejected_exactly_up_to_the_bound():
    found = one_run_epsilon(200, 100, 90, 1e-5)
    assert one_run_p_value(200, 100, 90, found, 1e-5) == pytest.approx(0.05, abs=1e-5)
    assert one_run_epsilon(200, 100, 90, 1e-3) < found < one_run_epsilon(200, 100, 90, 0.0)
    assert one_run_epsilon(200, 100, 52, 0.0) == 0.0


def answers(rng, epsilon, delta, trials):
    """Randomized response that fails with probability δ, and its coins."""
    coins = rng.random(trials) < 0.5
    true = rng.random(trials) < 1 / (1 + math.exp(-epsilon))
    failed = rng.random(trials) < delta
    surely = np.where(failed, 3.0, 1.0) * np.where(true | failed, 1.0, -1.0)
    return np.where(coins, surely, -surely), coins


@pytest.mark.parametrize(
    ("bound", "delta"),
    [
        (independent_trials_bound, 0.0),
        (independent_trials_bound, 0.01),
        (one_run_bound, 0.0),
        (one_run_bound, 1e-4),
    ],
)
def test_randomized_response_is_seldom_overestimated(bound, delta):
    rng, experiments = np.random.default_rng(3), 150
    found = [
        bound(*answers(rng, 1.0, delta, 400), delta, confidence=0.8).epsilon
        for _ in range(experiments)
    ]
    wrong = int((np.array(found) > 1.0).sum())
    assert stats.binomtest(wrong, experiments, 0.2, alternative="greater").pvalue > 0.01
    assert np.median(found) > 0.3


def test_ignoring_delta_would_overestimate():
    """With certain answers in 1 % of trials no pure ε holds, and the bound at δ = 0 shows it."""
    scores, coins = answers(np.random.default_rng(4), 1.0, 0.01, 40_000)
    assert independent_trials_bound(scores, coins, 0.0).epsilon > 2.0
    assert independent_trials_bound(scores, coins, 0.01).epsilon < 1.0


def gaussian_trials(mu, trials, seed=0):
    rng = np.random.default_rng(seed)
    coins = rng.random(trials) < 0.5
    return rng.normal(size=trials) + np.where(coins, mu / 2, -mu / 2), coins


def test_both_kinds_of_bound_on_gaussian_noise():
    scores, coins = gaussian_trials(1.0, 50_000)
    true = gaussian_epsilon(1e-5, 1.0)
    free = independent_trials_bound(scores, coins, 1e-5)
    assumed = gaussian_trade_off_epsilon(scores, coins, 1e-5)
    assert 0.5 * true < free.epsilon < assumed < true
    assert assumed > 0.95 * true
    assert free.coins == 37_500
    assert 0 < free.correct <= free.guesses < free.coins


def test_no_signal_shows_nothing():
    scores, coins = gaussian_trials(0.0, 5_000)
    assert independent_trials_bound(scores, coins, 1e-5).epsilon < 0.05
    assert one_run_bound(scores, coins, 1e-5).epsilon < 0.05
    assert gaussian_trade_off_epsilon(scores, coins, 1e-5) < 0.2
    assert independent_trials_bound(np.zeros(100), coins[:100], 1e-5).epsilon == 0.0


def test_bad_arguments_are_refused():
    with pytest.raises(Misuse, match="one coin per score"):
        one_run_bound([0.1, 0.2], [True], 1e-5)
    with pytest.raises(Misuse, match="at most as many"):
        one_run_p_value(3, 4, 2, 1.0, 0.0)
