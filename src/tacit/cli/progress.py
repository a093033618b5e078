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


class ProgressBars(progress.Progress):
    """One bar per run."""

    def __init__(self, console: Console, runs: int = 1) -> None:
        super().__init__(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("round {task.fields[round]}/{task.fields[rounds]}"),
            progress.TextColumn("{task.fields[metric]}"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
        )
        self._runs = runs
        self._printed: set[str] = set()

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

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
        if self._runs > 1:
            name = f"{len(self.tasks) + 1}/{self._runs} {name}"
        task = self.add_task(name, total=None, round=0, rounds="?", metric="loading", start=False)
        last_line = time.monotonic()

        def on_start(experiment: Experiment, simulation: Simulation) -> None:
            self.start_task(task)
            rounds, t = experiment.config.run.rounds, simulation.t
            self.update(task, total=experiment.steps, completed=t, rounds=rounds, metric="")
            # What changes is among the remarks.
            fixed = experiment.schedule is None
            lines = [experiment.graph.describe()] if fixed else []
            if (dataset := experiment.dataset) is not None and dataset.clients:
                lines += [one for one in (dataset.note, dataset.disclosure) if one]
            if simulation.hosted.group.ranks > 1:
                lines.append(simulation.hosted.partition.describe())
            lines.append(
                f"gradients {simulation.gradients.strategy} ({simulation.gradients.reason})"
            )
            cautions = (f"Caution: {caution}" for caution in simulation.cautions)
            self._print_once(*lines, *simulation.remarks, *cautions)
            if not self.console.is_terminal:
                length = _counted(experiment.round_length, "iteration")
                self._print(f"{name}: {_counted(rounds, 'round')} of {length}")
            if t:
                self._print(f"{name}: resumed after iteration {t}")

        def on_step(simulation: Simulation) -> None:
            number = simulation.t // simulation.round_length
            self.update(task, completed=simulation.t, round=number)
            # Some remarks appear after the first iterations.
            self._print_once(*simulation.remarks)

        def on_record(record: Record) -> None:
            nonlocal last_line
            text = f"loss {record.loss.mean:.4f}"
            if record.msd is not None:
                text = f"MSD {decibels(record.msd):.1f} dB"
            if record.accuracy is not None:
                text = f"accuracy {record.accuracy.mean:.2f} %"
            if record.baseline is not None:
                text += f" (majority {record.baseline:.2f} %)"
            self.update(task, metric=text)
            due = time.monotonic() - last_line > SECONDS_BETWEEN_LINES
            if due and not self.console.is_terminal:
                last_line = time.monotonic()
                self._print(f"{name}: round {record.round}, {text}")

        return ProgressListener(on_start, on_step, on_record)


class ProgressBar(progress.Progress):
    """One bar for a task in several parts; call it with a part's name, its progress and total."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.add_task("reading", total=None)
        self._last_line = time.monotonic()

    def __call__(self, part: str, done: int, total: int) -> None:
        self.update(self._task, description=part, completed=done, total=total)
        due = time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES
        if due and not self.console.is_terminal:
            self.console.print(f"{part}: {done} of {total}", highlight=False, markup=False)
            self._last_line = time.monotonic()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
