"""A grid of runs: its settings, how well each did, and which is best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from tacit.core.errors import Misuse
from tacit.core.missing_numbers import finite_or_none
from tacit.engines.callbacks import best_index, less_is_better
from tacit.report.finished_run import FinishedRun, StoredModel, read_run, read_stored
from tacit.report.groups import RunGroup, runs_of
from tacit.report.measures import Measure, measure_of, measures, over_seeds, paired
from tacit.report.numbers import format_number
from tacit.report.spent_together import SpentTogether, spent_together
from tacit.report.statistics import Interval

FILE = "grid.json"
SHOWN_FAILURES = 3  # of settings, in the terminal
# What settings are judged on.
TEST, VALIDATION, OWN = "test samples", "validation samples", "the task's own evaluation"


class StoredSetting(StoredModel):
    """One combination of values, and the folders of its runs.

    Attributes:
        values: The value of each key, as text.
        folders: Of the runs that have ended, by their names.
        failed: Of those that have started and failed.
        failures: Why others have not ended.
    """

    values: dict[str, str]
    folders: list[str] = Field(default_factory=list)
    failed: list[str] = Field(default_factory=list)
    failures: list[str] = Field(default_factory=list)


class StoredGrid(StoredModel):
    """What `grid.json` says beside the results, which follow from the folders.

    Attributes:
        metric: The column of the history that judges, such as "accuracy.mean".
        judged_on: What it was measured on: "validation samples" or others.
        own_data: Whether the data are the user's own tables or arrays.
    """

    keys: list[str]
    seeds: list[int]
    metric: str
    judged_on: str
    own_data: bool = False
    settings: list[StoredSetting]


@dataclass(frozen=True)
class GridSetting(RunGroup):
    """One combination of values over all seeds.

    Attributes:
        values: The value of each key; the label has them in short.
        failures: Why runs have not ended.
        score: The metric that judges, over the runs that have ended.
    """

    values: dict[str, str]
    failures: tuple[str, ...]
    score: Interval | None

    @property
    def mean(self) -> float:
        """What the setting is ranked by; NaN if a run failed."""
        return math.nan if self.failures or self.score is None else self.score.mean

    @property
    def misleading(self) -> int:
        """Number of runs whose accuracy misleads: see `alerts` of their summaries."""
        return sum(bool(run.summary.alerts) for run in self.runs)


@dataclass(frozen=True)
class Grid:
    """All settings of a grid.

    Attributes:
        folder: Where grid.json is.
        measure: What judges.
        measures: All numbers that runs have.
        spent: What all runs together spent of the rows' privacy.
    """

    folder: Path
    stored: StoredGrid
    settings: tuple[GridSetting, ...]
    measure: Measure
    measures: tuple[Measure, ...]
    spent: tuple[SpentTogether, ...]

    def __str__(self) -> str:
        scores = [f"  {each.label}: {format_number(each.mean)}" for each in self.ranked]
        return "\n".join([f"Grid({self.stored.metric})", *scores, *self.sentences()])

    @property
    def groups(self) -> list[GridSetting]:
        """The settings of which a run has ended."""
        return [setting for setting in self.settings if setting.runs]

    @property
    def runs(self) -> list[FinishedRun]:
        return runs_of(self.settings)

    @property
    def less_is_better(self) -> bool:
        return less_is_better(self.stored.metric)

    @property
    def base(self) -> GridSetting | None:
        """The setting that others are compared with: the first that has results."""
        return next(iter(self.groups), None)

    @property
    def best(self) -> GridSetting | None:
        """The setting with the best mean; None if all failed."""
        scores = [setting.mean for setting in self.settings]
        if not any(map(math.isfinite, scores)):
            return None
        return self.settings[best_index(scores, self.stored.metric)]

    @property
    def ranked(self) -> list[GridSetting]:
        """The settings, the best first and failed ones last."""
        sign = 1 if self.less_is_better else -1
        return sorted(
            self.settings,
            key=lambda setting: sign * setting.mean if math.isfinite(setting.mean) else math.inf,
        )

    def difference(self, setting: GridSetting, measure: Measure) -> Interval | None:
        """The difference to the base, paired by seed; None for the base itself."""
        base = self.base
        return None if base is None or setting is base else paired(setting, base, measure)

    @property
    def alerts(self) -> list[str]:
        """A sentence for each setting whose results mislead."""
        return [
            f"{setting.label}, {setting.misleading} of {len(setting.runs)} runs: models do not "
            "beat the majority baseline or the mean, or predict almost only one class. See the "
            "report."
            for setting in self.settings
            if setting.misleading
        ]

    def sentences(self) -> list[str]:
        """Which setting is best, what that is worth, and what all runs together spent."""
        failed = [setting for setting in self.settings if setting.failures]
        lines = [f"{len(failed)} of {len(self.settings)} settings failed."] if failed else []
        lines += [f"{setting.label}: {setting.failures[0]}" for setting in failed[:SHOWN_FAILURES]]
        spent = [line for spending in self.spent for line in spending.sentences()]
        best, stored = self.best, self.stored
        if best is None:
            none = [f"No setting is best: no run has a finite {stored.metric}."]
            return [*lines, *(none if self.groups else []), *spent]
        values = ", ".join(f"{key}={value}" for key, value in best.values.items())
        lines.append(f"Best by {stored.metric} on {stored.judged_on}: {values}.")
        if stored.judged_on == TEST and len(self.settings) > 1:
            remedy = "with --set data.validation=0.2 the test samples stay unseen."
            if stored.own_data:
                remedy = "test it once more on rows that no run has seen."
            lines.append(f"The best of many is not an independent estimate: {remedy}")
        return [*lines, *spent]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, None for numbers that are not finite: the content of grid.json."""
        best, base = self.best, self.base
        stored = self.stored.model_dump()
        results = [
            kept | self._results(setting)
            for kept, setting in zip(stored["settings"], self.settings, strict=True)
        ]
        return stored | {
            "best": None if best is None else best.values,
            "compared_with": None if base is None else base.values,
            "spent": [spending.as_dict() for spending in self.spent],
            "settings": results,
        }

    def _results(self, setting: GridSetting) -> dict[str, Any]:
        score = setting.score
        return {
            "label": setting.label,
            "scores": [self.measure.value(run) for run in setting.runs],
            "mean": None if score is None else finite_or_none(score.mean),
            "deviation": None if score is None else finite_or_none(score.deviation),
            "difference": _plain(self.difference(setting, self.measure)),
            "measures": {
                measure.key: _plain(over_seeds(setting, measure)) for measure in self.measures
            },
            "differences": {
                measure.key: _plain(self.difference(setting, measure))
                for measure in self.measures
                if measure.is_metric
            },
            "epsilon": setting.epsilon,
            "diverged": setting.diverged,
            "misleading": setting.misleading,
        }


