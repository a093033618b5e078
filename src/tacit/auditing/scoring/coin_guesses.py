"""Lower bounds on ε from guesses of fair coins.

A canary is inserted, or gets its sign, by a fair coin. The adversary scores each coin: the sign of
the score is its guess, the size says how sure it is, and it abstains where the score is small.

Independent trials, one coin each. Let p be the probability of a guess and q the probability that a
guess is correct. An (ε, δ)-private release has P[+|+] ≤ e^ε P[+|−] + δ, and the same with signs
swapped. The mean of both is p q ≤ e^ε p (1 − q) + δ, so

    ε ≥ log((q − δ/p) / (1 − q))

which grows with p and with q: lower Clopper–Pearson limits of both give a lower limit of ε. That
holds whatever is guessed, also if it is always heads. How large a score must be for a guess, and
whether to guess heads, tails or both, is chosen on a quarter of the trials, which are then left
out.

One run with m coins, which is (ε, δ)-private in each of them (Steinke, Nasr & Jagielski 2023,
theorem 5.2). If at most r coins are guessed, the number V of correct guesses has

    P[V ≥ v] ≤ f(v) + 2 m δ max_{1≤i≤m} (f(v − i) − f(v))/i,   f(v) = P[Binomial(r, q) ≥ v]

with q = e^ε/(1 + e^ε). The first term is randomized response. For the second, V is at most a
Binomial(r, q) plus a number F of coins for which privacy failed, E F ≤ 2mδ, and f(v − F) lies below
f(v) plus F times the steepest slope from v. A release may choose when to fail by what it has drawn,
so this is used as a p-value of at most ½ only. Above, linear programs that find the worst release
exactly give more in a few cases; below, in none that the tests solve. An ε for which the p-value is
at most 1 − confidence is rejected, and every smaller one with it: a release private with less is
private with more.

Gaussian trade-off. If no test is better than one between N(0, 1) and N(μ, 1), a coin is guessed
with probability at most Φ(μ/2). The share of correct signs therefore bounds μ, and μ gives ε(δ).
That is a statement about Gaussian noise only: other releases may have the same share at less ε.
The same for T sums over Poisson samples: the share bounds the noise multiplier, which gives ε(δ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from tacit.auditing.scoring.roc import Array, as_scores, clopper_pearson
from tacit.core.checks import check_number
from tacit.core.errors import Misuse
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.sampled_gaussian import (
    sampled_gaussian_delta,
    sampled_gaussian_epsilon,
)

Coins = NDArray[np.bool_]
PILOT = 4  # one in so many trials is used to choose the threshold
# Shares of coins that are guessed: tried on the pilot, or in one run, where each costs confidence.
TRIED_SHARES = np.geomspace(0.001, 1.0, 25)
ONE_RUN_SHARES = (0.1, 0.3, 1.0)
# Part of 1 − confidence that is spent on the probability of a guess, if δ is not zero.
ON_GUESSING = 0.05
LARGEST = 50.0  # no larger ε is looked for
# Noise multipliers between which the one that explains the guesses is looked for.
LEAST_MULTIPLIER, MOST_MULTIPLIER = 0.1, 1e4


@dataclass(frozen=True)
class CoinBound:
    """With the given confidence the guesses show that ε is at least `epsilon` at `delta`."""

    epsilon: float
    delta: float
    confidence: float
    coins: int  # from which the bound is computed
    guesses: int
    correct: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "epsilon_at_least": self.epsilon,
            "delta": self.delta,
            "confidence": self.confidence,
            "coins": self.coins,
            "guesses": self.guesses,
            "correct": self.correct,
        }


def independent_trials_bound(
    scores: Any, coins: Any, delta: float, confidence: float = 0.95
) -> CoinBound:
    """A lower bound on ε from scores [n] of independent trials with one coin each.

    Args:
        scores: Positive where the adversary believes in heads, larger where it is surer.
        coins: The coins, bool [n]: True for heads.
        delta: δ of the privacy that is tested.
        confidence: Probability with which the bound holds.
    """
    scores, coins = _checked(scores, coins, delta, confidence)
    order = np.random.default_rng(len(scores)).permutation(len(scores))
    pilot, rest = order[: len(order) // PILOT], order[len(order) // PILOT :]
    tried = _thresholds(scores[pilot])
    # One of many thresholds will look good by chance. A stricter tail prefers one that does not.
    strict = 1 - (1 - confidence) / len(tried)
    chosen = max(tried, key=lambda x: _at_least(scores[pilot], coins[pilot], x, delta, strict)[0])
    epsilon, *counts = _at_least(scores[rest], coins[rest], chosen, delta, confidence)
    return CoinBound(max(0.0, epsilon), float(delta), float(confidence), len(rest), *counts)


def _thresholds(scores: Array) -> list[tuple[float, float]]:
    """Pairs to try: up to the first, tails are guessed, and from the second on, heads."""
    both = [(-size, size) for size in np.quantile(np.abs(scores), 1 - TRIED_SHARES)]
    heads = [(-math.inf, score) for score in np.quantile(scores, 1 - TRIED_SHARES)]
    return [*both, *heads, *((score, math.inf) for score in np.quantile(scores, TRIED_SHARES))]


def _at_least(
    scores: Array, coins: Coins, ends: tuple[float, float], delta: float, confidence: float
) -> tuple[float, int, int]:
    """The bound if scores outside of these ends are guesses; how many, and how many correct."""
    tails, heads = (scores <= ends[0]) & (scores != 0), (scores >= ends[1]) & (scores != 0)
    count = int(tails.sum() + heads.sum())
    correct = int((tails & ~coins).sum() + (heads & coins).sum())
    tail = 1 - confidence
    on_guessing = ON_GUESSING * tail if delta else 0.0
    p = _lower_limit(count, len(scores), on_guessing) if delta else 1.0
    q = _lower_limit(correct, count, tail - on_guessing)
    if q <= delta / max(p, 1e-300):
        return -math.inf, count, correct
    return math.log(q - delta / p) - math.log1p(-q), count, correct


def one_run_p_value(coins: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The most likely it can be to guess so many coins of one (ε, δ)-private run correctly.

    Probabilities above one half are given as 1: the theorem is not used there.

    Args:
        coins: m, all coins of the run.
        guesses: r, how many of them are guessed.
        correct: v, how many guesses are correct.
        epsilon: ε of the privacy that is tested.
        delta: δ of the privacy that is tested.
    """
    if not 0 <= correct <= guesses <= coins:
        raise Misuse(
            f"{correct} correct of {guesses} guesses of {coins} coins.",
            "Give at most as many guesses as coins, and correct ones as guesses.",
        )
    if correct == 0:
        return 1.0
    q = float(special.expit(epsilon))
    above = float(special.bdtrc(correct - 1, guesses, q))
    if delta == 0:
        return above
    # f(v − i) − f(v) for i = 1 … v; from there on it is constant.
    below = np.append(special.bdtr(np.arange(correct - 1, -1, -1), guesses, q), 0.0)
    steps = below[0] - below[1:]
    slope = float((steps / np.arange(1, correct + 1)).max())
    bound = above + 2 * coins * delta * slope
    return bound if bound <= 0.5 else 1.0


