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
from tacit.config.graphs import make_graph
from tacit.config.sections import GraphSection
from tacit.core.checks import check_count
from tacit.core.errors import Diverged, Misuse, prefix_errors, unknown_name
from tacit.core.provenance import current_provenance
from tacit.engines.simulate import simulate
from tacit.experiment.folder import RunFolder, folder_name
from tacit.experiment.grid import write_grid
from tacit.graph import Graph
from tacit.privacy.guarantee import Privacy
from tacit.record.history import find_column
from tacit.report.finished_grid import OWN, Grid, StoredGrid, StoredSetting, setting_label
from tacit.report.grid_page import write_grid_report
from tacit.tasks import Task
from tacit.tasks.metrics.metric import Metrics


def grid(
    task: Task,
    algorithm: str | Algorithm | Sequence[str | Algorithm],
    graph: str | Graph | Sequence[str | Graph] = "ring",
    *,
    out: Path | str,
    steps: int | None = None,
    epochs: int | None = None,
    seeds: int = 1,
    privacy: Privacy | None = None,
    metrics: Metrics | None = None,
    metric: str | None = None,
    device: str = "cpu",
    **options: Any,
) -> Grid:
    """Run every combination of algorithms, graphs and options on a task, each with the same seeds.

    A run that fails does not stop the others. `out` gets a folder per run, grid.json with all
    numbers, grid.csv, and report.html; `tacit report` takes it.

    Args:
        task: What each client minimises.
        algorithm: Names or objects, such as `["dsgt", tacit.LPPA(lr=0.1)]`.
        graph: Names, with Metropolis weights, or graphs.
        out: A new or empty folder.
        steps: Iterations of each run; or give `epochs`.
        epochs: Passes over the average client's data.
        seeds: How many seeds, counted up from 0.
        privacy: The guarantee of the algorithms that can keep one; others run without.
        metrics: What to record beside loss and accuracy.
        metric: What judges, such as "auc"; by default accuracy, deviation or loss.
        device: `"cpu"` or a CUDA device.
        **options: Options of the algorithms, such as `lr=0.1`; a list of values is varied.

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
    axes = {
        "algorithm": _choices(algorithm, lambda chosen: chosen.name),
        "graph": _choices(graph, str),
        **{key: _values(value) for key, value in options.items()},
    }
    varied = [key for key in axes if len(axes[key]) > 1] or ["algorithm"]
    settings = []
    for chosen in itertools.product(*(values.items() for values in axes.values())):
        labels = {key: label for key, (label, _) in zip(axes, chosen, strict=True)}
        objects = {key: value for key, (_, value) in zip(axes, chosen, strict=True)}
        values = {key: labels[key] for key in varied}
        settings.append((values, objects))
    _check_options(list(axes["algorithm"].values()), options)
    plan = _Plan(task, folder, steps, epochs, privacy, metrics, device)
    stored = [plan.run(values, objects, seeds) for values, objects in settings]
    if not any(setting.folders for setting in stored):
        raise Misuse(f"No run has ended: {stored[0].failures[0]}", "Correct the arguments.")
    found = StoredGrid(
        keys=varied,
        seeds=list(range(seeds)),
        metric=plan.judging(metric),
        judged_on=OWN,
        settings=stored,
    )
    made = write_grid(folder, found)
    write_grid_report(made, folder / "report.html", current_provenance())
    return made


@dataclass(frozen=True)
class _Plan:
    """What all settings have in common."""

    task: Task
    folder: Path
    steps: int | None
    epochs: int | None
    privacy: Privacy | None
    metrics: Metrics | None
    device: str

    def run(self, values: dict[str, str], objects: dict[str, Any], seeds: int) -> StoredSetting:
        """Run a setting with every seed."""
        ended, failures = [], []
        for seed in range(seeds):
            name = folder_name(setting_label(values).replace(", ", ","), f"-seed{seed}")
            try:
                algorithm = _algorithm(objects)
                promise = self.privacy if algorithm.keeps_guarantee else None
                result = simulate(
                    algorithm,
                    self.task,
                    self._graph(objects["graph"], seed),
                    steps=self._iterations(algorithm),
                    seed=seed,
                    privacy=promise,
                    metrics=self.metrics,
                    device=self.device,
                )
            except (Misuse, Diverged) as problem:
                failures.append(f"seed {seed}: {problem}")
            else:
                ended.append(result.save(self.folder / name).name)
        return StoredSetting(values=values, folders=ended, failures=failures)

    def judging(self, metric: str | None) -> str:
        """The column of the history that judges."""
        run = next(self.folder.glob("*/history.jsonl")).parent
        history = RunFolder(run).read_history()
        if metric is not None:
            with prefix_errors("metric"):
                return find_column(metric, history.columns)
        if history[-1].accuracy is not None:
            return "accuracy.mean"
        return "loss.mean" if history[-1].msd is None else "msd"

    def _graph(self, graph: str | Graph, seed: int) -> Graph:
        if isinstance(graph, Graph):
            return graph
        section = GraphSection.model_validate({"kind": graph, "clients": self.task.clients})
        with prefix_errors("graph"):
            return make_graph(section, seed)

    def _iterations(self, algorithm: Algorithm) -> int:
        """The iterations of a run of an algorithm."""
        if (self.steps is None) == (self.epochs is None):
            raise Misuse(f"steps is {self.steps} and epochs is {self.epochs}.", "Give one of them.")
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return self.epochs * max(1, self.task.steps_per_epoch // algorithm.gradients_per_step)


def _check_options(algorithms: Sequence[str | Algorithm], options: Iterable[str]) -> None:
    """Raise Misuse for an unknown algorithm, and for options that none of them has."""
    known = [name for chosen in algorithms for name in options_of(_kind(chosen))]
    for key in options:
        if key not in known:
            raise unknown_name(f"{key!r} is an option of none of the algorithms.", key, known)


def _kind(chosen: str | Algorithm) -> type[Algorithm]:
    return ALGORITHMS.find(chosen) if isinstance(chosen, str) else type(chosen)


def _algorithm(objects: dict[str, Any]) -> Algorithm:
    """An algorithm with those of the options that it has; Misuse if no such option exists."""
    chosen = objects["algorithm"]
    options = {key: value for key, value in objects.items() if key not in ("algorithm", "graph")}
    kind = _kind(chosen)
    known = options_of(kind)
    given = {key: value for key, value in options.items() if key in known}
    if isinstance(chosen, Algorithm):
        return replace(chosen, **given)  # type: ignore[type-var]
    missing = [
        name
        for name, option in known.items()
        if name not in given and option.default is option.default_factory
    ]
    if missing:
        raise Misuse(f"{chosen} needs {', '.join(missing)}.", f"Give e.g. {missing[0]}=0.1.")
    made: Algorithm = kind(**given)
    return made


def _choices(given: Any, name_of: Callable[[Any], str]) -> dict[str, Any]:
    """What to choose from, by labels that differ."""
    several = list(given) if isinstance(given, list | tuple) else [given]
    labels = [one if isinstance(one, str) else name_of(one) for one in several]
    return {
        label if labels.count(label) == 1 else repr(one): one
        for label, one in zip(labels, several, strict=True)
    }


def _values(given: Any) -> dict[str, Any]:
    """The values of an option, by their text."""
    several = given if isinstance(given, list) else [given]
    return {f"{value:g}" if isinstance(value, float) else str(value): value for value in several}
