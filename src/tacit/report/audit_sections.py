"""The audit as sections of a report: verdicts, proofs, the ledger, attacks and all assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from tacit.auditing.active.gains import GAIN_COLUMNS, gain_cells
from tacit.auditing.active.recovered import MAX_MSE
from tacit.auditing.answer import Answer, answer_of
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.canaries.trials import TrialsResult
from tacit.auditing.client_names import client_name
from tacit.auditing.result import ASSUMPTIONS, AdversaryResult, Audit
from tacit.auditing.sum_verdicts import promise_of, rounded_up
from tacit.auditing.symbolic.leakage import QUESTIONS, Leakage, format_terms
from tacit.report import audit_figures as figures
from tacit.report.answer_section import answer_html
from tacit.report.page import card, collapsible, grid, render_page, table
from tacit.report.provenance_section import provenance_html
from tacit.report.stored_audit import StoredAnswer, StoredAudit
from tacit.report.style import svg

SHOWN_TERMS = 12  # of a combination that is a proof


def audit_page(audit: Audit, stored: StoredAudit, title: str) -> str:
    """A page about an audit alone."""
    setting = audit.setting
    lead = (
        f"Who can learn what about the data when {setting.algorithm.name} trains: "
        f"{setting.graph.clients} clients, {setting.task.parameters:,} parameters, "
        f"{audit.iterations} iterations."
    )
    sections = stored.sections
    sections |= {"Made by": provenance_html({"This audit": stored.made})} if stored.made else {}
    return render_page(title, lead, "", sections, answer=answer_html(stored.answer))


def stored_audit(
    audit: Audit,
    answer: Answer | None = None,
    config: str = "",
    made: dict[str, str] | None = None,
) -> StoredAudit:
    """An audit as parts of a page: the answer, then pictures, tables and proofs.

    Args:
        audit: What was found.
        answer: The answer with what would change it; by default without.
        config: Digest of the configuration that was audited.
        made: When and how the audit was made.
    """
    answer = answer_of(audit) if answer is None else answer
    options = escape(repr(audit.setting.algorithm))
    active = {"Audit: passive and active": _gains(audit)} if audit.gains else {}
    pictures = {
        "Audit: who learns what": _knowledge_pictures(audit),
        "Audit: what attacks achieved": _attack_pictures(audit),
    }
    return StoredAudit(
        answer=StoredAnswer.model_validate(answer.as_dict()),
        config=config,
        made=made or {},
        pictures={name: html for name, html in pictures.items() if html},
        tables={
            "Audit: verdict": _verdicts(audit),
            **active,
            "Audit: what is bounded": _bounded(audit),
            "Audit: what is measured": _measured(audit),
        },
        proofs={
            "Audit: what is proved": _proved(audit),
            "Audit: assumptions": _bullets(ASSUMPTIONS)
            + f"<p>All numbers are in audit.json. Options: {options}</p>",
        },
    )


def _verdicts(audit: Audit) -> str:
    rows = [
        [
            escape(str(result.adversary)),
            escape(audit.name_of(verdict.victim)),
            f"<strong>{escape(verdict.headline)}</strong>",
            _wrapped(verdict.summary),
            _wrapped((ledger.whole_run or ledger.upper).statement),
            _wrapped(_reconstruction_levels(result, verdict.victim)),
        ]
        for result in audit.results
        for verdict, ledger in zip(result.verdicts, result.ledgers, strict=True)
    ]
    html = f"<p><strong>{escape(audit.summary)}</strong></p>\n" + _coalitions(audit)
    html += table(["Adversary", "Victim", "Verdict", "Summary", "Guarantee", "Inversions"], rows)
    notes = [f"{remark}." for remark in audit.remarks]
    notes += [f"Not measured: {note}." for note in audit.notes]
    return html + (f'<div class="box" role="note">{_bullets(notes)}</div>\n' if notes else "")


def _coalitions(audit: Audit) -> str:
    """ε against coalitions of every size, if noisy sums are all that they learn."""
    if not audit.coalitions:
        return ""
    rows = [
        [
            str(len(one.example)),
            _wrapped(one.who),
            _wrapped(one.learns),
            rounded_up(one.bound.epsilon),
        ]
        for one in audit.coalitions
    ]
    delta = f"{audit.coalitions[0].bound.delta:g}"
    title = f"Coalitions: ε per sample at δ = {delta}, whole run, proved from the messages"
    promise = promise_of(audit.setting.algorithm, audit.setting.graph.clients)
    html = table(["Size", "Coalitions", "Learn only", "ε ≤"], rows, title)
    return html + (f"<p>{escape(promise)}</p>\n" if promise else "")


def _gains(audit: Audit) -> str:
    rows = [
        [escape(gain.adversary), escape(gain.victim_name), *map(_wrapped, gain_cells(gain, "; "))]
        for gain in audit.gains
    ]
    html = "<p>The same clients, following the protocol and deviating from it. Recovered are "
    html += f"samples with a mean squared error below {MAX_MSE}.</p>\n"
    html += table(["Adversary", "Victim", *(name.capitalize() for name in GAIN_COLUMNS)], rows)
    return html + _bullets(gain.statement for gain in audit.gains)


def _reconstruction_levels(result: AdversaryResult, victim: int) -> str:
    """How well this victim's data were reconstructed."""
    levels = {
        attack.score.levels[index]
        for attack in result.reconstructions
        for index, evidence in enumerate(attack.evidence)
        if evidence.victim == victim
    }
    return "; ".join(sorted(levels)) or "–"


