"""Step sizes that change over the iterations: functions from t = 0, 1, … to a number."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from tacit.core.checks import check_number, check_positive, is_count, is_number
from tacit.core.errors import Misuse, first_line

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


@dataclass(frozen=True)
class MultiStep:
    """λ · factor^k, where k is how many of the times in `at` have passed.

    Args:
        start: The first step size λ.
        at: When it changes, in multiples of `every`, in ascending order.
        factor: What it is multiplied by each time, above 0 and at most 1.
        every: Iterations that `at` counts; those of a round make it count rounds.

    Example:
        >>> [round(MultiStep(0.1, at=(15, 25))(t), 6) for t in (14, 15, 25)]
        [0.1, 0.01, 0.001]
    """

    start: float
    at: tuple[int, ...]
    factor: float = 0.1
    every: int = 1

    def __post_init__(self) -> None:
        check_positive("The step size's start", self.start)
        times = tuple(self.at) if isinstance(self.at, tuple | list) else ()
        ascending = all(is_count(time) for time in times) and list(times) == sorted(set(times))
        if not (times and ascending):
            raise Misuse(
                f"The step size's at is {self.at!r}.",
                "Give whole numbers of at least 1 in ascending order, e.g. (15, 25).",
            )
        object.__setattr__(self, "at", times)
        check_number("The step size's factor", self.factor, above=0, at_most=1)
        check_number("The step size's every", self.every, at_least=1)

    def __call__(self, t: int) -> float:
        return self.start * self.factor ** bisect_right(self.at, t // self.every)


@dataclass(frozen=True)
class Warmup:
    """A linear increase to the first step size of `then`, which follows from its own t = 0.

    The k-th of n iterations, k = 1, …, n, has k/(n + 1) of it: no step is zero, and `then` is one
    equal step higher.

    Args:
        length: How long the increase takes, in multiples of `every`.
        then: The step size afterwards, a number or a schedule.
        every: Iterations that `length` counts; those of a round make it count rounds.

    Example:
        >>> [Warmup(3, then=Exponential(0.4, decay=0.5))(t) for t in range(5)]
        [0.1, 0.2, 0.30000000000000004, 0.4, 0.2]
    """

    length: float
    then: Rate
    every: int = 1

    def __post_init__(self) -> None:
        check_positive("The warm-up's length", self.length)
        check_rate("then", self.then)
        check_number("The warm-up's every", self.every, at_least=1)

    @property
    def iterations(self) -> int:
        """How many iterations the increase takes."""
        return max(1, round(self.length * self.every))

    def __call__(self, t: int) -> float:
        warm = self.iterations
        if t >= warm:
            return rate_at(self.then, t - warm)
        return rate_at(self.then, 0) * (t + 1) / (warm + 1)


def rate_at(rate: Rate, t: int) -> float:
    """The value of a number or a schedule at iteration t."""
    try:
        return float(rate(t) if callable(rate) else rate)
    except Misuse:
        raise
    except Exception as problem:  # whatever a user's function raises
        raise Misuse(
            f"The step size fails at iteration {t}: {first_line(problem)}.",
            "Give a number, or a function of the iteration that returns one.",
        ) from problem


def check_rate(name: str, rate: Rate) -> None:
    """Require a schedule or a positive number."""
    schedule = callable(rate) and not isinstance(rate, type)
    if not (schedule or (is_number(rate) and rate > 0)):
        raise Misuse(
            f"The step size's {name} is {rate!r}.", "Give a positive number or a schedule."
        )
