"""What follows a run while it computes: callbacks and a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from tacit.core.errors import Misuse
from tacit.record.history import History, Record

# Called with each record and the simulation; True, or a reason as text, ends the run.
Callback = Callable[[Record, Any], bool | str | None]


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
    found = None
    for callback in callbacks:
        answer = callback(simulation.history[-1], simulation)
        if answer and found is None:
            found = answer if isinstance(answer, str) else "a callback ended the run"
    return found


def close(callbacks: Sequence[Callback]) -> None:
    """Call `close` of the callbacks that have it."""
    for callback in callbacks:
        if (end := getattr(callback, "close", None)) is not None:
            end()


@contextmanager
def progress_bar(steps: float) -> Iterator[Callable[[Recorded], None]]:
    """A bar of the iterations, with the newest loss or accuracy."""
    from rich import progress

    def update(simulation: Recorded) -> None:
        bar.update(task, completed=simulation.t, metric=simulation.history[-1].describe())

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[metric]}"),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
    )
    with progress.Progress(*columns) as bar:
        task = bar.add_task("", total=steps, metric="")
        yield update