def _plain(interval: Interval | None) -> dict[str, float | int | None] | None:
    return None if interval is None else interval.as_dict()


def is_grid(folder: Path) -> bool:
    """Whether a folder is that of a grid, which `tacit grid` wrote."""
    return (folder / FILE).is_file()


def read_grid(folder: Path) -> Grid:
    """Read the folder of a grid and of all its runs.

    Raises:
        Misuse: If a file is missing or damaged.
    """
    return make_grid(folder, read_stored(StoredGrid, folder / FILE))


def make_grid(folder: Path, stored: StoredGrid) -> Grid:
    """A grid from the folders of its runs."""
    runs = [
        tuple(read_run(folder / name) for name in setting.folders) for setting in stored.settings
    ]
    every = [run for ended in runs for run in ended]
    judging = measure_of(stored.metric, every)
    others = [measure for measure in measures(every) if measure.column != judging.column]
    settings = []
    for setting, ended in zip(stored.settings, runs, strict=True):
        group = RunGroup(setting_label(setting.values), ended)
        score, failures = over_seeds(group, judging), tuple(setting.failures)
        settings.append(GridSetting(group.label, ended, setting.values, failures, score))
    failed = [folder / name for setting in stored.settings for name in setting.failed]
    spent = spent_together([*every, *(run for path in failed if (run := _readable(path)))])
    return Grid(folder, stored, tuple(settings), judging, (judging, *others), tuple(spent))


def _readable(folder: Path) -> FinishedRun | None:
    """A run that failed, as far as it came; None if it recorded nothing."""
    try:
        return read_run(folder)
    except Misuse:
        return None


def short_keys(keys: Sequence[str]) -> list[str]:
    """The keys without their sections, unless two then have the same name."""
    last = [key.rpartition(".")[2] for key in keys]
    return last if len(set(last)) == len(last) else list(keys)


def setting_label(values: Mapping[str, str]) -> str:
    """The values in short; an algorithm needs no key.

    >>> setting_label({"algorithm": "lppa+fresh=true", "algorithm.lr": "0.1", "graph": "ring"})
    'lppa+fresh=true, lr=0.1, graph=ring'
    """
    names = short_keys(list(values))
    pairs = zip(names, values.values(), strict=True)
    return ", ".join(value if name == "algorithm" else f"{name}={value}" for name, value in pairs)
