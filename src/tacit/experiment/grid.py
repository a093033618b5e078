"""Grids: one experiment with many values of its keys, each with the same seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.config.loading import with_keys
from tacit.config.overrides import Note
from tacit.config.sections import Config
from tacit.config.variants import make_variant, with_values
from tacit.core.errors import Misuse, prefix_errors, unknown_name
from tacit.core.storage import write_json, write_text
from tacit.experiment.axes import Axis, combine
from tacit.experiment.folder import RunFolder, folder_name
from tacit.experiment.run_many import (
    ConfiguredRun,
    ListenerFor,
    LoadedData,
    Outcome,
    PlannedRun,
    no_listener,
    run_many,
)
from tacit.record.history import find_column
from tacit.report.finished_grid import (
    FILE,
    OWN,
    TEST,
    VALIDATION,
    Grid,
    StoredGrid,
    StoredSetting,
    make_grid,
    setting_label,
)
from tacit.report.paper_files import grid_csv
from tacit.tasks.metrics.metric import METRICS, find_metrics

# What the two commands that `tacit grid` replaces wrote into their folders.
OLDER = {"compare.json": "tacit compare", "sweep.json": "tacit sweep"}


def grid(
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
) -> Grid:
    """Run every combination of values with every seed; write grid.json and grid.csv.

    A run that fails does not stop the others. The promise of [privacy] is for algorithms that can
    keep one; others run without.

    Args:
        config: The experiment. Algorithms take over its algorithm options where they have them.
        axes: The keys and their values.
        out: Folder for the runs, new or empty.
        draws: Number of random combinations; default: all of the grid.
        seeds: Number of seeds, counted up from the configuration's.
        metric: What judges, such as "auc" or "loss.average_model"; a built-in metric that
            run.metrics does not name is added. Default: accuracy, deviation or loss.
        data_folder: Folder of the datasets.
        jobs: How many runs at the same time, each in a process with its part of the threads.
        resume: Continue the grid in `out`; finished runs are not repeated.
        note: Told of options that changed kinds drop, and of combinations that cannot run.
        listener_for: Makes the listener of a run from its label and seed.

    Raises:
        Misuse: If no combination can run, or the arguments make no sense.
        Interrupted: By Ctrl-C; what is finished stays.
    """
    if seeds < 1:
        raise Misuse(f"--seeds is {seeds}.", "Give at least 1.")
    _check_folder(out, resume)
    combinations = combine(axes, draws, config.run.seed)
    config, metric = _with_metric(config, metric)
    data = LoadedData(data_folder)
    configured, columns = _configure(config, axes, combinations, data, note)
    if metric is not None:
        metric = _find_metric(metric, columns)
    numbers = [config.run.seed + k for k in range(seeds)]
    settings = []
    for values, made in configured:
        if isinstance(made, Misuse):
            settings.append(PlannedSetting(values, refused=made))
            continue
        runs = []
        for seed in numbers:
            seeded, folder = with_keys(made, "run", seed=seed), run_folder(out, values, seed)
            folder.require_same_run(
                seeded, "Choose another --out, or resume with the configuration of that grid."
            )
            label = setting_label(values)
            runs.append(ConfiguredRun(label, seed, folder, seeded, data, resume))
        settings.append(PlannedSetting(values, runs))
    return run_settings(
        out,
        settings,
        numbers,
        metric,
        judged_on=_judged_on(config),
        own_data=config.task is None and config.data.is_own,
        jobs=jobs,
        listener_for=listener_for,
    )


@dataclass(frozen=True)
class PlannedSetting:
    """A combination of values: its runs, one for each seed, or why there are none."""

    values: dict[str, str]
    runs: Sequence[PlannedRun] = ()
    refused: Misuse | None = None


def run_folder(out: Path, values: Mapping[str, str], seed: int) -> RunFolder:
    """The folder of a setting's run."""
    return RunFolder(out / folder_name(setting_label(values).replace(", ", ","), f"-seed{seed}"))


def run_settings(
    out: Path,
    settings: Sequence[PlannedSetting],
    seeds: list[int],
    metric: str | None,
    *,
    judged_on: str,
    own_data: bool = False,
    jobs: int = 1,
    listener_for: ListenerFor = no_listener,
) -> Grid:
    """Make the runs of all settings; write grid.json and grid.csv beside their folders.

    Args:
        out: Folder of the grid.
        settings: The settings, each with values of the same keys.
        seeds: The seeds of their runs.
        metric: The column that judges; default: accuracy, deviation or loss.
        judged_on: What that is measured on.
        own_data: Whether the data are the user's own.
        jobs: How many runs at the same time.
        listener_for: Makes the listener of a run from its label and seed.
    """
    plan = [planned for setting in settings for planned in setting.runs]
    outcomes = run_many(plan, jobs=jobs, listener_for=listener_for)
    metric, remaining = metric or _default_metric(outcomes), iter(outcomes)
    stored = StoredGrid(
        keys=list(settings[0].values),
        seeds=seeds,
        metric=metric,
        judged_on=judged_on,
        own_data=own_data,
        settings=[
            _stored_setting(setting, [next(remaining) for _ in setting.runs], metric)
            for setting in settings
        ],
    )
    made = make_grid(out, stored)
    write_json(out / FILE, made.as_dict())
    write_text(out / "grid.csv", grid_csv(made))
    return made


