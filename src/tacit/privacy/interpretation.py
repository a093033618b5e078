"""What ε means for the best possible attack, in numbers and in words.

An adversary knows everything but whether one sample took part (or which of two datasets a client
has). For every test of (ε, δ)-differentially private messages (Kairouz et al. 2015):

    correct guesses, if both cases are equally likely   ≤ (e^ε + δ) / (1 + e^ε)
    true positives at a rate α of false positives       ≤ min(e^ε α + δ, 1 − e^−ε (1 − δ − α))

With δ = 0 the first is also the adversary's largest posterior probability.
"""

from __future__ import annotations

import math
from typing import Literal

Strength = Literal["strong", "moderate", "weak", "vacuous"]
# ε up to which a guarantee is called strong, and moderate; from VACUOUS on it protects nothing.
STRONG, MODERATE, VACUOUS = 1.0, 3.0, 10.0
SCALE = (
    "Scale: strong up to ε = 1 (a 50:50 guess becomes right at most 73.2 % of the time), moderate "
    "up to 3 (95.3 %), weak below 10 (99.996 %), vacuous from 10 on. The steps at 1 and 10 are "
    "those of Ponomareva et al. 2023, “How to DP-fy ML”; the step at 3 is ours."
)
FALSE_POSITIVES = 0.01


def strength(epsilon: float) -> Strength:
    """How strong a guarantee is, in one word; see `SCALE`.

    Example:
        >>> strength(0.5), strength(3), strength(80_000)
        ('strong', 'moderate', 'vacuous')
    """
    if epsilon <= STRONG:
        return "strong"
    if epsilon <= MODERATE:
        return "moderate"
    return "weak" if epsilon < VACUOUS else "vacuous"


def correct_guesses(epsilon: float, delta: float = 0.0) -> float:
    """The largest share of right guesses, if both cases are equally likely.

    Example:
        >>> round(correct_guesses(3.0), 4), correct_guesses(math.inf)
        (0.9526, 1.0)
    """
    # e^ε / (1 + e^ε) without overflow.
    odds = math.exp(-epsilon)
    return min(1.0, (1 + delta * odds) / (1 + odds))


def true_positives(epsilon: float, delta: float = 0.0, rate: float = FALSE_POSITIVES) -> float:
    """The largest rate of true positives at a rate of false positives.

    Example:
        >>> round(true_positives(1.0), 4), true_positives(80_000)
        (0.0272, 1.0)
    """
    growth = math.exp(epsilon) if epsilon < 700 else math.inf
    return max(rate, min(1.0, growth * rate + delta, 1 - math.exp(-epsilon) * (1 - delta - rate)))


def in_short(epsilon: float, delta: float) -> str:
    """ε in one sentence.

    Example:
        >>> in_short(2.62, 1e-5)
        'ε = 2.62 at δ = 1e-05 is moderate (right guesses: at most 93.3 %).'
    """
    right = _percent(correct_guesses(epsilon, delta))
    return f"{_named(epsilon, delta)} is {strength(epsilon)} (right guesses: at most {right})."


def in_words(epsilon: float, delta: float, unit: Literal["sample", "client"]) -> str:
    """ε in two sentences: its strength, and what the best possible attack can do.

    Example:
        >>> print(in_words(80_000, 1e-5, "client").split(":")[0])
        ε = 80,000 at δ = 1e-05 is vacuous
    """
    what = (
        "one given training sample took part"
        if unit == "sample"
        else "a client has its data or any other"
    )
    named = _named(epsilon, delta)
    level, right = strength(epsilon), _percent(correct_guesses(epsilon, delta))
    if level == "vacuous":
        return (
            f"{named} is vacuous: it allows an adversary to decide whether {what} and to be right "
            f"{right} of the time, where a coin is right 50 %. Such a number protects nothing."
        )
    caught = _percent(true_positives(epsilon, delta))
    return (
        f"{named} is {level}: whatever an adversary computes, it decides whether {what} correctly "
        f"at most {right} of the time, where a coin is right 50 %. With 1 % false alarms it "
        f"detects at most {caught}."
    )


def _named(epsilon: float, delta: float) -> str:
    number = f"{epsilon:,.0f}" if epsilon >= 1000 else f"{epsilon:.4g}"
    return f"ε = {number}" + (f" at δ = {delta:g}" if delta else "")


def _percent(share: float) -> str:
    """A share in percent, rounded up, with digits that tell it from 100 %."""
    percent = 100 * share
    digits = 1 if percent < 99.9 else 3
    rounded = math.ceil(percent * 10**digits - 1e-9) / 10**digits
    return f"{rounded:.{digits}f} %" if rounded < 100 else "100 %"
