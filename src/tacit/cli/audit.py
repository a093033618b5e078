"""The verdict of an audit on a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich import progress as bars
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tacit.audit.conduct import Audit, View

QUIET_SECONDS = 15.0
COLOURS = {
    "exposed": "bold red",
    "partly exposed": "bold yellow",
    "noisy": "bold cyan",
    "nothing proved": "bold",
}


class AuditProgress:
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
        self._what = ""
        self._last = time.monotonic()

    def __enter__(self) -> AuditProgress:
        self._bars.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._bars.stop()

    def __call__(self, what: str, done: int, of: int) -> None:
        """Show how far something is."""
        self._bars.update(self._task, description=what, completed=done, total=of)
        quiet = time.monotonic() - self._last > QUIET_SECONDS
        if not self._console.is_terminal and (what != self._what and quiet):
            self._console.print(f"{what} …", highlight=False, markup=False)
            self._last = time.monotonic()
        self._what = what


def print_audit(audit: Audit, console: Console) -> None:
    """The table for who has a minute, and the statements behind it."""
    from tacit.audit.verdict import verdict

    setting = audit.setting
    what = f"Audit of {setting.algorithm.name}, {audit.iterations} iterations; {setting.graph.describe()}"
    console.print(Text(what))
    console.print(_overview(audit))
    for view in audit.views:
        for found in view.findings:
            words = verdict(view, found.victim)
            console.print(
                f"\n{words.headline.upper()}", style=COLOURS[words.headline], end=": ", highlight=False
            )
            console.print(words.summary, highlight=False, markup=False)
            for kind in ("proved", "bounded", "measured"):
                for line in getattr(words, kind):
                    console.print(f"  {kind:9} {line}", highlight=False, markup=False)
    for note in audit.notes:
        console.print(f"\nNot measured: {note}.", highlight=False, markup=False)
    console.print(
        "\nA failed attack proves nothing; assumptions are in audit.json and in the report.", highlight=False
    )


def _overview(audit: Audit) -> Table:
    from tacit.audit.findings import QUESTIONS

    table = Table()
    for name in ("adversary", "victim", "verdict", *QUESTIONS, "guarantee"):
        table.add_column(name, overflow="fold")
    for view in audit.views:
        for row in _rows(view):
            table.add_row(*row)
    return table


def _rows(view: View) -> list[list[str]]:
    from tacit.audit.findings import QUESTIONS
    from tacit.audit.verdict import verdict

    rows = []
    for found, account in zip(view.findings, view.ledgers, strict=True):
        words = verdict(view, found.victim)
        cells = []
        for question in QUESTIONS:
            series = found.of(question)
            exact, noisy = len(series.places("exact")), len(series.places("noisy"))
            all_of_them = len(series.when)
            cells.append(
                f"{exact}/{all_of_them} exact" if exact else f"{noisy}/{all_of_them} noisy" if noisy else "–"
            )
        guarantee = "none" if account.upper.as_dict()["epsilon"] is None else account.upper.words
        style = COLOURS[words.headline]
        headline = f"[{style}]{words.headline}[/{style}]"
        rows.append([str(view.adversary), str(found.victim), headline, *cells, guarantee])
    return rows
