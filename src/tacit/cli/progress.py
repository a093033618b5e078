"""Progress of long commands on the error stream: bars in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich import progress
from rich.console import Console

# These load torch, which `tacit --help` does not need.
if TYPE_CHECKING:
    from tacit.config.build import Experiment
    from tacit.experiment.run import ProgressListener
    from tacit.record.history import Record
    from tacit.simulation import Simulation

# Between two lines where there is no terminal.
SECONDS_BETWEEN_LINES = 15.0


class ProgressBars:
    """One bar per run."""

    def __init__(self, console: Console, runs: int = 1) -> None:
        self._console = console
        self._runs = runs
        self._started = 0
        self._printed: set[str] = set()
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("round {task.fields[round]}/{task.fields[rounds]}"),
            progress.TextColumn("{task.fields[metric]}"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> ProgressBars:
        self._bars.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._bars.stop()

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _print_once(self, *lines: str) -> None:
        """Print lines that no earlier run has printed."""
        for line in lines:
            if line not in self._printed:
                self._printed.add(line)
                self._print(line)

    def listener_for(self, label: str, seed: int) -> ProgressListener:
        """Add a bar, and return the listener that moves it."""
        from tacit.experiment.run import ProgressListener
        from tacit.record.history import decibels

        name = f"{label} (seed {seed})"
        self._started += 1
        if self._runs > 1:
            name = f"{self._started}/{self._runs} {name}"
        task = self._bars.add_task(
            name, total=None, round=0, rounds="?", metric="loading", start=False
        )
        last_line = time.monotonic()

        def on_start(experiment: Experiment, simulation: Simulation) -> None:
            self._bars.start_task(task)
            rounds, t = experiment.config.run.rounds, simulation.t
            self._bars.update(task, total=experiment.steps, completed=t, rounds=rounds, metric="")
            self._print_once(experiment.graph.describe())
            if simulation.hosted.group.ranks > 1:
                self._print_once(simulation.hosted.partition.describe())
            backend = simulation.gradients
            self._print_once(
                f"gradients {backend.strategy} ({backend.reason})",
                *simulation.remarks,
                *(f"Caution: {caution}" for caution in simulation.cautions),
            )
            if not self._console.is_terminal:
                self._print(f"{name}: {rounds} rounds of {experiment.round_length} iterations")
            if t:
                self._print(f"{name}: resumed after iteration {t}")

        def on_step(simulation: Simulation) -> None:
            number = simulation.t // simulation.round_length
            self._bars.update(task, completed=simulation.t, round=number)
            # Some remarks appear after the first iterations.
            self._print_once(*simulation.remarks)

        def on_record(record: Record) -> None:
            nonlocal last_line
            text = f"loss {record.loss.mean:.4f}"
            if record.msd is not None:
                text = f"MSD {decibels(record.msd):.1f} dB"
            if record.accuracy is not None:
                text = f"accuracy {record.accuracy.mean:.2f} %"
            self._bars.update(task, metric=text)
            due = time.monotonic() - last_line > SECONDS_BETWEEN_LINES
            if due and not self._console.is_terminal:
                last_line = time.monotonic()
                self._print(f"{name}: round {record.round}, {text}")

        return ProgressListener(on_start, on_step, on_record)


class ProgressBar:
    """One bar for a task in several parts; call it with a part's name, its progress and total."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("reading", total=None)
        self._last_line = time.monotonic()

    def __enter__(self) -> ProgressBar:
        self._bars.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._bars.stop()

    def __call__(self, part: str, done: int, total: int) -> None:
        self._bars.update(self._task, description=part, completed=done, total=total)
        due = time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES
        if due and not self._console.is_terminal:
            self._console.print(f"{part}: {done} of {total}", highlight=False, markup=False)
            self._last_line = time.monotonic()
