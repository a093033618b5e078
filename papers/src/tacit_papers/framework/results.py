"""The measured numbers of an artifact: per cell and repeat, with means and deviations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit_papers.framework.cells import Key, Published, Scale, Values
from tacit_papers.framework.stored_values import without_repeated_pictures

# Under this key, the numbers of a repeat say why they must be measured again.
OUTDATED = "outdated"


class NotMeasured(LookupError):
    """A cell has no numbers."""


@dataclass(frozen=True)
class CellResult:
    """The numbers of a cell, by seed."""

    key: Key
    paper: Published | None
    measure: dict[str, Any]  # the description of its measure
    values: dict[int, Values] = field(default_factory=dict)

    @property
    def current(self) -> dict[int, Values]:
        """The repeats that need not be measured again."""
        return {seed: one for seed, one in self.values.items() if OUTDATED not in one}

    @property
    def first(self) -> Values:
        """The first repeat: pictures in figures are from this one."""
        return self.values[min(self.values)]

    def numbers(self, metric: str) -> list[float]:
        """One metric of all repeats that have it; NaN where it is null."""
        return numbers(one[metric] for one in self.values.values() if metric in one)


@dataclass(frozen=True)
class ArtifactResult:
    """All cells of an artifact at one scale, measured or not yet."""

    axes: Key
    metric: str  # the default of all methods
    form: str  # how numbers of the metric are formatted
    scale: Scale
    cells: list[CellResult]

    def __contains__(self, key: Key) -> bool:
        return any(cell.key == key and cell.values for cell in self.cells)

    def __getitem__(self, key: Key) -> CellResult:
        for cell in self.cells:
            if cell.key == key:
                return cell
        raise NotMeasured(key)

    @property
    def measured(self) -> list[CellResult]:
        return [cell for cell in self.cells if cell.values]

    def labels(self, axis: int, panel: str | None = None) -> list[str]:
        """The labels on an axis, in order; of all cells, or of one `panel` (first label)."""
        cells = [cell for cell in self.measured if panel in (None, cell.key[0])]
        return list(dict.fromkeys(cell.key[axis] for cell in cells))

    def mean(self, key: Key, metric: str | None = None) -> float:
        found = self[key].numbers(metric or self.metric)
        if not found:
            raise NotMeasured(key)
        return statistics.fmean(found)

    def means(
        self, keys: Iterable[Key], metric: str | None = None, *, at_least: int = 1
    ) -> list[float]:
        """The means of those cells that are measured; NotMeasured if they are too few."""
        found = [self.mean(key, metric) for key in keys if key in self]
        if len(found) < at_least:
            raise NotMeasured
        return found

    def deviation(self, key: Key, metric: str | None = None) -> float | None:
        return deviation(self[key].numbers(metric or self.metric))

    def formatted(self, key: Key) -> str:
        """Mean ± deviation."""
        self.mean(key)  # raises NotMeasured
        return mean_and_deviation(self[key].numbers(self.metric), self.form)

    def differences(self, key: Key, other: Key, metric: str | None = None) -> list[float]:
        """The metric of one cell minus that of another, paired by seed."""
        name = metric or self.metric
        one, two = self[key].values, self[other].values
        shared = [seed for seed in one if name in one[seed] and name in two.get(seed, {})]
        highs, lows = (numbers(values[seed][name] for seed in shared) for values in (one, two))
        return [high - low for high, low in zip(highs, lows, strict=True)]

    def curve(self, key: Key, name: str = "curve") -> dict[str, list[float]]:
        """Columns of equal length, such as a history, averaged over the repeats."""
        repeats = [one[name] for one in self[key].values.values()]
        return {
            column: [
                statistics.fmean(numbers(values))
                for values in zip(*(one[column] for one in repeats), strict=False)
            ]
            for column in repeats[0]
        }

    def cells_as_dicts(self) -> list[dict[str, Any]]:
        """Plain values, for result.json."""
        return [
            {
                "key": dict(zip(self.axes, cell.key, strict=True)),
                "paper": None if cell.paper is None else vars(cell.paper),
                "mean": _finite_mean(cell.numbers(self.metric)),
                "deviation": deviation(cell.numbers(self.metric)),
                "measure": cell.measure,
                "repeats": [
                    {"seed": seed, "values": values}
                    for seed, values in without_repeated_pictures(cell.values).items()
                ],
            }
            for cell in self.measured
        ]


def numbers(values: Iterable[float | None]) -> list[float]:
    """Numbers from JSON: NaN where a value is null."""
    return [math.nan if value is None else float(value) for value in values]


def finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation; None for a single number, or if one is not finite."""
    several = len(values) > 1 and len(finite(values)) == len(values)
    return statistics.stdev(values) if several else None


def mean_and_deviation(values: Sequence[float], form: str) -> str:
    mean, width = statistics.fmean(values), deviation(values)
    return f"{mean:{form}}" if width is None else f"{mean:{form}} ± {width:{form}}"


def _finite_mean(values: Sequence[float]) -> float | None:
    mean = statistics.fmean(values) if values else math.nan
    return mean if math.isfinite(mean) else None
