"""Grids in Python: one task with several algorithms, graphs and options, each with the same seeds.

The folder, its page and its tables are those of `tacit grid`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.algorithms import ALGORITHMS
from tacit.algorithms.algorithm import Algorithm, options_of
from tacit.algorithms.named import as_algorithm
from tacit.core.checks import check_count
from tacit.core.errors import Misuse, prefix_errors, unknown_name
from tacit.core.provenance import current_provenance
from tacit.core.storage import read_json
from tacit.engines.observation import recorded_columns
from tacit.engines.running import run
from tacit.experiment.folder import RunFolder
from tacit.experiment.grid import PlannedSetting, run_folder, run_settings
from tacit.experiment.run import ProgressListener
from tacit.experiment.run_many import PlannedRun
from tacit.graph import Graph, Topology
from tacit.graph.named import with_weights
from tacit.privacy.guarantee import Privacy
from tacit.record.history import find_column
from tacit.report.finished_grid import OWN, Grid, setting_label
from tacit.report.grid_page import write_grid_report
from tacit.tasks import Objective
from tacit.tasks.metrics.metric import Metrics

# Options of runs that can be given and varied, beside how long they are and what they promise.
RUN_OPTIONS = (
    "device",
    "gradients",
    "prg",
    "secret_noise",
    "precision",
    "participation",
    "record_every",
    "allow_divergence",
)
LENGTHS = ("epochs", "steps", "privacy")


def grid(
    task: Objective,
    algorithm: str | Algorithm | Sequence[str | Algorithm],
    graph: str | Topology | Graph | Sequence[str | Topology | Graph] = "ring",
    *,
    out: Path | str,
    epochs: float | list[float] | None = None,
    steps: int | list[int] | None = None,
    seeds: int = 1,
    privacy: Privacy | list[Privacy] | None = None,
    metrics: Metrics | None = None,
    metric: str | None = None,
    **options: Any,
) -> Grid:
    """Run every combination of algorithms, graphs and options on a task, each with the same seeds.

    The arguments are those of `tacit.run`, and a list of values is varied. A run that fails does
    not stop the others. `out` gets a folder per run, grid.json with all numbers, grid.csv, and
    report.html; `tacit report` takes it.

    Args:
        task: What each client minimises.
        algorithm: Names or objects, such as `["dsgt", tacit.LPPA(lr=0.1)]`.
        graph: Names, topologies or graphs, such as `["ring", "complete"]`.
        out: A new or empty folder.
        epochs: Passes over the average client's data; or give `steps`.
        steps: Iterations of each run.
        seeds: How many seeds, counted up from 0.
        privacy: The guarantee of the algorithms that can keep one; others run without.
        metrics: What to record beside loss and accuracy.
        metric: What judges, such as "auc"; by default accuracy, deviation or loss.
        **options: Options of the algorithms, such as `lr=[0.05, 0.1]`, each for those algorithms
            that have it, objects included; and options of the runs: device, gradients, prg,
            secret_noise, precision, participation, record_every and allow_divergence.

    Returns:
        All settings: `grid.best`, `grid.ranked`, `grid.sentences()`, `grid.as_dict()`.

    Raises:
        Misuse: If the arguments do not fit each other, or no run can start.

    Example:
        >>> import tempfile, tacit, torch
        >>> task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.randn(5, 2))
        >>> names, graphs = ["dsgt", "d-psgd"], ["ring", "complete"]
        >>> made = tacit.grid(task, names, graphs, lr=0.1, steps=50, out=tempfile.mkdtemp())
        >>> made.best.values["algorithm"]
        'dsgt'
    """
    check_count("seeds", seeds)
    folder = Path(out)
    RunFolder(folder).require_empty()
    lengths = {"epochs": epochs, "steps": steps, "privacy": privacy}
    given = {key: value for key, value in lengths.items() if value is not None} | options
    axes = {
        "algorithm": _choices(algorithm, lambda chosen: chosen.name),
        "graph": _choices(graph, str),
        **{key: _values(value) for key, value in given.items()},
    }
    algorithms, graphs = list(axes["algorithm"].values()), list(axes["graph"].values())
    _check_options(algorithms, options)
    for each in graphs:
        with_weights(each, task.clients)
    varied = [key for key in axes if len(axes[key]) > 1] or ["algorithm"]
    settings = []
    for chosen in itertools.product(*(values.items() for values in axes.values())):
        labels = {key: label for key, (label, _) in zip(axes, chosen, strict=True)}
        objects = {key: value for key, (_, value) in zip(axes, chosen, strict=True)}
        values = {key: labels[key] for key in varied}
        label = setting_label(values)
        runs = [
            TaskRun(label, seed, run_folder(folder, values, seed), task, objects, metrics)
            for seed in range(seeds)
        ]
        settings.append(PlannedSetting(values, runs))
    if metric is not None:
        with prefix_errors("metric"):
            metric = find_column(metric, recorded_columns(task.with_metrics(metrics)))
    made = run_settings(folder, settings, list(range(seeds)), metric, judged_on=OWN)
    if not made.groups:
        raise Misuse(f"No run has ended: {made.settings[0].failures[0]}", "Correct the arguments.")
    write_grid_report(made, folder / "report.html", current_provenance())
    return made


@dataclass(frozen=True, eq=False)
class TaskRun(PlannedRun):
    """A run of a task with one algorithm, one graph and one value of each option."""

    task: Objective
    objects: dict[str, Any]
    metrics: Metrics | None

    def start(self, listener: ProgressListener) -> dict[str, Any]:
        algorithm = _algorithm(self.objects)
        of_run = {key: self.objects[key] for key in (*RUN_OPTIONS, *LENGTHS) if key in self.objects}
        if not algorithm.keeps_guarantee:
            of_run.pop("privacy", None)
        graph, metrics = self.objects["graph"], self.metrics
        made = run(self.task, algorithm, graph, seed=self.seed, metrics=metrics, **of_run)
        made.save(self.folder.path)
        return read_json(self.folder.summary)


def _check_options(algorithms: Sequence[str | Algorithm], options: Iterable[str]) -> None:
    """Raise Misuse for an unknown algorithm, and for options that none of them has."""
    if not algorithms:
        raise Misuse("The list of algorithms is empty.", 'Give at least one, such as ["dsgt"].')
    known = [name for chosen in algorithms for name in options_of(_kind(chosen))]
    for key in options:
        if key not in known and key not in RUN_OPTIONS:
            problem = f"{key!r} is an option of none of the algorithms."
            raise unknown_name(problem, key, [*known, *RUN_OPTIONS, *LENGTHS])


def _kind(chosen: str | Algorithm) -> type[Algorithm]:
    return ALGORITHMS.find(chosen) if isinstance(chosen, str) else type(chosen)


def _algorithm(objects: dict[str, Any]) -> Algorithm:
    """An algorithm with those of the options that it has."""
    chosen = objects["algorithm"]
    known = options_of(_kind(chosen))
    given = {key: value for key, value in objects.items() if key in known}
    if isinstance(chosen, Algorithm):
        return replace(chosen, **given)  # type: ignore[type-var]
    return as_algorithm(chosen, given)


def _choices(given: Any, name_of: Callable[[Any], str]) -> dict[str, Any]:
    """What to choose from, by labels that differ."""
    several = list(given) if isinstance(given, list | tuple) else [given]
    labels = [choice if isinstance(choice, str) else name_of(choice) for choice in several]
    return {
        label if labels.count(label) == 1 else repr(choice): choice
        for label, choice in zip(labels, several, strict=True)
    }


def _values(given: Any) -> dict[str, Any]:
    """The values of an option, by their text."""
    several = given if isinstance(given, list) else [given]
    return {f"{value:g}" if isinstance(value, float) else str(value): value for value in several}
