"""The audit as sections of a report: verdicts, heat map, pictures, curves, the ledger, and every assumption."""

from __future__ import annotations

from html import escape

from tacit.auditing.audit import Audit, View
from tacit.auditing.symbolic.leakage import QUESTIONS, Leakage, Question
from tacit.auditing.symbolic.knowledge import Answer
from tacit.auditing.verdict import ASSUMPTIONS, verdict
from tacit.report import audit_figures as figures
from tacit.report.page import PageSection, card, folded, table, whole_page
from tacit.report.style import svg

SHOWN_TERMS = 12  # of a combination that proves something


def audit_page(audit: Audit, title: str) -> str:
    """A page about an audit alone."""
    setting = audit.setting
    lead = (
        f"What {setting.algorithm.name} tells whom: {setting.graph.clients} clients, "
        f"{setting.task.parameters:,} parameters, {audit.iterations} iterations."
    )
    return whole_page(title, lead, "", sections_of(audit))


def sections_of(audit: Audit) -> list[PageSection]:
    """All sections."""
    sections = [
        PageSection("Audit: verdict", _verdicts(audit)),
        PageSection("Audit: what is proved", _proved(audit)),
    ]
    sections.append(PageSection("Audit: what is bounded", _bounded(audit)))
    sections.append(PageSection("Audit: what is measured", _measured(audit)))
    sections.append(PageSection("Audit: assumptions", _assumptions(audit)))
    return sections


def _verdicts(audit: Audit) -> str:
    rows = []
    for view in audit.results:
        for found in view.leakage:
            words = verdict(view, found.victim)
            (account,) = [one for one in view.ledgers if one.victim == found.victim]
            rows.append(
                [
                    escape(str(view.adversary)),
                    str(found.victim),
                    f"<strong>{escape(words.headline)}</strong>",
                    _wrapped(words.summary),
                    _wrapped(account.upper.words),
                    _wrapped(_readings(view, found.victim)),
                ]
            )
    head = ["Adversary", "Victim", "Verdict", "In words", "Guarantee", "Inversions"]
    html = table(head, rows)
    for note in audit.notes:
        html += f'<div class="box" role="note"><p>Not measured: {escape(note)}.</p></div>\n'
    return html


def _readings(view: View, victim: int) -> str:
    """What inversions of this victim's data came to."""
    levels = {
        attack.score.levels[place]
        for attack in view.attacks
        for place, one in enumerate(attack.evidence)
        if one.victim == victim
    }
    return "; ".join(sorted(levels)) or "–"


def _proved(audit: Audit) -> str:
    cards = []
    if audit.exposure is not None:
        told = (
            "Each row is one client that is curious; a number is the deviation of the noise left on the gradient it "
            "knows best. Linear combinations only."
        )
        drawing = svg(figures.exposure_figure(audit.exposure), "Who learns what from whom", told)
        cards.append(card("Who learns what from whom", drawing, told, square=True))
    for view in audit.results:
        for found in view.leakage:
            name = f"{view.adversary} about client {found.victim}"
            cards.append(card(name, svg(figures.timeline_figure(found), f"What {name} knows when")))
    html = _grid(cards)
    for view in audit.results:
        for found in view.leakage:
            html += folded(
                f"Proofs: {view.adversary} about client {found.victim}", _proofs(view, found)
            )
    return html


def _proofs(view: View, found: Leakage) -> str:
    """The first exact answer to each question, as a combination of messages."""
    parts = "".join(f"<li>{escape(line)}</li>" for line in verdict(view, found.victim).proved)
    html = f"<ul>{parts}</ul>"
    for question in QUESTIONS:
        series = found.of(question)
        if exact := series.indices("exact"):
            answer = series.answer(exact[0])
            html += f"<p>{escape(_target(found, question, exact[0]))} =</p>{_combination(found, answer)}"
    return html


def _target(found: Leakage, question: Question, place: int) -> str:
    if question == "model":
        return f"θ[{found.victim}] after {place} iterations"
    terms, coefficients = found.terms(question, place)
    return " ".join(f"{c:+g}·{u}" for u, c in zip(terms, coefficients, strict=True))


