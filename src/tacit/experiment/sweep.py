"""Sweeps: one experiment with many values of its keys, on a grid or drawn at random."""

from __future__ import annotations

import csv
import io
import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.config.loading import make_config, with_keys
from tacit.config.overrides import Note
from tacit.config.sections import Config
from tacit.core.errors import Misuse, TacitError
from tacit.core.randomness import derive_key
from tacit.core.storage import write_json, write_text
from tacit.engines.callbacks import best_index, less_is_better
from tacit.experiment.compare import (
    mean_and_deviation,
    split_outside_brackets,
    with_metric,
)
from tacit.experiment.folder import RunFolder, folder_name
from tacit.experiment.run_many import (
    ListenerFor,
    LoadedData,
    Outcome,
    PlannedRun,
    no_listener,
    run_many,
)
from tacit.record.history import find_column
from tacit.report.sweep_page import SweepRow, write_sweep_page
from tacit.tasks.metrics.metric import METRICS

MAX_CELLS = 10_000
# What cells are judged on.
TEST, VALIDATION, OWN = "test samples", "validation samples", "the task's own evaluation"


@dataclass(frozen=True)
class Axis:
    """A key and the values that it takes: texts as in `--set`, or a range to draw from."""

    key: str
    values: tuple[str, ...] = ()
    draw: Callable[[float], str] | None = None  # from a uniform number in [0, 1)

    @classmethod
    def parse(cls, text: str) -> Axis:
        """An axis such as "algorithm.lr=0.01,0.1" or "algorithm.lr=log:1e-3:1".

        Ranges are "log:LOW:HIGH", "uniform:LOW:HIGH" and, with both ends, "int:LOW:HIGH".
        """
        key, equals, rest = text.partition("=")
        key = key.strip()
        if not equals or not key or not rest.strip():
            raise Misuse(
                f"--over {text!r} is not of the form KEY=VALUE,VALUE.",
                "E.g. algorithm.lr=0.01,0.1 or, with --random, algorithm.lr=log:1e-3:1.",
            )
        kind, colon, ends = rest.strip().partition(":")
        if colon and kind in ("log", "uniform", "int"):
            return cls(key, draw=_range(text, kind, ends))
        values = [value.strip() for value in split_outside_brackets(rest, ",")]
        if not all(values):
            raise Misuse(f"--over {text!r} has an empty value.", "Remove one of its commas.")
        return cls(key, tuple(dict.fromkeys(values)))


@dataclass(frozen=True)
class SweepCell:
    """One combination of values over all seeds.

    Attributes:
        settings: The value of each key, as text.
        scores: The metric at the end of each run that has ended.
        failures: Why other runs have not.
        bytes_sent: By all clients, the mean over seeds.
        folders: Of the runs that have ended.
    """

    settings: dict[str, str]
    scores: tuple[float, ...]
    failures: tuple[str, ...]
    bytes_sent: float
    folders: tuple[Path, ...]

    @property
    def score(self) -> float:
        """The mean over seeds; NaN if a run failed."""
        return math.nan if self.failures or not self.scores else statistics.fmean(self.scores)

    @property
    def label(self) -> str:
        return _label(self.settings)

    def row(self) -> SweepRow:
        """The cell as a row of a table."""
        mean, deviation = mean_and_deviation(self.scores) if self.scores else (math.nan,) * 2
        values = tuple(self.settings.values())
        return SweepRow(values, mean, deviation, self.bytes_sent, self.failures)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, None for numbers that are not finite."""
        row = self.row()
        numbers = {"mean": row.mean, "deviation": row.deviation, "bytes_sent": self.bytes_sent}
        finite = {key: one if math.isfinite(one) else None for key, one in numbers.items()}
        scores = [one if math.isfinite(one) else None for one in self.scores]
        return {
            "settings": self.settings,
            **finite,
            "scores": scores,
            "failures": list(self.failures),
            "folders": [path.name for path in self.folders],
        }


@dataclass(frozen=True)
class Sweep:
    """All cells, and by which metric they are judged.

    Attributes:
        judged_on: What the metric was measured on: "validation samples" or others.
        own_data: Whether the data are the user's own tables or arrays.
    """

    keys: tuple[str, ...]
    cells: tuple[SweepCell, ...]
    seeds: tuple[int, ...]
    metric: str
    judged_on: str
    own_data: bool = False

    @property
    def best(self) -> SweepCell | None:
        """The cell with the best mean; None if all failed."""
        scores = [cell.score for cell in self.cells]
        if not any(map(math.isfinite, scores)):
            return None
        return self.cells[best_index(scores, self.metric)]

    @property
    def ranked(self) -> list[SweepCell]:
        """The cells, the best first and failed ones last."""
        sign = 1 if less_is_better(self.metric) else -1
        return sorted(
            self.cells,
            key=lambda cell: sign * cell.score if math.isfinite(cell.score) else math.inf,
        )

    def as_dict(self) -> dict[str, Any]:
        best = self.best
        return {
            "metric": self.metric,
            "judged_on": self.judged_on,
            "seeds": list(self.seeds),
            "best": None if best is None else best.settings,
            "cells": [cell.as_dict() for cell in self.cells],
        }

    def sentences(self) -> list[str]:
        """Which combination is best, and what that is worth."""
        best = self.best
        failed = sum(bool(cell.failures) for cell in self.cells)
        found = [f"{failed} of {len(self.cells)} combinations failed."] if failed else []
        if best is None:
            return [*found, *(cell.failures[0] for cell in self.cells[:1])]
        found.append(f"Best by {self.metric} on {self.judged_on}: {best.label}.")
        if self.judged_on == TEST:
            remedy = "with --set data.validation=0.2 the test samples stay unseen."
            if self.own_data:
                remedy = "test it once more on rows that no run has seen."
            found.append(f"The best of many is not an independent estimate: {remedy}")
        return found

    def to_csv(self) -> str:
        """A line per run that has ended: the values of the keys, the seed and the metric."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([*self.keys, "folder", self.metric])
        for cell in self.cells:
            for folder, score in zip(cell.folders, cell.scores, strict=True):
                writer.writerow([*cell.settings.values(), folder.name, score])
        return buffer.getvalue()


