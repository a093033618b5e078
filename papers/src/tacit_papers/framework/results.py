"""What the cells of an artifact gave: numbers per cell and repeat, means, deviations; as JSON and back."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit_papers.framework.artifact import Artifact, Cell, Key, Published, Scale, Values


class Missing(LookupError):
    """A cell that was not measured."""


@dataclass(frozen=True)
class Filled:
    """A cell with its numbers, by seed."""

    key: Key
    paper: Published | None
    measure: dict[str, Any]  # what the cell said of itself
    values: dict[int, Values] = field(default_factory=dict)

    def numbers(self, metric: str) -> list[float]:
        """One metric of all repeats that have it; not finite where it is null."""
        found = [one[metric] for one in self.values.values() if metric in one]
        return [math.nan if value is None else float(value) for value in found]


@dataclass(frozen=True)
class ArtifactResult:
    """All cells of an artifact, as far as they were measured."""

    artifact: Artifact
    scale: Scale
    cells: list[Filled]

    @classmethod
    def empty(cls, artifact: Artifact, scale: Scale, cells: Sequence[Cell]) -> ArtifactResult:
        """Before anything is measured."""
        return cls(
            artifact,
            scale,
            [Filled(cell.key, cell.paper, cell.measure.describe()) for cell in cells],
        )

    @classmethod
    def from_dict(cls, artifact: Artifact, told: dict[str, Any]) -> ArtifactResult:
        """From result.json."""
        cells = []
        for cell in told["cells"]:
            paper = (
                None
                if cell["paper"] is None
                else Published(cell["paper"]["mean"], cell["paper"]["deviation"])
            )
            values = {one["seed"]: one["values"] for one in cell["repeats"]}
            cells.append(
                Filled(
                    tuple(cell["key"][axis] for axis in artifact.axes),
                    paper,
                    cell["measure"],
                    values,
                )
            )
        return cls(artifact, Scale(told["quick"]), cells)

    def __contains__(self, key: Key) -> bool:
        return any(cell.key == key and cell.values for cell in self.cells)

    def __getitem__(self, key: Key) -> Filled:
        found = [cell for cell in self.cells if cell.key == key]
        if not found:
            raise Missing(key)
        return found[0]

    @property
    def measured(self) -> list[Filled]:
        """The cells that have numbers."""
        return [cell for cell in self.cells if cell.values]

    def places(self, axis: int) -> list[str]:
        """What occurs on an axis, in the order of the cells."""
        return list(dict.fromkeys(cell.key[axis] for cell in self.measured))

    def mean(self, key: Key, metric: str | None = None) -> float:
        """The mean over the repeats."""
        numbers = self[key].numbers(metric or self.artifact.metric)
        if not numbers:
            raise Missing(key)
        return statistics.fmean(numbers)

    def deviation(self, key: Key, metric: str | None = None) -> float | None:
        """The standard deviation over the repeats; none of one repeat, or where a number is not finite."""
        return deviation(self[key].numbers(metric or self.artifact.metric))

    def differences(self, key: Key, other: Key, metric: str | None = None) -> list[float]:
        """The metric of one cell minus that of another, paired by seed."""
        metric = metric or self.artifact.metric
        one, two = self[key].values, self[other].values
        seeds = [seed for seed in one if seed in two]
        return [one[seed][metric] - two[seed][metric] for seed in seeds]

    def curve(self, key: Key, name: str = "curve") -> dict[str, list[float]]:
        """The means over the repeats of lists of one length, such as a history's."""
        parts = [one[name] for one in self[key].values.values()]
        return {
            column: [
                statistics.fmean(_number(value) for value in values)
                for values in zip(*columns, strict=False)
            ]
            for column, columns in ((name, [part[name] for part in parts]) for name in parts[0])
        }

    def cells_as_dicts(self) -> list[dict[str, Any]]:
        """Plain values, for result.json."""
        metric = self.artifact.metric
        return [
            {
                "key": dict(zip(self.artifact.axes, cell.key, strict=True)),
                "paper": None if cell.paper is None else vars(cell.paper),
                "mean": _finite(statistics.fmean(numbers))
                if (numbers := cell.numbers(metric))
                else None,
                "deviation": deviation(cell.numbers(metric)),
                "measure": cell.measure,
                "repeats": [
                    {"seed": seed, "values": values} for seed, values in sorted(cell.values.items())
                ],
            }
            for cell in self.measured
        ]


def deviation(numbers: Sequence[float]) -> float | None:
    """The standard deviation, if there is one."""
    several = len(numbers) > 1 and all(map(math.isfinite, numbers))
    return statistics.stdev(numbers) if several else None


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