def _combination(found: Leakage, answer: Answer) -> str:
    assert answer.combination is not None
    messages = found.knowledge.run.transcript.messages
    terms = []
    for (place, row), coefficient in answer.combination.messages:
        message = messages[place]
        to = "" if message.target is None else f"→{int(message.target[row])}"
        terms.append(
            f"{coefficient:+.6g} · {message.tag}[{int(message.source[row])}{to}]({message.tick})"
        )
    terms += [
        f"{-coefficient:+.6g} · {unknown} (its own)"
        for unknown, coefficient in answer.combination.own
    ]
    more = f"\n… and {len(terms) - SHOWN_TERMS} more" if len(terms) > SHOWN_TERMS else ""
    return f'<div class="sheet"><pre>{escape(chr(10).join(terms[:SHOWN_TERMS]) + more)}</pre></div>'


def _bounded(audit: Audit) -> str:
    rows: list[list[str]] = []
    assumptions: list[str] = []
    compared = []
    for view in audit.results:
        for account in view.ledgers:
            upper = account.upper
            assumptions += upper.assumptions
            cells = [
                _wrapped(upper.scope),
                f"<strong>{escape(upper.words)}</strong>",
                _wrapped(upper.why),
            ]
            rows.append([escape(str(view.adversary)), str(account.victim), *cells])
            if account.alone is not None:
                compared.append(
                    f"{view.adversary}, client {account.victim}: {account.alone.words}."
                )
    html = table(["Adversary", "Victim", "For", "Guarantee", "Because"], rows)
    if compared:
        items = "".join(f"<li>{escape(words)}</li>" for words in compared)
        html += f"<p>For comparison with papers that account for one message; no guarantee:</p><ul>{items}</ul>"
    if assumptions:
        items = "".join(f"<li>{escape(words)}</li>" for words in dict.fromkeys(assumptions))
        html += f"<ul>{items}</ul>"
    return html


def _measured(audit: Audit) -> str:
    html = "<p>A failed attack proves nothing. Pictures are matched to the originals by the scorer only.</p>\n"
    cards, rows = [], []
    for view in audit.results:
        for attack in view.attacks:
            numbers = attack.score
            victims = ", ".join(str(one.victim) for one in attack.evidence)
            similar = [
                "–" if scores.ssim is None else f"{float(scores.ssim.mean()):.3f}"
                for scores in (numbers.attack, numbers.prior_mean, numbers.same_class)
            ]
            rows.append(
                [
                    escape(str(view.adversary)),
                    victims,
                    escape(attack.kind),
                    _wrapped(attack.method),
                    f"{float(numbers.attack.mse.mean()):.3g}",
                    f"{float(numbers.prior_mean.mse.mean()):.3g}",
                    f"{float(numbers.same_class.mse.mean()):.3g}",
                    *similar,
                    _wrapped(numbers.reading),
                ]
            )
            if figures.can_show(attack):
                told = f"{numbers.reading}; {'; '.join(attack.assumptions)}"
                name = f"{view.adversary}: {attack.kind} of client {victims}"
                cards.append(card(name, svg(figures.pictures_figure(attack), name), told))
    if rows:
        head = [
            "Adversary",
            "Victims",
            "Evidence",
            "Attack",
            "MSE",
            "prior",
            "class",
            "SSIM",
            "prior",
            "class",
            "Reading",
        ]
        html += table(head, rows)
    for view in audit.results:
        for victim in dict.fromkeys(one.victim for one in view.memberships):
            shown = [one for one in view.memberships if one.victim == victim]
            told = "; ".join(dict.fromkeys(words for one in shown for words in one.assumptions))
            name = f"{view.adversary}: who is among the data of client {victim}"
            cards.append(card(name, svg(figures.roc_figure(shown), name), told, square=True))
    return html + _grid(cards)


def _assumptions(audit: Audit) -> str:
    items = "".join(f"<li>{escape(words)}</li>" for words in ASSUMPTIONS)
    return f"<ul>{items}</ul><p>All numbers are in audit.json. Options: {escape(repr(audit.setting.algorithm))}</p>"


def _grid(cards: list[str]) -> str:
    return f'<div class="grid">\n{"".join(cards)}</div>\n' if cards else ""


def _wrapped(text: str) -> str:
    return f'<span class="wrap">{escape(text)}</span>'
