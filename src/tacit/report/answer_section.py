"""The top of a page: is it safe to take part, what is known, and what would change it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from markupsafe import Markup

from tacit.auditing.answer import Answer
from tacit.core.templates import paragraphs
from tacit.privacy.interpretation import SCALE, in_words
from tacit.privacy.planning import round_up
from tacit.report.groups import RunGroup
from tacit.report.page import Cell, Styled, Table
from tacit.report.rendering import marked, render, templates
from tacit.report.spending import SIMULATED

QUESTION = "Is it safe to take part?"
SYMBOLS = {"no": "✕", "leaks": "!", "unproven": "?", "weak": "!", "proven": "✓", "unknown": "?"}


def answer_html(answer: Answer) -> Markup:
    """The answer in colour and words."""
    symbol = SYMBOLS[answer.level]
    return render("answer.html.jinja", question=QUESTION, answer=answer, symbol=symbol)


def unaudited_answer(group: RunGroup) -> Answer:
    """The answer for a run that was not audited: nothing is known but what it promised."""
    run = group.runs[0]
    spending, guarantee, assumption = run.spending, [], ""
    if spending is not None and spending.has_guarantee:
        budget, assumption = spending.budget, spending.assumption
        guarantee = [in_words(round_up(spending.spent, 3), budget.delta, budget.unit), SCALE]
        guarantee += [f"{SIMULATED.capitalize()}."] if spending.simulated else []
    verdict, reason, *limits = paragraphs(
        templates().get_template("unaudited.txt.jinja"),
        "answer",
        algorithm=run.summary.algorithm,
        is_private=spending is not None,
        assumption=assumption,
        folder=shlex.quote(run.path),
    )
    return Answer("unknown", verdict, reason, guarantee=guarantee, limits=limits)


def answers_table(groups: Sequence[RunGroup]) -> Table:
    """The answers for several runs, a row for each that was audited."""
    audited = [
        (number, group.name_of(run), run.audit.answer)
        for number, group in enumerate(groups)
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
    series = [number for number, _, _ in audited]
    return Table(["Run", "Answer", "Because"], rows, QUESTION, series)
