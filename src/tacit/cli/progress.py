"""How a long run shows that it goes on: bars in a terminal, lines elsewhere; always on the error stream."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich import progress as bars
from rich.console import Console

if TYPE_CHECKING:  # these load torch, which `tacit --help` need not wait for
    from tacit.config.build import Experiment
    from tacit.experiment.run import ProgressListener
    from tacit.record.history import Record
    from tacit.simulation import Simulation

QUIET_SECONDS = 15.0  # between two lines where there is no terminal


class ProgressBars:
    """A bar per run."""

    def __init__(self, console: Console, runs: int = 1) -> None:
        self._console = console
        self._runs = runs
        self._begun = 0
        self._said: set[str] = set()
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.TextColumn("round {task.fields[round]}/{task.fields[rounds]}"),
            bars.TextColumn("{task.fields[metric]}"),
            bars.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> ProgressBars:
        self._bars.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.__exit__(kind, error, trace)

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _say_once(self, line: str) -> None:
        """What several runs have in common is said for the first of them."""
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    def watch(self, label: str, seed: int) -> ProgressListener:
        """A watcher that draws the bar of one run."""
        from tacit.experiment.run import ProgressListener
        from tacit.record.history import decibels

        name = f"{label} (seed {seed})"
        self._begun += 1
        if self._runs > 1:
            name = f"{self._begun}/{self._runs} {name}"
        task = self._bars.add_task(
            name, total=None, round=0, rounds="?", metric="loading", start=False
        )
        last_line = time.monotonic()

        def began(experiment: Experiment, simulation: Simulation) -> None:
            self._bars.start_task(task)
            rounds = experiment.config.run.rounds
            self._bars.update(
                task, total=experiment.steps, completed=simulation.t, rounds=rounds, metric=""
            )
            plan = simulation.gradients
            self._say_once(experiment.graph.describe())
            if simulation.hosted.group.ranks > 1:
                self._say_once(simulation.hosted.division.describe())
            self._say_once(f"gradients {plan.strategy} ({plan.reason})")
            for remark in simulation.remarks:
                self._say_once(remark)
            for caution in simulation.cautions:
                self._say_once(f"Caution: {caution}")
            if not self._console.is_terminal:  # elsewhere the bar says it
                self._say(f"{name}: {rounds} rounds of {experiment.round_length} iterations")
            if simulation.t:
                self._say(f"{name}: resumed after iteration {simulation.t}")

        def stepped(simulation: Simulation) -> None:
            number = simulation.t // simulation.round_length
            self._bars.update(task, completed=simulation.t, round=number)
            for remark in simulation.remarks:  # some come up on the way
                self._say_once(remark)

        def recorded(record: Record) -> None:
            nonlocal last_line
            text = f"loss {record.loss.mean:.4f}"
            if record.msd is not None:
                text = f"MSD {decibels(record.msd):.1f} dB"
            if record.accuracy is not None:
                text = f"accuracy {record.accuracy.mean:.2f} %"
            self._bars.update(task, metric=text)
            if not self._console.is_terminal and time.monotonic() - last_line > QUIET_SECONDS:
                last_line = time.monotonic()
                self._say(f"{name}: round {record.round}, {text}")

        return ProgressListener(began, stepped, recorded)


class ProgressBar:
    """One bar for what is being done; lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("reading", total=None)
        self._last = time.monotonic()

    def __enter__(self) -> ProgressBar:
        self._bars.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._bars.stop()

    def __call__(self, what: str, done: int, of: int) -> None:
        """Show how far something is."""
        self._bars.update(self._task, description=what, completed=done, total=of)
        quiet = time.monotonic() - self._last > QUIET_SECONDS
        if not self._console.is_terminal and quiet:
            self._console.print(f"{what}: {done} of {of}", highlight=False, markup=False)
            self._last = time.monotonic()