def sweep(
    config: Config,
    axes: Sequence[Axis],
    out: Path,
    *,
    draws: int | None = None,
    seeds: int = 1,
    metric: str | None = None,
    data_folder: Path | None = None,
    jobs: int = 1,
    resume: bool = False,
    note: Note = lambda text: None,
    listener_for: ListenerFor = no_listener,
) -> Sweep:
    """Run every combination of values with every seed; write sweep.json and sweep.csv.

    Args:
        config: The experiment.
        axes: The keys and their values.
        out: Folder for the runs, new or empty.
        draws: Number of random combinations; default: all of the grid.
        seeds: Number of seeds, counted up from the configuration's.
        metric: What judges, such as "auc" or "loss.average_model"; a built-in metric that
            run.metrics does not name is added. Default: accuracy, deviation or loss.
        data_folder: Folder of the datasets.
        jobs: How many runs at the same time.
        resume: Continue the sweep in `out`; finished runs are not repeated.
        note: Told of options that changed kinds drop, and of combinations that cannot run.
        listener_for: Makes the listener of a run from its label and seed.

    Raises:
        Misuse: If no combination can run, or the arguments make no sense.
        Interrupted: By Ctrl-C; what is finished stays.
    """
    if seeds < 1:
        raise Misuse(f"--seeds is {seeds}.", "Give at least 1.")
    if not resume:
        RunFolder(out).require_empty()
    combinations = combine(axes, draws, config.run.seed)
    if (name := (metric or "").removeprefix("own_test.").partition(".")[0]) in METRICS:
        config = with_metric(config, name)
    data = LoadedData(data_folder)
    notes: dict[str, None] = {}
    configs: dict[int, Config] = {}
    refused: dict[int, Misuse] = {}
    for number, settings in enumerate(combinations):
        overrides = [f"{key}={value}" for key, value in settings.items()]
        try:
            cell = make_config(
                config.as_dict(), overrides, "The sweep", lambda text: notes.setdefault(text)
            )
            columns = data.check(cell)
            if metric is not None:
                metric = find_column(metric, columns)
        except Misuse as problem:
            refused[number] = problem
        else:
            configs[number] = cell
    if not configs:
        raise next(iter(refused.values()))
    for text in notes:
        note(text)
    for number, why in refused.items():
        note(f"{_label(combinations[number])} cannot run: {why}")
    numbers = tuple(config.run.seed + k for k in range(seeds))
    plan = {
        (number, seed): PlannedRun(
            _label(combinations[number]),
            with_keys(cell, "run", seed=seed),
            RunFolder(out / folder_name(_short_label(combinations[number]), f"-seed{seed}")),
        )
        for number, cell in configs.items()
        for seed in numbers
    }
    for one in plan.values():
        one.folder.require_same_run(
            one.config, "Choose another --out, or resume with the configuration of that sweep."
        )
    outcomes = dict(
        zip(
            plan,
            run_many(
                list(plan.values()), data=data, jobs=jobs, resume=resume, listener_for=listener_for
            ),
            strict=True,
        )
    )
    metric = metric or _default_metric(list(outcomes.values()))
    cells = []
    for number, settings in enumerate(combinations):
        ended = [outcomes[number, seed] for seed in numbers if (number, seed) in outcomes]
        failures = [refused[number]] if number in refused else []
        cells.append(_cell(settings, ended, failures, metric))
    judged_on = TEST if config.data.validation is None else VALIDATION
    judged_on = judged_on if config.task is None else OWN
    keys = tuple(axis.key for axis in axes)
    found = Sweep(keys, tuple(cells), numbers, metric, judged_on, config.data.is_own)
    write_json(out / "sweep.json", found.as_dict())
    write_text(out / "sweep.csv", found.to_csv())
    return found


