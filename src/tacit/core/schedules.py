"""Step sizes that change over the iterations: functions from t = 0, 1, … to a number.

Their lengths are in `steps` (iterations) or in `epochs` (passes over the data).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

from tacit.core.checks import check_count, check_number, check_positive, is_count, is_number
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


class Timed:
    """A schedule with a length or a period, given in `steps` or in `epochs`.

    Epochs are passes over the data, whose iterations depend on the task: `tacit.run` and
    configurations convert them. `default` is the length in steps where neither is given.
    """

    default: ClassVar[int | None] = None
    steps: Any
    epochs: Any

    def in_steps(self, epoch: int) -> Self:
        """This schedule in iterations, if an epoch has so many."""
        if self.epochs is None:
            return self
        steps = max(1, round(self.epochs * epoch))
        return replace(self, steps=steps, epochs=None)  # type: ignore[type-var]

    def _check_length(self, example: str) -> None:
        """Require one length, or take the default."""
        if self.steps is None and self.epochs is None and self.default is not None:
            object.__setattr__(self, "steps", self.default)
        self._check_one_is_given(example)
        if self.epochs is not None:
            check_positive("The step size's epochs", self.epochs)
        else:
            check_count("The step size's steps", self.steps)

    def _check_one_is_given(self, example: str) -> None:
        if (self.steps is None) == (self.epochs is None):
            both = "Neither steps nor epochs is" if self.steps is None else "Both are"
            raise Misuse(
                f"{both} given for the length of the schedule {type(self).__name__}.",
                f"Give it one, e.g. epochs={example}.",
            )

    def _known_steps(self) -> Any:
        """The length in iterations; raises Misuse if it is in epochs still."""
        if self.epochs is not None:
            raise Misuse(
                "The step size counts epochs, and how many iterations these have is not known.",
                "Use tacit.run, which knows it, or give steps.",
            )
        return self.steps


@dataclass(frozen=True)
class Exponential(Timed):
    """λ · decay^⌊t/steps⌋.

    Args:
        start: The first step size λ.
        decay: The factor, above 0 and at most 1.
        steps: Iterations between decreases; default: 1.
        epochs: The same in passes over the data.

    Example:
        >>> Exponential(0.5, decay=0.5, steps=10)(20)
        0.125
    """

    default: ClassVar[int | None] = 1

    start: float
    decay: float
    steps: int | None = None
    epochs: float | None = None

    def __post_init__(self) -> None:
        check_positive("The step size's start", self.start)
        check_number("The step size's decay", self.decay, above=0, at_most=1)
        self._check_length("1")

    def __call__(self, t: int) -> float:
        steps: int = self._known_steps()
        return float(self.start * self.decay ** (t // steps))


@dataclass(frozen=True)
class Inverse(Timed):
    """λ / (1 + t/steps), the classic 1/t decrease.

    Args:
        start: The first step size λ.
        steps: Iterations until it is half of that; default: 1.
        epochs: The same in passes over the data.

    Example:
        >>> Inverse(0.5, steps=100)(100)
        0.25
    """

    default: ClassVar[int | None] = 1

    start: float
    steps: int | None = None
    epochs: float | None = None

    def __post_init__(self) -> None:
        check_positive("The step size's start", self.start)
        self._check_length("1")

    def __call__(self, t: int) -> float:
        steps: int = self._known_steps()
        return self.start / (1 + t / steps)


@dataclass(frozen=True)
class Cosine(Timed):
    """Half a cosine from λ down to `end`.

    Args:
        start: The first step size λ.
        steps: Iterations until `end`, which stays afterwards; or give `epochs`.
        end: The last step size, between 0 and `start`.
        epochs: The length in passes over the data.

    Example:
        >>> Cosine(0.5, steps=100)(50)
        0.25
    """

    start: float
    steps: int | None = None
    end: float = 0.0
    epochs: float | None = None

    def __post_init__(self) -> None:
        check_positive("The step size's start", self.start)
        self._check_length("10")
        check_number("The step size's end", self.end, at_least=0, at_most=self.start)

    def __call__(self, t: int) -> float:
        steps: int = self._known_steps()
        progress = min(1.0, t / steps)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class MultiStep(Timed):
    """λ · factor^k, where k is how many of the given times have passed.

    Args:
        start: The first step size λ.
        steps: The iterations at which it changes, in ascending order; or give `epochs`.
        factor: What it is multiplied by each time, above 0 and at most 1.
        epochs: The times in passes over the data.

    Example:
        >>> [round(MultiStep(0.1, steps=(15, 25))(t), 6) for t in (14, 15, 25)]
        [0.1, 0.01, 0.001]
    """

    start: float
    steps: tuple[int, ...] | None = None
    factor: float = 0.1
    epochs: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_positive("The step size's start", self.start)
        self._check_one_is_given("(15, 25)")
        name = "steps" if self.epochs is None else "epochs"
        given: Any = getattr(self, name)
        times = tuple(given) if isinstance(given, tuple | list) else ()
        right = all(map(is_count, times)) if name == "steps" else all(map(_is_positive, times))
        if not (times and right and list(times) == sorted(set(times))):
            raise Misuse(
                f"The step size's {name} is {given!r}.",
                "Give numbers above 0 in ascending order, whole ones of steps, e.g. (15, 25).",
            )
        object.__setattr__(self, name, times)
        check_number("The step size's factor", self.factor, above=0, at_most=1)

    def in_steps(self, epoch: int) -> Self:
        if self.epochs is None:
            return self
        times = tuple(max(1, round(time * epoch)) for time in self.epochs)
        return replace(self, steps=tuple(dict.fromkeys(times)), epochs=None)

    def __call__(self, t: int) -> float:
        times: tuple[int, ...] = self._known_steps()
        return float(self.start * self.factor ** bisect_right(times, t))


@dataclass(frozen=True)
class Warmup(Timed):
    """A linear increase to the first step size of `then`, which follows from its own t = 0.

    The k-th of n iterations, k = 1, …, n, has k/(n + 1) of it: no step is zero, and `then` is one
    equal step higher.

    Args:
        steps: How many iterations the increase takes; or give `epochs`.
        then: The step size afterwards, a number or a schedule.
        epochs: Its length in passes over the data.

    Example:
        >>> [Warmup(3, then=Exponential(0.4, decay=0.5))(t) for t in range(5)]
        [0.1, 0.2, 0.30000000000000004, 0.4, 0.2]
    """

    steps: int | None = None
    then: Rate = field(kw_only=True)
    epochs: float | None = None

    def __post_init__(self) -> None:
        self._check_length("2")
        check_rate("then", self.then)

    def in_steps(self, epoch: int) -> Self:
        then = self.then.in_steps(epoch) if isinstance(self.then, Timed) else self.then
        return replace(super().in_steps(epoch), then=then)

    def __call__(self, t: int) -> float:
        steps: int = self._known_steps()
        if t >= steps:
            return rate_at(self.then, t - steps)
        return rate_at(self.then, 0) * (t + 1) / (steps + 1)


T = TypeVar("T")


def in_steps(options: T, epoch: int) -> T:
    """An algorithm, or a part of one, whose schedules count iterations: an epoch has so many."""
    if isinstance(options, Timed):
        return options.in_steps(epoch)
    if isinstance(options, type) or not is_dataclass(options):
        return options
    changed = {}
    for option in fields(options):
        value = getattr(options, option.name)
        if option.init and (converted := in_steps(value, epoch)) is not value:
            changed[option.name] = converted
    return replace(options, **changed) if changed else options  # type: ignore[type-var]


def _is_positive(value: object) -> bool:
    return is_number(value) and value > 0


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
