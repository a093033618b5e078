"""The verdict of an audit on a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tacit.auditing.audit import Audit
    from tacit.auditing.symbolic.findings import AnswerSeries

COLOURS = {
    "exposed": "bold red",
    "partly exposed": "bold yellow",
    "noisy": "bold cyan",
    "nothing proved": "bold",
}


def print_audit(audit: Audit, console: Console) -> None:
    """The table for who has a minute, and the statements behind it."""
    from tacit.auditing.verdict import verdict

    setting = audit.setting
    what = f"Audit of {setting.algorithm.name}, {audit.iterations} iterations; {setting.graph.describe()}"
    console.print(Text(what))
    console.print(_overview(audit))
    for view in audit.views:
        for found in view.findings:
            words = verdict(view, found.victim)
            grid = Table.grid(padding=(0, 1))
            for kind in ("proved", "bounded", "measured"):
                for number, line in enumerate(getattr(words, kind)):
                    grid.add_row("" if number else f"  {kind}", Text(line))
            head = Text.assemble(
                "\n", (words.headline.upper(), COLOURS[words.headline]), ": ", words.summary
            )
            console.print(head, grid, highlight=False)
    for note in audit.notes:
        console.print(f"\nNot measured: {note}.", highlight=False, markup=False)
    console.print(
        "\nA failed attack proves nothing; assumptions are in audit.json and in the report.",
        highlight=False,
    )


def _overview(audit: Audit) -> Table:
    """A row per adversary and victim: how many of each it computes exactly, or else with noise."""
    from tacit.auditing.symbolic.findings import QUESTIONS
    from tacit.auditing.verdict import verdict

    asked = [
        q
        for q in QUESTIONS
        if any(found.of(q).when for view in audit.views for found in view.findings)
    ]
    table = Table(caption="how many of how many: = exactly, ~ with noise")
    for name in ("adversary", "of", "verdict", *asked, "guarantee"):
        table.add_column({"difference": "diff."}.get(name, name), overflow="fold")
    for view in audit.views:
        for found, account in zip(view.findings, view.ledgers, strict=True):
            headline = verdict(view, found.victim).headline
            cells = [_cell(found.of(question)) for question in asked]
            guarantee = "none" if math.isinf(account.upper.epsilon) else account.upper.words
            who = (str(view.adversary), str(found.victim), Text(headline, COLOURS[headline]))
            table.add_row(*who, *cells, guarantee)
    return table


def _cell(series: AnswerSeries) -> str:
    exact, noisy, count = len(series.places("exact")), len(series.places("noisy")), len(series.when)
    if exact:
        return f"= {exact}/{count}"
    return f"~ {noisy}/{count}" if noisy else "–"