def _check_folder(out: Path, resume: bool) -> None:
    for name, command in OLDER.items():
        if (out / name).is_file():
            raise Misuse(
                f"The output folder {out} was written by `{command}`, which `tacit grid` replaces.",
                f"Choose another --out. `tacit report {out}` shows the runs of the old one.",
            )
    if not resume:
        RunFolder(out).require_empty()


def _with_metric(config: Config, metric: str | None) -> tuple[Config, str | None]:
    """The configuration with a built-in metric among those that runs record, and its column."""
    metric = "msd" if metric == "msd_db" else metric
    name = (metric or "").removeprefix("own_test.").partition(".")[0]
    recorded = [given.rpartition(":")[2] for given in config.run.metrics or []]
    if name in ("", "accuracy", "loss", *recorded) or name not in METRICS:
        return config, metric
    find_metrics([name], "--metric")
    return with_keys(config, "run", metrics=[*(config.run.metrics or []), name]), metric


def _find_metric(metric: str, columns: Sequence[str]) -> str:
    """The column of a metric; Misuse if the runs record none of this name."""
    try:
        return find_column(metric, columns)
    except Misuse:
        shown = [column for column in columns if ".clients." not in column]
        known = [*shown, *(name for name in METRICS if f"{name}.mean" not in shown)]
        raise unknown_name(f"--metric {metric!r} is not recorded.", metric, known) from None


def _configure(
    config: Config,
    axes: Sequence[Axis],
    combinations: Sequence[dict[str, str]],
    data: LoadedData,
    note: Note,
) -> tuple[list[tuple[dict[str, str], Config | Misuse]], list[str]]:
    """The configuration of each combination, or why it cannot run; and the columns of records.

    `note` is told of those that cannot run, and of options that are dropped.

    Raises:
        Misuse: If none can run, or an algorithm is wrong.
    """
    algorithms = [value for axis in axes if axis.key == "algorithm" for value in axis.values]
    _check_algorithms(config, algorithms)
    notes: dict[str, None] = {}
    configured: list[tuple[dict[str, str], Config | Misuse]] = []
    columns: list[str] = []
    for values in combinations:
        try:
            made = with_values(config, values, algorithms, lambda text: notes.setdefault(text))
            recorded = data.check(made)
            columns = columns or recorded
            configured.append((values, made))
        except Misuse as problem:
            configured.append((values, problem))
    refused = [(values, made) for values, made in configured if isinstance(made, Misuse)]
    if len(refused) == len(configured):
        raise refused[0][1]
    for text in notes:
        note(text)
    for values, why in refused:
        note(f"{setting_label(values)} cannot run: {why}")
    return configured, columns


def _check_algorithms(config: Config, labels: Sequence[str]) -> None:
    """Raise Misuse for a wrong name or option, and if none keeps the promise of [privacy]."""
    with prefix_errors("--over algorithm"):
        variants = [make_variant(config, label, labels) for label in labels]
    kept = any(variant.privacy is not None for variant in variants)
    if config.privacy is not None and variants and not kept:
        names = ", ".join(variant.algorithm.name for variant in variants)
        raise Misuse(
            f"[privacy] promises a guarantee, which none of {names} keeps.",
            "Add an algorithm that does (`tacit algorithms`), or remove the section.",
        )


def _judged_on(config: Config) -> str:
    if config.task is not None:
        return OWN
    return TEST if config.data.validation is None else VALIDATION


def _default_metric(outcomes: Sequence[Outcome]) -> str:
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    if any(summary["accuracy"] is not None for summary in summaries):
        return "accuracy.mean"
    known = any(summary.get("msd") is not None for summary in summaries)
    return "msd" if known else "loss.mean"


def _stored_setting(
    setting: PlannedSetting, outcomes: Sequence[Outcome], metric: str
) -> StoredSetting:
    failures = [] if setting.refused is None else [str(setting.refused)]
    ended, failed = [], []
    for planned, outcome in zip(setting.runs, outcomes, strict=True):
        folder = planned.folder
        problem = outcome.failure or _missing(metric, folder)
        if problem is None:
            ended.append(folder.path.name)
        else:
            failures.append(f"seed {planned.seed}: {problem}")
            failed += [folder.path.name] if folder.config.exists() else []
    return StoredSetting(values=setting.values, folders=ended, failed=failed, failures=failures)


def _missing(metric: str, folder: RunFolder) -> str | None:
    """What is wrong if a run that ended earlier, and is not repeated, lacks the metric."""
    try:
        folder.read_history().column(metric)
    except Misuse as problem:
        return str(problem)
    return None
