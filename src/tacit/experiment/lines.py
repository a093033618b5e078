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
class Line:
    """Numbers over rounds [R], NaN where there is a gap; a range around them and the average model's, if any."""

    rounds: Numbers
    values: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    average_model: Numbers | None = None


def spread_line(series: Series, metric: str) -> Line:
    """A metric that clients have each: its mean, with the range over clients or, of several runs, over seeds."""
    rounds, mean = _columns(series, f"{metric}.mean")
    average = _columns(series, f"{metric}.average_model")[1].mean(0)
    if len(series.histories) > 1:
        return Line(rounds, mean.mean(0), mean.min(0), mean.max(0), average)
    low, high = (_columns(series, f"{metric}.{end}")[1][0] for end in ("min", "max"))
    return Line(rounds, mean[0], low, high, average)


def scalar_line(series: Series, metric: str) -> Line:
    """A metric of all clients together, with the range over seeds if there are several."""
    rounds, values = _columns(series, metric)
    if len(series.histories) > 1:
        return Line(rounds, values.mean(0), values.min(0), values.max(0))
    return Line(rounds, values[0])


def _columns(series: Series, metric: str) -> tuple[Numbers, Numbers]:
    """The rounds that all histories have, and the metric there: [R] and [histories, R]."""
    tables = [
        dict(zip((record.round for record in history), history.column(metric), strict=True))
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
