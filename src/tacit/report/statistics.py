"""Means and paired differences over seeds, with confidence intervals by Student's t."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from tacit.core.errors import Misuse
from tacit.core.missing_numbers import finite_or_none

CONFIDENCE = 0.95
ROUNDING = 1e-12  # of a difference, relative to the larger of the two numbers


@dataclass(frozen=True)
class Interval:
    """A mean, and the ends of its confidence interval.

    The ends are NaN if there is one value only or if all values are equal: no interval can be
    computed from a deviation of zero.

    Attributes:
        mean: The mean of the values.
        low: The lower end of the interval.
        high: The upper end of the interval.
        deviation: The standard deviation of the values (n − 1).
        count: How many values there are.
    """

    mean: float
    low: float
    high: float
    deviation: float
    count: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def as_dict(self) -> dict[str, float | int | None]:
        """Plain numbers, None for those that are not finite."""
        numbers = {name: getattr(self, name) for name in ("mean", "deviation", "low", "high")}
        return {name: finite_or_none(value) for name, value in numbers.items()} | {
            "seeds": self.count
        }

    @property
    def is_constant(self) -> bool:
        """Whether there are several values, all equal."""
        return self.count > 1 and self.deviation == 0

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval is on one side of 0; False if there is none."""
        return self.low > 0 or self.high < 0


def mean_and_interval(values: Sequence[float]) -> Interval:
    """The mean of independent, normally distributed values and its 95 % confidence interval.

    One value and values that are all equal have no interval; values that are not finite have no
    mean.

    Example:
        >>> interval = mean_and_interval([1.0, 2.0, 3.0])
        >>> round(interval.mean, 3), round(interval.low, 3), round(interval.high, 3)
        (2.0, -0.484, 4.484)
    """
    if not values:
        raise Misuse("There is no value to average.", "Give at least one.")
    count = len(values)
    if not all(map(math.isfinite, values)):
        return Interval(math.nan, math.nan, math.nan, math.nan, count)
    mean = statistics.fmean(values)
    if count == 1:
        return Interval(mean, math.nan, math.nan, math.nan, count)
    deviation = statistics.stdev(values)
    if deviation == 0:
        return Interval(mean, math.nan, math.nan, 0.0, count)
    half = float(special.stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * deviation / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, deviation, count)


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """The mean of a − b, paired by position (one seed each), and its 95 % confidence interval.

    Example:
        >>> difference = paired_difference([91.0, 90.0, 92.0], [90.0, 88.0, 91.0])
        >>> round(difference.mean, 3), difference.excludes_zero
        (1.333, False)
    """
    if len(a) != len(b):
        raise Misuse(
            f"{len(a)} and {len(b)} values cannot be paired.", "Give one of each per seed."
        )
    differences = [x - y for x, y in zip(a, b, strict=True)]
    if differences and all(map(math.isfinite, differences)):
        # Equal differences may differ by the rounding of the subtraction.
        rounding = ROUNDING * max(map(abs, (*a, *b)))
        if max(differences) - min(differences) <= rounding:
            mean = statistics.fmean(differences)
            differences = [mean if abs(mean) > rounding else 0.0] * len(differences)
    return mean_and_interval(differences)
