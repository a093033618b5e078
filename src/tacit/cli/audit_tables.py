"""Prints an audit to a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tacit.auditing.result import Audit
    from tacit.auditing.symbolic.leakage import Estimates

COLOURS = {
    "exposed": "bold red",
    "partly exposed": "bold yellow",
    "noisy": "bold cyan",
    "noisy sum": "bold green",
    "nothing proved": "bold",
}


def print_audit(audit: Audit, console: Console) -> None:
    """Print an overview table, then the statements about each adversary and victim."""
    setting = audit.setting
    name = f"Audit of {setting.algorithm.name}, {audit.iterations} iterations"
    console.print(Text(f"{name}; {setting.world.describe()}"))
    console.print(Text(audit.summary, style="bold"))
    console.print(_coalitions(audit) if audit.coalitions else _overview(audit))
    for verdict in (finding.verdict for finding in audit.findings):
        grid = Table.grid(padding=(0, 1))
        for kind in ("proved", "bounded", "measured"):
            for number, statement in enumerate(getattr(verdict, kind)):
                grid.add_row("" if number else f"  {kind}", Text(statement))
        headline = (verdict.headline.upper(), COLOURS[verdict.headline])
        title = Text.assemble("\n", headline, ": ", verdict.summary)
        console.print(title, grid, highlight=False)
    print_gains({"": audit}, console)
    _print_notes({"": audit}, console)


def print_audits(audits: dict[str, Audit], console: Console) -> None:
    """Print a table across algorithms: the verdict on the first victim, by adversary."""
    table = Table("algorithm", "adversary", "verdict", "what it learns", "guarantee")
    for label, audit in audits.items():
        for number, result in enumerate(audit.results):
            verdict, bound = result.verdicts[0], result.ledgers[0].best
            table.add_row(
                "" if number else label,
                str(result.adversary),
                Text(verdict.headline, COLOURS[verdict.headline]),
                Text(verdict.summary),
                "none" if math.isinf(bound.epsilon) else Text(bound.statement),
                end_section=number == len(audit.results) - 1,
            )
    console.print(table)
    print_gains(audits, console)
    _print_notes(audits, console)


def _print_notes(audits: dict[str, Audit], console: Console) -> None:
    """Print remarks, what was not measured, and how many attacks the time limit stopped."""
    # Once each: what all audits have in common names none of them.
    for remark in dict.fromkeys(remark for audit in audits.values() for remark in audit.remarks):
        labels = [label for label, audit in audits.items() if remark in audit.remarks]
        of = f" ({'; '.join(labels)})" if len(labels) < len(audits) else ""
        console.print(f"\nNote{of}: {remark}.", highlight=False, markup=False)
    for label, audit in audits.items():
        of = f" ({label})" if label else ""
        for note in audit.notes:
            console.print(f"\nNot measured{of}: {note}.", highlight=False, markup=False)
    if count := sum(audit.cut_short for audit in audits.values()):
        some = "One attack was" if count == 1 else f"{count} attacks were"
        console.print(
            f"\n{some} stopped by the time budget. A larger --seconds may find more.",
            style="yellow",
            highlight=False,
        )
    where = (
        "in each audit.json and report" if len(audits) > 1 else "in audit.json and in the report"
    )
    console.print(f"\nA failed attack proves nothing; assumptions are {where}.", highlight=False)


def print_gains(audits: dict[str, Audit], console: Console) -> None:
    """Print what malicious clients measured next to passive ones, by algorithm if named."""
    from tacit.auditing.active.gains import GAIN_COLUMNS, gain_cells

    if not any(audit.gains for audit in audits.values()):
        return
    caption = "passive → active; recovered: samples with an MSE below 0.001"
    table = Table(title="Passive and active", caption=caption)
    for name in (*(["algorithm"] if any(audits) else []), "adversary", "of", *GAIN_COLUMNS):
        table.add_column(name, overflow="fold")
    for label, audit in audits.items():
        for number, gain in enumerate(audit.gains):
            first = [] if not any(audits) else ["" if number else label]
            cells = [gain.adversary, gain.victim_name, *gain_cells(gain)]
            table.add_row(*map(Text, (*first, *cells)), end_section=gain is audit.gains[-1])
    console.print(table)


def _coalitions(audit: Audit) -> Table:
    """ε against coalitions of every size."""
    from tacit.auditing.statements import promise_of
    from tacit.report.audit_sections import coalitions_table

    listed = coalitions_table(audit)
    promise = promise_of(audit.setting.algorithm, audit.setting.graph.clients) or None
    table = Table(title=listed.caption, title_justify="left", title_style="", caption=promise)
    for name in listed.header:
        table.add_column(str(name).lower(), overflow="fold")
    for row in listed.rows:
        table.add_row(*map(str, row))
    return table


def _overview(audit: Audit) -> Table:
    """A row per adversary and victim: how much of each kind it computes, exactly or with noise."""
    from tacit.auditing.symbolic.leakage import QUESTIONS

    asked = [q for q in QUESTIONS if any(finding.leakage.of(q).when for finding in audit.findings)]
    # Names are long: without padding all columns fit into 80 characters.
    padding = (0, 0) if audit.setting.task.names else (0, 1)
    table = Table(caption="computed / all: = exactly, ~ with noise", padding=padding)
    for name in ("adversary", "of", "verdict", *asked, "bound"):
        title = "diff." if name == "difference" else name
        # No header is broken inside a word.
        table.add_column(title, overflow="fold", min_width=len(title), no_wrap=name in asked)
    for finding in audit.findings:
        headline, upper = finding.verdict.headline, finding.ledger.upper
        table.add_row(
            str(finding.adversary),
            audit.name_of(finding.victim),
            Text(headline, COLOURS[headline]),
            *(_cell(finding.leakage.of(question)) for question in asked),
            "none" if math.isinf(upper.epsilon) else str(upper),
        )
    return table


def _cell(series: Estimates) -> str:
    count = len(series.when)
    if exact := series.indices("exact"):
        return f"= {len(exact)}/{count}"
    noisy = series.indices("noisy")
    return f"~ {len(noisy)}/{count}" if noisy else "–"
