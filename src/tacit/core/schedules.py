"""Step sizes that change over the iterations: any function from the iteration t = 0, 1, … to a number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tacit.core.arguments import is_number
from tacit.core.errors import Misuse

Schedule = Callable[[int], float]
Rate = float | Schedule


@dataclass(frozen=True)
class Constant:
    """λ at all times."""

    start: float

    def __post_init__(self) -> None:
        _check("start", self.start, lambda value: value > 0, "a positive number")

    def __call__(self, t: int) -> float:
        """The rate at iteration t."""
        return self.start


@dataclass(frozen=True)
class Exponential:
    """λ · decay^⌊t/every⌋; with `every` the iterations of a round this decays once per round."""

    start: float
    decay: float
    every: int = 1

    def __post_init__(self) -> None:
        _check("start", self.start, lambda value: value > 0, "a positive number")
        _check("decay", self.decay, lambda value: 0 < value <= 1, "a number in (0, 1]")
        _check("every", self.every, lambda value: value >= 1, "at least 1 iteration")

    def __call__(self, t: int) -> float:
        """The rate at iteration t."""
        return self.start * self.decay ** (t // self.every)


@dataclass(frozen=True)
class Inverse:
    """λ / (1 + t/every): the classic 1/t decrease, halved after the first `every` iterations."""

    start: float
    every: int = 1

    def __post_init__(self) -> None:
        _check("start", self.start, lambda value: value > 0, "a positive number")
        _check("every", self.every, lambda value: value >= 1, "at least 1 iteration")

    def __call__(self, t: int) -> float:
        """The rate at iteration t."""
        return self.start / (1 + t / self.every)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from λ down to `end` over `steps` iterations, `end` afterwards."""

    start: float
    steps: int
    end: float = 0.0

    def __post_init__(self) -> None:
        _check("start", self.start, lambda value: value > 0, "a positive number")
        _check("steps", self.steps, lambda value: value >= 1, "at least 1 iteration")
        _check("end", self.end, lambda value: 0 <= value <= self.start, "between 0 and start")

    def __call__(self, t: int) -> float:
        """The rate at iteration t."""
        progress = min(1.0, t / self.steps)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * progress)) / 2


def rate_at(rate: Rate, t: int) -> float:
    """The value of a number or a schedule at iteration t."""
    return rate(t) if callable(rate) else float(rate)


def check_rate(name: str, rate: Rate) -> None:
    """Refuse a rate that is neither a schedule nor a positive number."""
    if isinstance(rate, type) or not callable(rate):
        _check(name, rate, lambda value: value > 0, "a positive number or a schedule")


def _check(name: str, value: object, good: Callable[[float], bool], wanted: str) -> None:
    if not (is_number(value) and good(value)):
        raise Misuse(f"The step size's {name} is {value!r}.", f"Give {wanted}.")
