"""What follows a run while it computes: callbacks and a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

from tacit.core.errors import Misuse
from tacit.record.history import History, Record

# Called with each record and the simulation; True, or a reason as text, ends the run.
Callback = Callable[[Record, Any], bool | str | None]
# A browser need not draw more often.
SECONDS_BETWEEN_UPDATES = 0.2


class Recorded(Protocol):
    """A run in progress: its iteration, and the records so far."""

    t: int
    history: History


def check(callbacks: Any, columns: Sequence[str]) -> None:
    """Check callbacks before a run whose records have these columns.

    Raises:
        Misuse: If a callback cannot be called, or needs a column that there is not.
    """
    remedy = "Give functions (record, simulation), or members of tacit.callbacks."
    if not isinstance(callbacks, Sequence):
        raise Misuse(f"callbacks is a {type(callbacks).__name__}.", f"Give a list. {remedy}")
    for callback in callbacks:
        if not callable(callback):
            kind = type(callback).__name__
            raise Misuse(f"callbacks has a {kind}, which cannot be called.", remedy)
        if (check_columns := getattr(callback, "check_columns", None)) is not None:
            check_columns(columns)


def why_stop(callbacks: Sequence[Callback], simulation: Recorded) -> str | None:
    """Call all callbacks with the newest record; return why the run ends, if one says so."""
    reason = None
    for callback in callbacks:
        answer = callback(simulation.history[-1], simulation)
        if answer and reason is None:
            reason = answer if isinstance(answer, str) else "a callback ended the run"
    return reason


def close(callbacks: Sequence[Callback]) -> None:
    """Call `close` of the callbacks that have it."""
    for callback in callbacks:
        if (end := getattr(callback, "close", None)) is not None:
            end()


@contextmanager
def progress_bar(steps: int) -> Iterator[Callable[[Recorded], None]]:
    """A bar of the iterations, with the newest loss or accuracy, in a terminal or a notebook."""
    from rich import progress

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[metric]}"),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
    )
    bar = progress.Progress(*columns)
    if bar.console.is_jupyter:
        yield NotebookBar(steps)
        return
    with bar:
        task = bar.add_task("", total=steps, metric="")
        yield lambda simulation: bar.update(
            task, completed=simulation.t, metric=simulation.history[-1].describe()
        )


class NotebookBar:
    """A bar of plain HTML, because rich's bars need ipywidgets in a notebook."""

    def __init__(self, steps: int) -> None:
        from IPython.display import display

        self._steps = steps
        self._shown_at = time.monotonic()
        self._handle = display(self._shown(0, ""), raw=True, display_id=True)

    def __call__(self, simulation: Recorded) -> None:
        """Show the iteration and the newest record."""
        is_record = simulation.history[-1].step == simulation.t
        if is_record or time.monotonic() - self._shown_at > SECONDS_BETWEEN_UPDATES:
            self._shown_at = time.monotonic()
            shown = self._shown(simulation.t, f": {simulation.history[-1].describe()}")
            self._handle.update(shown, raw=True)

    def _shown(self, done: int, metric: str) -> dict[str, str]:
        text = f"{done:,} of {self._steps:,} iterations{metric}"
        bar = f'<progress value="{done}" max="{self._steps}"></progress>'
        return {"text/plain": text, "text/html": f"{bar} {escape(text)}"}
