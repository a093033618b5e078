"""From histories to the lines of a plot: one per run, or one per group of runs that differ in their seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.record.history import History

Numbers = npt.NDArray[np.float64]
POINTS = 1_000  # more along one line are not seen, and make the page heavy


@dataclass(frozen=True)
class Series:
    """What is drawn as one line: a run, or several that differ in their seeds only."""

    label: str
    histories: tuple[History, ...]


@dataclass(frozen=True)
class Curve:
    """Numbers over rounds [R], NaN where there is a gap; a range around them and the average model's, if any."""

    rounds: Numbers
    values: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    average_model: Numbers | None = None


def spread_line(series: Series, metric: str) -> Curve:
    """A metric that clients have each: its mean, with the range over clients or, of several runs, over seeds."""
    rounds, mean = _columns(series, f"{metric}.mean")
    average = _columns(series, f"{metric}.average_model")[1].mean(0)
    if len(series.histories) > 1:
        return Curve(rounds, mean.mean(0), mean.min(0), mean.max(0), average)
    low, high = (_columns(series, f"{metric}.{end}")[1][0] for end in ("min", "max"))
    return Curve(rounds, mean[0], low, high, average)


def scalar_line(series: Series, metric: str, over: str = "round") -> Curve:
    """A metric of all clients together over rounds or steps, with the range over seeds if there are several."""
    places, values = _columns(series, metric, over)
    if len(series.histories) > 1:
        return Curve(places, values.mean(0), values.min(0), values.max(0))
    return Curve(places, values[0])


def in_decibels(line: Curve) -> Curve:
    """The same line as 10 log₁₀ of its numbers; what is not positive becomes a gap."""

    def converted(values: Numbers) -> Numbers:
        return 10 * np.log10(np.where(values > 0, values, np.nan))

    low, high = (None if end is None else converted(end) for end in (line.low, line.high))
    return Curve(line.rounds, converted(line.values), low, high)


def _columns(series: Series, metric: str, over: str = "round") -> tuple[Numbers, Numbers]:
    """The rounds (or steps) that all histories have, and the metric there: [R] and [histories, R]."""
    tables = [
        dict(
            zip((getattr(record, over) for record in history), history.column(metric), strict=True)
        )
        for history in series.histories
    ]
    rounds = sorted(set.intersection(*(set(table) for table in tables)))
    stride = max(1, math.ceil(len(rounds) / POINTS))
    rounds = rounds[: -1 if stride > 1 else None : stride] + (rounds[-1:] if stride > 1 else [])
    values = np.array([[table[r] for r in rounds] for table in tables], dtype=np.float64)
    return np.array(rounds, dtype=np.float64), np.where(np.isfinite(values), values, np.nan)


def finite(*parts: Numbers | None) -> Numbers:
    """All numbers that are some."""
    values: Numbers = np.concatenate([np.zeros(0), *(part for part in parts if part is not None)])
    kept: Numbers = values[np.isfinite(values)]
    return kept