def _knowledge_pictures(audit: Audit) -> str:
    html, cards = "", []
    if audit.exposure is not None:
        name = "Who learns what about each client"
        caption = (
            "Each row is one curious client, each column the client it learns about. A number is "
            "the standard deviation of the noise on the gradient that it knows best. Linear "
            "combinations only."
        )
        drawing = figures.exposure_figure(audit.exposure, audit.setting.task.names)
        data = figures.exposure_csv(audit.exposure, audit.setting.task.names)
        picture = svg(drawing, name, caption, data=data)
        html = grid([card(name, picture, caption, full=True)])
    for result in audit.results:
        for leakage in result.leakage:
            name = f"{result.adversary} about {leakage.victim_text}"
            drawing = figures.timeline_figure(leakage)
            data = figures.timeline_csv(leakage)
            cards.append(card(name, svg(drawing, f"What is known when: {name}", data=data)))
    return html + grid(cards)


def _proved(audit: Audit) -> str:
    return "".join(
        collapsible(
            f"Proofs: {result.adversary} about {leakage.victim_text}",
            _bullets(verdict.proved) + _proofs(leakage),
        )
        for result in audit.results
        for leakage, verdict in zip(result.leakage, result.verdicts, strict=True)
    )


def _proofs(leakage: Leakage) -> str:
    """The first exact answer to each question, as a combination of messages."""
    html, names = "", leakage.knowledge.adversary.names
    for question in QUESTIONS:
        if (proof := leakage.proof(question)) is not None:
            index = leakage.of(question).indices("exact")[0]
            target = f"θ[{client_name(leakage.victim, names)}] after {index} iterations"
            if question != "model":
                target = format_terms(*leakage.terms(question, index), names, most=SHOWN_TERMS)
            html += f"<p>{escape(target)} =</p>{_combination(proof, names)}"
    return html


def _combination(proof: dict[str, Any], names: Sequence[str]) -> str:
    terms = []
    for term in proof["messages"]:
        ends = [end for end in (term["source"], term["target"]) if end is not None]
        owner = "→".join(client_name(end, names) for end in ends)
        message = f"{term['message']}[{owner}]({term['tick']})"
        terms.append(f"{term['coefficient']:+.6g} · {message}")
    terms += [f"{own['coefficient']:+.6g} · {own['holds']} (its own)" for own in proof["own"]]
    more = f"\n… and {len(terms) - SHOWN_TERMS} more" if len(terms) > SHOWN_TERMS else ""
    shown = "\n".join(terms[:SHOWN_TERMS])
    return f'<div class="sheet"><pre>{escape(shown + more)}</pre></div>'


