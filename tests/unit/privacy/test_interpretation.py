"""What ε means: against mechanisms for which the best attack is known."""

import doctest
import math

import numpy as np
import pytest
from scipy import stats

from tacit.privacy import interpretation
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.interpretation import (
    SCALE,
    correct_guesses,
    in_short,
    in_words,
    strength,
    true_positives,
)

EPSILONS = [0.0, 0.1, 1.0, 3.0, 8.0]


def test_examples():
    assert doctest.testmod(interpretation).failed == 0


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response_attains_the_bounds(epsilon):
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert correct_guesses(epsilon) == pytest.approx(right)
    # The test that believes the response has this rate of false positives.
    assert true_positives(epsilon, rate=1 - right) == pytest.approx(right)


@pytest.mark.parametrize("distance", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("delta", [1e-6, 1e-2])
def test_the_best_test_of_gaussian_noise_stays_below_the_bounds(distance, delta):
    epsilon = gaussian_epsilon(delta, distance)
    assert stats.norm.cdf(distance / 2) <= correct_guesses(epsilon, delta)
    for rate in np.linspace(1e-4, 0.5, 20):
        best = stats.norm.sf(stats.norm.isf(rate) - distance)
        assert best <= true_positives(epsilon, delta, rate) + 1e-9


def test_nothing_overflows_and_nothing_is_more_than_certain():
    for epsilon in (700.0, 80_000.0, math.inf):
        assert correct_guesses(epsilon) == true_positives(epsilon) == 1.0
    assert correct_guesses(0.0) == 0.5
    assert true_positives(0.0) == 0.01


@pytest.mark.parametrize(
    ("epsilon", "word"),
    [(0.9, "strong"), (1, "strong"), (1.01, "moderate"), (3, "moderate"), (3.2, "weak"),
     (9.99, "weak"), (10, "vacuous"), (80_000, "vacuous")],
)  # fmt: skip
def test_words(epsilon, word):
    assert strength(epsilon) == word
    assert f" is {word}" in in_words(epsilon, 1e-5, "sample")
    assert f" is {word}" in in_short(epsilon, 1e-5)


def test_eighty_thousand_protects_nothing():
    text = in_words(80_000, 1e-5, "client")
    assert "ε = 80,000 at δ = 1e-05 is vacuous" in text
    assert "100 % of the time" in text
    assert "protects nothing" in text


def test_the_scale_says_what_the_numbers_say():
    for epsilon, percent in ((1, "73.2 %"), (3, "95.3 %"), (10 - 1e-9, "99.996 %")):
        assert percent in SCALE
        assert f"at most {percent}" in in_words(epsilon, 0, "sample")
