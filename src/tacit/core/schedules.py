"""Step sizes that change over the iterations: functions from t = 0, 1, … to a number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tacit.core.checks import check_number, check_positive, is_number
from tacit.core.errors import Misuse

Schedule = Callable[[int], float]
Rate = float | Schedule


@dataclass(frozen=True)
class Constant:
    """The same step size in all iterations.

    Args:
        start: The step size λ.

    Example:
        >>> Constant(0.1)(50)
        0.1
    """

    start: float

    def __post_init__(self) -> None:
        check_positive("The step size's start", self.start)

    def __call__(self, t: int) -> float:
        return self.start


@dataclass(frozen=True)
class Exponential:
    """λ · decay^⌊t/every⌋.

    Args:
        start: The first step size λ.
        decay: The factor, above 0 and at most 1.
        every: Iterations between decreases; those of a round decrease it once per round.

    Example:
        >>> Exponential(0.5, decay=0.5, every=10)(20)
        0.125
    """

    start: float
    decay: float
    every: int = 1

    def __post_init__(self) -> None:
        check_positive("The step size's start", self.start)
        check_number("The step size's decay", self.decay, above=0, at_most=1)
        check_number("The step size's every", self.every, at_least=1)

    def __call__(self, t: int) -> float:
        return self.start * self.decay ** (t // self.every)


@dataclass(frozen=True)
class Inverse:
    """λ / (1 + t/every), the classic 1/t decrease.

    Args:
        start: The first step size λ.
        every: Iterations until it is half of that.

    Example:
        >>> Inverse(0.5, every=100)(100)
        0.25
    """

    start: float
    every: int = 1

    def __post_init__(self) -> None:
        check_positive("The step size's start", self.start)
        check_number("The step size's every", self.every, at_least=1)

    def __call__(self, t: int) -> float:
        return self.start / (1 + t / self.every)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from λ down to `end`.

    Args:
        start: The first step size λ.
        steps: Iterations until `end`, which stays afterwards.
        end: The last step size, between 0 and `start`.

    Example:
        >>> Cosine(0.5, steps=100)(50)
        0.25
    """

    start: float
    steps: int
    end: float = 0.0

    def __post_init__(self) -> None:
        check_positive("The step size's start", self.start)
        check_number("The step size's steps", self.steps, at_least=1)
        check_number("The step size's end", self.end, at_least=0, at_most=self.start)

    def __call__(self, t: int) -> float:
        progress = min(1.0, t / self.steps)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * progress)) / 2


def rate_at(rate: Rate, t: int) -> float:
    """The value of a number or a schedule at iteration t."""
    return rate(t) if callable(rate) else float(rate)


def check_rate(name: str, rate: Rate) -> None:
    """Require a schedule or a positive number."""
    schedule = callable(rate) and not isinstance(rate, type)
    if not (schedule or (is_number(rate) and rate > 0)):
        raise Misuse(
            f"The step size's {name} is {rate!r}.", "Give a positive number or a schedule."
        )
