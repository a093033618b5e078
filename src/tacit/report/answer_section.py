"""The top of a page: is it safe to take part, what is known, and what would change it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from markupsafe import Markup

from tacit.privacy.interpretation import SCALE, in_words
from tacit.privacy.planning import round_up
from tacit.report.groups import RunGroup
from tacit.report.page import Cell, Styled, Table
from tacit.report.rendering import marked, render
from tacit.report.spending import Spending
from tacit.report.stored_audit import StoredAnswer

QUESTION = "Is it safe to take part?"
SYMBOLS = {"no": "✕", "leaks": "!", "unproven": "?", "weak": "!", "proven": "✓", "unknown": "?"}


def answer_html(answer: StoredAnswer) -> Markup:
    """The answer in colour and words."""
    symbol = SYMBOLS[answer.level]
    return render("answer.html.jinja", question=QUESTION, answer=answer, symbol=symbol)


def unaudited_answer(group: RunGroup) -> StoredAnswer:
    """The answer for a run that was not audited: nothing is known but what it promised."""
    run = group.runs[0]
    summary = run.summary
    limits = [
        f"`tacit audit {shlex.quote(run.path)}` proves, bounds and measures who can learn what."
    ]
    if summary.privacy is None:
        return StoredAnswer(
            level="unknown",
            verdict="Not known: not audited",
            reason=f"{summary.algorithm} promises no guarantee, and what its messages reveal was "
            "not examined.",
            limits=limits,
        )
    spending = Spending.of(summary.privacy.model_dump(), summary.steps, run.clients)
    budget = spending.budget
    if not spending.has_guarantee:
        reason = "The sums are masked but have no noise, so there is no guarantee."
        return StoredAnswer(
            level="unknown", verdict="Not known: not audited", reason=reason, limits=limits
        )
    return StoredAnswer(
        level="unknown",
        verdict="Promised, but not audited",
        reason=f"The noise was computed for this promise, {spending.assumption}. Whether the "
        "messages keep it was not examined.",
        guarantee=[in_words(round_up(spending.spent, 3), budget.delta, budget.unit), SCALE],
        limits=limits,
    )


def answers_table(groups: Sequence[RunGroup]) -> Table:
    """The answers for several runs, a row for each that was audited."""
    audited = [
        (place, group.name_of(run), run.audit.answer)
        for place, group in enumerate(groups)
        for run in group.runs
        if run.audit is not None
    ]
    rows: list[list[Cell]] = [
        [
            name,
            Styled(f"{SYMBOLS[answer.level]} {answer.verdict}", f"verdict-cell {answer.level}"),
            marked(answer.reason),
        ]
        for _, name, answer in audited
    ]
    series = [place for place, _, _ in audited]
    return Table(["Run", "Answer", "Because"], rows, QUESTION, series)