def one_run_epsilon(
    coins: int, guesses: int, correct: int, delta: float, confidence: float = 0.95
) -> float:
    """The ε at least that so many correct guesses in one run show; 0 if they show nothing."""
    check_number("confidence", confidence, at_least=0.5, below=1, example=0.95)

    def excess(epsilon: float) -> float:
        return one_run_p_value(coins, guesses, correct, epsilon, delta) - (1 - confidence)

    if excess(0.0) > 0:
        return 0.0
    if excess(LARGEST) <= 0:
        return LARGEST
    epsilon = float(optimize.brentq(excess, 0.0, LARGEST, xtol=1e-6))
    # On the side that is rejected.
    return max(0.0, epsilon - 2e-6)


def one_run_bound(scores: Any, coins: Any, delta: float, confidence: float = 0.95) -> CoinBound:
    """A lower bound on ε from scores [m] of the coins of one run, which need not be independent.

    The highest scores are guessed to be heads and as many of the lowest to be tails. How many is
    not fixed: the best of a few numbers counts, each with its part of 1 − confidence.

    Args:
        scores: Higher where the adversary believes more in heads.
        coins: The coins, bool [m]: True for heads. They must be independent and fair.
        delta: δ of the privacy that is tested.
        confidence: Probability with which the bound holds.
    """
    scores, coins = _checked(scores, coins, delta, confidence)
    each = 1 - (1 - confidence) / len(ONE_RUN_SHARES)
    order = np.argsort(scores, kind="stable")
    bounds = []
    for share in ONE_RUN_SHARES:
        half = max(1, int(share * len(scores) / 2))
        correct = int((~coins[order[:half]]).sum() + coins[order[-half:]].sum())
        epsilon = one_run_epsilon(len(scores), 2 * half, correct, delta, each)
        bounds.append(
            CoinBound(epsilon, float(delta), float(confidence), len(scores), 2 * half, correct)
        )
    return max(bounds, key=lambda bound: bound.epsilon)


