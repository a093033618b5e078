"""Progress of long commands on the error stream: bars in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich import progress
from rich.console import Console

# This loads torch, which `tacit --help` does not need.
if TYPE_CHECKING:
    from tacit.experiment.run import ProgressListener

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

        name = f"{label} (seed {seed})"
        if self._runs > 1:
            name = f"{len(self.tasks) + 1}/{self._runs} {name}"
        task = self.add_task(name, total=None, round=0, rounds="?", metric="loading", start=False)
        last_line = time.monotonic()

        def on_report(report: dict[str, Any]) -> None:
            nonlocal last_line
            self._print_once(*report["lines"])
            if "steps" not in report:
                number, text = report["round"], report["text"]
                self.update(task, completed=report["t"], round=number, metric=text)
                due = time.monotonic() - last_line > SECONDS_BETWEEN_LINES
                if due and not self.console.is_terminal:
                    last_line = time.monotonic()
                    self._print(f"{name}: round {number}, {text}")
                return
            self.start_task(task)
            rounds, t = report["rounds"], report["t"]
            self.update(task, total=report["steps"], completed=t, rounds=rounds, metric="")
            if not self.console.is_terminal:
                length = _counted(report["round_length"], "iteration")
                self._print(f"{name}: {_counted(rounds, 'round')} of {length}")
            if t:
                self._print(f"{name}: resumed after iteration {t}")

        return ProgressListener.of_reports(on_report)


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
