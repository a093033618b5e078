"""The top of a page: is it safe to take part, what is known, and what would change it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from html import escape

from tacit.privacy.interpretation import SCALE, in_words
from tacit.privacy.planning import round_up
from tacit.report.groups import RunGroup
from tacit.report.page import table
from tacit.report.spending import Spending
from tacit.report.stored_audit import StoredAnswer, StoredAudit

QUESTION = "Is it safe to take part?"
SYMBOLS = {"no": "✕", "leaks": "!", "unproven": "?", "weak": "!", "proven": "✓", "unknown": "?"}


def answer_html(answer: StoredAnswer) -> str:
    """The answer in colour and words."""
    known = _part("What others can learn", answer.learns)
    known += _part("What is guaranteed", answer.guarantee)
    change = _part("What would change it", answer.changes)
    columns = "".join(f"<div>{html}</div>" for html in (known, change) if html)
    return (
        f'<section class="answer {answer.level}" aria-labelledby="answer"><div class="head">'
        f'<h2 id="answer">{QUESTION}</h2>\n'
        f'<p class="verdict"><span aria-hidden="true">{SYMBOLS[answer.level]}</span>'
        f"{escape(answer.verdict)}</p>\n"
        f'<p class="reason">{_marked(answer.reason)}</p></div>\n'
        + (f'<div class="parts">{columns}</div>\n' if columns else "")
        + f'<p class="limits">{_marked(" ".join(answer.limits))}</p></section>\n'
    )


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


def answers_table(groups: Sequence[RunGroup]) -> str:
    """The answers for several runs, one row each; "" if none of them was audited."""
    rows, series = [], []
    for place, group in enumerate(groups):
        for run in group.runs:
            audit: StoredAudit | None = run.audit
            if audit is not None:
                answer = audit.answer
                cell = f'<span class="verdict-cell {answer.level}">{SYMBOLS[answer.level]} '
                cell += f"{escape(answer.verdict)}</span>"
                reason = f'<span class="wrap">{_marked(answer.reason)}</span>'
                rows.append([escape(group.name_of(run)), cell, reason])
                series.append(place)
    return table(["Run", "Answer", "Because"], rows, QUESTION, series) if rows else ""


def _part(title: str, items: Sequence[str]) -> str:
    return f"<h3>{title}</h3>{_bullets(items)}" if items else ""


def _bullets(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_marked(item)}</li>' for item in items)}</ul>"


def _marked(text: str) -> str:
    """Text with `code` in code style."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