def gaussian_trade_off_epsilon(
    scores: Any, coins: Any, delta: float, confidence: float = 0.95
) -> float:
    """A lower bound on ε from independent trials, if the trade-off function is Gaussian.

    The arguments are those of `independent_trials_bound`; δ must be positive.
    """
    share = _least_share_correct(scores, coins, delta, confidence)
    mu = 2 * float(special.ndtri(share)) if share > 0.5 else 0.0
    return gaussian_epsilon(delta, mu)


def sampled_trade_off_epsilon(
    scores: Any, coins: Any, rate: float, steps: int, delta: float, confidence: float = 0.95
) -> float:
    """A lower bound on ε from independent trials, if they release sums under Gaussian noise.

    Args:
        scores: Positive where the adversary believes that a sample is there, [n].
        coins: Whether it is, bool [n].
        rate: The probability with which it is in a sum.
        steps: The number of sums.
        delta: δ of the privacy that is tested.
        confidence: Probability with which the bound holds.
    """
    # The share of correct guesses is at most (1 + δ(0))/2, where δ(0) is the total variation.
    distance = 2 * _least_share_correct(scores, coins, delta, confidence) - 1
    if distance <= 0:
        return 0.0

    def excess(log_multiplier: float) -> float:
        return sampled_gaussian_delta(math.exp(log_multiplier), rate, steps, 0.0) - distance

    low, high = math.log(LEAST_MULTIPLIER), math.log(MOST_MULTIPLIER)
    if excess(low) <= 0:
        return sampled_gaussian_epsilon(LEAST_MULTIPLIER, rate, steps, delta)
    if excess(high) >= 0:
        return 0.0
    multiplier = math.exp(float(optimize.brentq(excess, low, high, xtol=1e-3)))
    return sampled_gaussian_epsilon(multiplier, rate, steps, delta)


def _least_share_correct(scores: Any, coins: Any, delta: float, confidence: float) -> float:
    """The lower limit of the probability that the sign of a score is that of its coin."""
    scores, coins = _checked(scores, coins, delta, confidence)
    correct = int(((scores > 0) == coins).sum())
    return _lower_limit(correct, len(scores), 1 - confidence)


def _lower_limit(hits: int, total: int, tail: float) -> float:
    """The lower limit of a probability, wrong with probability `tail`."""
    return float(clopper_pearson(hits, total, tail)[0])


def _checked(scores: Any, coins: Any, delta: float, confidence: float) -> tuple[Array, Coins]:
    check_number("delta", delta, at_least=0, below=1, example=1e-5)
    check_number("confidence", confidence, above=0, below=1, example=0.95)
    values, heads = as_scores("canary", scores), np.asarray(coins, dtype=np.bool_)
    if heads.shape != values.shape:
        raise Misuse(
            f"There are {len(values)} scores of coins of shape {heads.shape}.",
            "Give one coin per score.",
        )
    if len(values) < PILOT:
        raise Misuse(f"There are {len(values)} scores.", f"Give at least {PILOT}.")
    return values, heads
