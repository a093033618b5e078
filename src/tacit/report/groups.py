"""Groups of runs that differ in their seeds only, and names for groups and runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit.core.missing_numbers import finite_or_none
from tacit.core.shown_paths import without_folders
from tacit.report.finished_run import FinishedRun


@dataclass(frozen=True)
class RunGroup:
    """Runs that are drawn as one curve, and their name."""

    label: str
    runs: tuple[FinishedRun, ...]

    @property
    def diverged(self) -> int:
        """Number of runs that diverged."""
        return sum(run.summary.diverged is not None for run in self.runs)

    @property
    def legend(self) -> str:
        """The label, with the number of seeds and how many of the runs diverged."""
        if len(self.runs) == 1:
            return f"{self.label} (diverged)" if self.diverged else self.label
        more = f", {self.diverged} diverged" if self.diverged else ""
        return f"{self.label}, {len(self.runs)} seeds{more}"

    @property
    def epsilon(self) -> float | None:
        """The largest ε that a run has spent; None if one of them has no guarantee."""
        spent = [math.inf if run.spending is None else run.spending.spent for run in self.runs]
        return finite_or_none(max(spent, default=math.inf))

    def name_of(self, run: FinishedRun) -> str:
        return self.legend if len(self.runs) == 1 else f"{self.label}, seed {run.summary.seed}"


def runs_of(groups: Sequence[RunGroup]) -> list[FinishedRun]:
    """The runs of all groups."""
    return [run for group in groups for run in group.runs]


def group_runs(runs: Sequence[FinishedRun]) -> list[RunGroup]:
    """Group runs that differ in their seeds only; diverged runs and repeated seeds stand alone.

    The name of a group is its algorithm and the settings in which groups of it differ.
    """
    alike: dict[tuple[str, str, bool], list[FinishedRun]] = {}
    for run in runs:
        diverged = run.summary.diverged is not None
        key = (run.summary.algorithm, _settings(run, seeds=False), diverged)
        alike.setdefault(key, []).append(run)
    groups: list[tuple[FinishedRun, ...]] = []
    for (_, _, diverged), members in alike.items():
        distinct = len({_settings(run, seeds=True) for run in members}) == len(members)
        groups += [tuple(members)] if distinct and not diverged else [(run,) for run in members]
    names = [_name(members, groups) for members in groups]
    return [
        RunGroup(name if names.count(name) == 1 else f"{name} [{members[0].name}]", members)
        for name, members in zip(names, groups, strict=True)
    ]


def owner_of(group: RunGroup, run: FinishedRun, groups: Sequence[RunGroup]) -> str:
    """What titles about one of several runs start with; "" if there is one run only."""
    return "" if len(groups) == len(group.runs) == 1 else f"{group.name_of(run)}: "


def differences(runs: Sequence[FinishedRun]) -> dict[str, list[str]]:
    """The settings that differ between runs, with the value of each run ("–" if not set)."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    return {
        key: [_format(run.settings[key]) if key in run.settings else "–" for run in runs]
        for key in keys
        if len({_canonical(run.settings.get(key)) for run in runs}) > 1
    }


def _name(members: tuple[FinishedRun, ...], groups: Sequence[tuple[FinishedRun, ...]]) -> str:
    first = members[0]
    rivals = [other for other, *_ in groups if other.summary.algorithm == first.summary.algorithm]
    twins = [run for run in rivals if _settings(run, seeds=False) == _settings(first, seeds=False)]
    # The seed is part of the name if nothing else tells single runs apart.
    by_seed = len(members) == 1 and len(twins) > 1
    keys = [
        key
        for key in differences(rivals)
        if key in first.settings and (by_seed or not _is_seed(key))
    ]
    values = [f"{_short(key, keys)}={_format(first.settings[key])}" for key in keys]
    return ", ".join([first.summary.algorithm, *values])


def _short(key: str, keys: Sequence[str]) -> str:
    """The last part of a key, if it is unique among the keys and not just `name`."""
    last = key.rpartition(".")[2]
    unique = sum(other.rpartition(".")[2] == last for other in keys) == 1
    return last if unique and last != "name" else key


def _settings(run: FinishedRun, *, seeds: bool) -> str:
    """The seeds of a run, or all its other settings, as text to compare."""
    chosen = {key: value for key, value in run.settings.items() if _is_seed(key) == seeds}
    return _canonical([chosen, run.summary.seed if seeds else None])


def _is_seed(key: str) -> bool:
    return key.rpartition(".")[2] == "seed"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return without_folders(value)
    return json.dumps(value, default=str, ensure_ascii=False)
