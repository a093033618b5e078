"""What the accountant asks of its arguments: losses, probabilities, ratios and counts."""

from __future__ import annotations

import math

from tacit.core.arguments import is_count, is_number
from tacit.core.errors import Misuse


def check_epsilon(epsilon: float) -> None:
    """Refuse a privacy loss that is not a number of at least zero."""
    if not (is_number(epsilon) and epsilon >= 0):
        raise Misuse(
            f"epsilon is {epsilon!r}.", "Give a finite number that is not negative, in nats."
        )


def check_delta(delta: float) -> None:
    """Refuse a failure probability outside [0, 1)."""
    if not (is_number(delta) and 0 <= delta < 1):
        raise Misuse(
            f"delta is {delta!r}.", "Give a probability of at least 0 and below 1, e.g. 1e-5."
        )


def check_ratio(name: str, ratio: float) -> None:
    """Refuse what is not a sensitivity over a noise scale; ∞ stands for no noise."""
    if not (is_number(ratio) or ratio == math.inf) or ratio < 0:
        raise Misuse(
            f"{name} is {ratio!r}.",
            "Give sensitivity over noise scale: a number that is not negative (math.inf for no noise).",
        )


def check_count(name: str, count: int, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if not is_count(count, least):
        raise Misuse(f"{name} is {count!r}.", f"Give a whole number of at least {least}.")
