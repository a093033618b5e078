"""Several runs in one picture: which are the same but for their seed, and what to call each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit.report.curves import Series
from tacit.report.finished_run import FinishedRun


@dataclass(frozen=True)
class RunGroup:
    """Runs drawn as one line."""

    name: str
    runs: tuple[FinishedRun, ...]

    @property
    def label(self) -> str:
        """The name, and how many runs there are or that the run failed."""
        if len(self.runs) > 1:
            return f"{self.name}, {len(self.runs)} seeds"
        return f"{self.name} (diverged)" if diverged(self.runs[0]) else self.name

    @property
    def series(self) -> Series:
        """The same for the plots."""
        return Series(self.label, tuple(run.history for run in self.runs))


def group_runs(runs: Sequence[FinishedRun]) -> list[RunGroup]:
    """Put runs together that differ only in their seeds; one that diverged or repeats a seed stands alone.

    A name is the algorithm plus the settings in which groups of that algorithm differ.
    """
    alike: dict[tuple[str, str, bool], list[FinishedRun]] = {}
    for run in runs:
        alike.setdefault((run.summary.algorithm, _key(run, seeds=False), diverged(run)), []).append(
            run
        )
    together: list[tuple[FinishedRun, ...]] = []
    for (_, _, broken), members in alike.items():
        distinct = len({_key(run, seeds=True) for run in members}) == len(members)
        together += [tuple(members)] if distinct and not broken else [(run,) for run in members]
    names = [_name(members, together) for members in together]
    return [
        RunGroup(name if names.count(name) == 1 else f"{name} [{members[0].name}]", members)
        for name, members in zip(names, together, strict=True)
    ]


def diverged(run: FinishedRun) -> bool:
    """Whether the run stopped because numbers ran away."""
    return run.summary.diverged is not None


def run_name(group: RunGroup, run: FinishedRun) -> str:
    """What to call one run of a group."""
    return group.label if len(group.runs) == 1 else f"{group.name}, seed {run.summary.seed}"


def differences(runs: Sequence[FinishedRun]) -> dict[str, list[str]]:
    """The settings that are not the same in all runs, each with its value per run ("–" where unset)."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    differing = [key for key in keys if len({_exact(run.settings.get(key)) for run in runs}) > 1]
    return {
        key: [_value(run.settings[key]) if key in run.settings else "–" for run in runs]
        for key in differing
    }


def _name(members: tuple[FinishedRun, ...], together: Sequence[tuple[FinishedRun, ...]]) -> str:
    first = members[0]
    rivals = [
        others[0] for others in together if others[0].summary.algorithm == first.summary.algorithm
    ]
    twins = [run for run in rivals if _key(run, seeds=False) == _key(first, seeds=False)]
    by_seed = len(members) == 1 and len(twins) > 1  # the other settings do not tell these apart
    keys = [
        key
        for key in differences(rivals)
        if key in first.settings and (by_seed or not _is_seed(key))
    ]
    return ", ".join(
        [
            first.summary.algorithm,
            *(f"{_short(key, keys)}={_value(first.settings[key])}" for key in keys),
        ]
    )


def _short(key: str, among: Sequence[str]) -> str:
    """The last part of a key where that is enough to know it by."""
    last = key.rpartition(".")[2]
    return (
        last
        if sum(other.rpartition(".")[2] == last for other in among) == 1 and last != "name"
        else key
    )


def _key(run: FinishedRun, *, seeds: bool) -> str:
    chosen = {key: value for key, value in run.settings.items() if _is_seed(key) == seeds}
    return _exact([chosen, run.summary.seed if seeds else None])


def _is_seed(key: str) -> bool:
    return key.rpartition(".")[2] == "seed"


def _exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