def write_page(found: Sweep, out: Path, title: str) -> Path:
    """Write the report of a sweep."""
    return write_sweep_page(
        out,
        title=title,
        keys=found.keys,
        rows=[cell.row() for cell in found.ranked],
        metric=found.metric,
        judged_on=found.judged_on,
        seeds=len(found.seeds),
        less_is_better=less_is_better(found.metric),
        links={
            tuple(cell.settings.values()): [path.name for path in cell.folders]
            for cell in found.cells
        },
    )


def combine(axes: Sequence[Axis], draws: int | None, seed: int) -> list[dict[str, str]]:
    """All combinations of the axes' values, or so many different random ones.

    More draws with the same seed begin with the same combinations.
    """
    keys = [axis.key for axis in axes]
    if not axes or len(set(keys)) < len(keys):
        problem = f"--over names a key twice: {', '.join(keys)}."
        problem = problem if axes else "There is nothing to sweep over."
        raise Misuse(problem, "Give each key once, e.g. --over algorithm.lr=0.01,0.1.")
    if "run.seed" in keys:
        raise Misuse("--over run.seed is not a sweep.", "Use --seeds 3, which averages over seeds.")
    if draws is None:
        for axis in axes:
            if axis.draw is not None:
                raise Misuse(
                    f"--over {axis.key} is a range, which a grid cannot enumerate.",
                    "Add --random 20, or list values.",
                )
        count = math.prod(len(axis.values) for axis in axes)
        if count > MAX_CELLS:
            raise Misuse(
                f"The grid has {count:,} combinations.",
                f"Use at most {MAX_CELLS:,}, or draw some with --random.",
            )
        products = itertools.product(*(axis.values for axis in axes))
        return [dict(zip(keys, values, strict=True)) for values in products]
    if not 1 <= draws <= MAX_CELLS:
        raise Misuse(f"--random is {draws}.", f"Give a number from 1 to {MAX_CELLS:,}.")
    source = random.Random(derive_key(seed, "sweep"))
    found: dict[tuple[str, ...], None] = {}
    # A grid may have fewer combinations than are asked for.
    for _ in range(100 * draws):
        if len(found) == draws:
            break
        numbers = [source.random() for _ in axes]
        found.setdefault(
            tuple(_draw(axis, number) for axis, number in zip(axes, numbers, strict=True))
        )
    return [dict(zip(keys, values, strict=True)) for values in found]


def _draw(axis: Axis, number: float) -> str:
    if axis.draw is not None:
        return axis.draw(number)
    return axis.values[int(number * len(axis.values))]


def _range(text: str, kind: str, ends: str) -> Callable[[float], str]:
    try:
        low, high = (float(end) for end in ends.split(":"))
    except ValueError:
        raise Misuse(
            f"--over {text!r} is not a range.", f"Write {kind}:LOW:HIGH with two numbers."
        ) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high) or (
        kind == "log" and low <= 0
    ):
        raise Misuse(
            f"--over {text!r} is not a range.",
            "The second number must be larger"
            + (", the first positive." if kind == "log" else "."),
        )
    if kind == "log":
        return lambda number: f"{low * (high / low) ** number:.4g}"
    if kind == "int":
        return lambda number: str(math.floor(low + number * (math.floor(high) - low + 1)))
    return lambda number: repr(float(f"{low + number * (high - low):.4g}"))


def _default_metric(outcomes: Sequence[Outcome]) -> str:
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    if any(summary["accuracy"] is not None for summary in summaries):
        return "accuracy.mean"
    known = any(summary.get("msd") is not None for summary in summaries)
    return "msd" if known else "loss.mean"


def _cell(
    settings: dict[str, str],
    outcomes: Sequence[Outcome],
    failures: Sequence[TacitError],
    metric: str,
) -> SweepCell:
    ended = [outcome for outcome in outcomes if outcome.summary is not None]
    failed = [*failures, *(one.failure for one in outcomes if one.failure is not None)]
    scores = []
    for one in list(ended):
        try:
            scores.append(one.planned.folder.read_history().column(metric)[-1])
        except Misuse as problem:
            # A finished run that is not repeated may not have recorded it.
            ended.remove(one)
            failed.append(problem)
    sent = [one.summary["bytes_sent"] for one in ended if one.summary is not None]
    return SweepCell(
        settings,
        tuple(scores),
        tuple(map(str, failed)),
        statistics.fmean(sent) if sent else math.nan,
        tuple(one.planned.folder.path for one in ended),
    )


def _label(settings: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def _short_label(settings: dict[str, str]) -> str:
    """Without the sections, unless two keys then have the same name."""
    last = [key.rpartition(".")[2] for key in settings]
    names = last if len(set(last)) == len(last) else list(settings)
    return ",".join(f"{name}={value}" for name, value in zip(names, settings.values(), strict=True))