def _bounded(audit: Audit) -> str:
    rows: list[list[str]] = []
    assumptions: list[str] = []
    comparisons: list[str] = []
    for result in audit.results:
        for ledger in result.ledgers:
            upper = ledger.upper
            assumptions += upper.assumptions
            guarantee = f"<strong>{escape(str(upper))}</strong>"
            cells = [_wrapped(ledger.scope), guarantee, _wrapped(upper.why)]
            name = audit.name_of(ledger.victim)
            rows.append([escape(str(result.adversary)), escape(name), *cells])
            if ledger.single_message is not None:
                who = f"{result.adversary}, client {name}"
                comparisons.append(f"{who}: {ledger.single_message}.")
    html = table(["Adversary", "Victim", "For", "Guarantee", "Because"], rows) + _canaries(audit)
    if comparisons:
        html += "<p>For comparison with papers that account for one message; not a guarantee:</p>"
        html += _bullets(comparisons)
    return html + (_bullets(dict.fromkeys(assumptions)) if assumptions else "")


def _canaries(audit: Audit) -> str:
    """Measured lower bounds beside the proved upper bounds."""
    clients = [(result, one) for result in audit.results for one in result.canaries]
    sums = [(result, one) for result in audit.results for one in result.gradient_canaries]
    html = _canary_table("Client canaries", clients) if clients else ""
    return html + (_canary_table("Gradient canaries", sums) if sums else "")


def _canary_table(name: str, every: Sequence[tuple[AdversaryResult, TrialsResult]]) -> str:
    rows = []
    for result, found in every:
        gaussian = found.gaussian_epsilon
        verdict = "<strong>a defect of the analysis</strong>" if found.is_defect else "consistent"
        rows.append(
            [
                escape(str(result.adversary)),
                escape(result.adversary.name_of(found.victim)),
                f"{found.iterations:,}",
                f"ε ≥ {found.lower.epsilon:.3g}",
                "–" if gaussian is None else f"ε ≥ {gaussian:.3g}",
                f"ε ≤ {found.upper.epsilon:.3g}",
                f"{found.trials:,}",
                verdict,
            ]
        )
    confidence = f"{every[0][1].lower.confidence:.0%} confidence"
    html = f"<p>{name}: measured lower bounds, each with {confidence}.</p>\n"
    columns = ["Iterations", "Measured", "If noise is Gaussian", "Proved", "Trials", "Comparison"]
    html += table(["Adversary", "Victim", *columns], rows)
    return html + _bullets(dict.fromkeys(text for _, one in every for text in one.assumptions))


def _attack_pictures(audit: Audit) -> str:
    cards = []
    for result in audit.results:
        for attack in filter(figures.can_show, result.reconstructions):
            name = f"{result.adversary}: {attack.kind} of client {_victims(audit, attack)}"
            caption = "; ".join([attack.score.reading, *attack.assumptions])
            cards.append(card(name, svg(figures.pictures_figure(attack), name), caption))
        for victim in dict.fromkeys(membership.victim for membership in result.memberships):
            shown = [one for one in result.memberships if one.victim == victim]
            caption = "; ".join(dict.fromkeys(text for one in shown for text in one.assumptions))
            name = f"{result.adversary}: membership in the data of client {audit.name_of(victim)}"
            cards.append(card(name, svg(figures.roc_figure(shown), name), caption, square=True))
    return grid(cards)


def _measured(audit: Audit) -> str:
    html = "<p>A failed attack proves nothing. Only the scorer matches pictures to originals.</p>\n"
    rows = [
        _reconstruction_row(str(result.adversary), _victims(audit, attack), attack)
        for result in audit.results
        for attack in result.reconstructions
    ]
    if rows:
        errors = [
            f"{score}<br>{of}" for score in ("MSE", "SSIM") for of in ("attack", "prior", "class")
        ]
        html += table(["Adversary", "Victims", "Evidence", "Attack", "Reading", *errors], rows)
    return html


def _victims(audit: Audit, attack: ReconstructionResult) -> str:
    return ", ".join(audit.name_of(evidence.victim) for evidence in attack.evidence)


def _reconstruction_row(adversary: str, victims: str, attack: ReconstructionResult) -> list[str]:
    score = attack.score
    all_scores = (score.attack, score.prior_mean, score.same_class)
    return [
        escape(adversary),
        escape(victims),
        escape(attack.kind),
        _wrapped(attack.method),
        _wrapped(score.reading),
        *(f"{float(one.mse.mean()):.3g}" for one in all_scores),
        *("–" if one.ssim is None else f"{float(one.ssim.mean()):.3f}" for one in all_scores),
    ]


def _bullets(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def _wrapped(text: str) -> str:
    return f'<span class="wrap">{escape(text)}</span>'
