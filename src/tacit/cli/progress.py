"""How a long run shows that it goes on: bars in a terminal, lines elsewhere; always on the error stream."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich import progress as bars
from rich.console import Console

if TYPE_CHECKING:  # these load torch, which `tacit --help` need not wait for
    from tacit.experiment.build import Experiment
    from tacit.experiment.run import Watcher
    from tacit.record.history import Record
    from tacit.simulation import Simulation

QUIET_SECONDS = 15.0  # between two lines where there is no terminal


class Progress:
    """A bar per run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.TextColumn("round {task.fields[round]}/{task.fields[rounds]}"),
            bars.TextColumn("{task.fields[metric]}"),
            bars.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Progress:
        self._bars.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.__exit__(kind, error, trace)

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def watch(self, label: str, seed: int) -> Watcher:
        """A watcher that draws the bar of one run."""
        from tacit.experiment.run import Watcher

        name = f"{label} (seed {seed})"
        task = self._bars.add_task(name, total=None, round=0, rounds="?", metric="loading", start=False)
        last_line = time.monotonic()

        def began(experiment: Experiment, simulation: Simulation) -> None:
            self._bars.start_task(task)
            rounds = experiment.config.run.rounds
            self._bars.update(task, total=experiment.steps, completed=simulation.t, rounds=rounds, metric="")
            plan = simulation.gradients
            self._say(f"{name}: {experiment.graph.describe()}")
            self._say(f"{name}: gradients {plan.strategy} ({plan.reason})")
            if simulation.t:
                self._say(f"{name}: resumed after iteration {simulation.t}")

        def stepped(simulation: Simulation) -> None:
            number = simulation.t // simulation.round_length
            self._bars.update(task, completed=simulation.t, round=number)

        def recorded(record: Record) -> None:
            nonlocal last_line
            text = f"loss {record.loss.mean:.4f}"
            if record.accuracy is not None:
                text = f"accuracy {record.accuracy.mean:.2f} %"
            self._bars.update(task, metric=text)
            if not self._console.is_terminal and time.monotonic() - last_line > QUIET_SECONDS:
                last_line = time.monotonic()
                self._say(f"{name}: round {record.round}, {text}")

        return Watcher(began, stepped, recorded)
