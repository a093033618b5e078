"""From histories to curves: one per run, or one per group of runs that differ in their seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.record.history import History

Numbers = npt.NDArray[np.float64]
# More points on one curve are not visible, and make the page large.
MAX_POINTS = 1_000


@dataclass(frozen=True)
class Series:
    """What is drawn as one curve: a run, or several that differ in their seeds only."""

    label: str
    histories: tuple[History, ...]


@dataclass(frozen=True)
class Curve:
    """Values [R] at the places x [R], NaN for gaps; optionally their range, and another curve."""

    x: Numbers
    values: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    average_model: Numbers | None = None


def spread_curve(series: Series, metric: str) -> Curve:
    """A metric of each client over rounds: its mean, and the range over clients or seeds."""
    rounds, mean = _columns(series, f"{metric}.mean")
    average = _columns(series, f"{metric}.average_model")[1].mean(0)
    if len(series.histories) > 1:
        return Curve(rounds, mean.mean(0), mean.min(0), mean.max(0), average)
    low, high = (_columns(series, f"{metric}.{end}")[1][0] for end in ("min", "max"))
    return Curve(rounds, mean[0], low, high, average)


def scalar_curve(series: Series, metric: str, over: str = "round") -> Curve:
    """A metric of all clients together over rounds or steps, and its range over seeds."""
    x, values = _columns(series, metric, over)
    if len(series.histories) > 1:
        return Curve(x, values.mean(0), values.min(0), values.max(0))
    return Curve(x, values[0])


def in_decibels(curve: Curve) -> Curve:
    """10 log₁₀ of a curve; values that are not positive become gaps."""

    def convert(values: Numbers) -> Numbers:
        return 10 * np.log10(np.where(values > 0, values, np.nan))

    low, high = (None if end is None else convert(end) for end in (curve.low, curve.high))
    return Curve(curve.x, convert(curve.values), low, high)


def finite(*parts: Numbers | None) -> Numbers:
    """The finite values of all parts in one array."""
    values: Numbers = np.concatenate([np.zeros(0), *(part for part in parts if part is not None)])
    kept: Numbers = values[np.isfinite(values)]
    return kept


def _columns(series: Series, metric: str, over: str = "round") -> tuple[Numbers, Numbers]:
    """The rounds (or steps) that all histories have [R], and the metric there [histories, R]."""
    tables = []
    for history in series.histories:
        x = (getattr(record, over) for record in history)
        tables.append(dict(zip(x, history.column(metric), strict=True)))
    shared = sorted(set.intersection(*(set(table) for table in tables)))
    stride = math.ceil(len(shared) / MAX_POINTS)
    if stride > 1:
        shared = [*shared[:-1:stride], shared[-1]]
    values = np.array([[table[x] for x in shared] for table in tables], dtype=np.float64)
    return np.array(shared, dtype=np.float64), np.where(np.isfinite(values), values, np.nan)
