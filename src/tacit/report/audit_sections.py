"""The audit as sections of a report: verdicts, proofs, the ledger, attacks and all assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from markupsafe import Markup

from tacit.auditing.active.gains import GAIN_COLUMNS, gain_cells
from tacit.auditing.active.recovered import MAX_MSE
from tacit.auditing.answer import Answer
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.canaries.result import CanaryResult, Kind
from tacit.auditing.client_names import client_name
from tacit.auditing.findings import AdversaryResult
from tacit.auditing.judgement import answer_of
from tacit.auditing.result import ASSUMPTIONS, Audit
from tacit.auditing.statements import promise_of
from tacit.auditing.symbolic.leakage import QUESTIONS, Leakage, format_terms
from tacit.privacy.planning import epsilon_text
from tacit.report import audit_figures as figures
from tacit.report.answer_section import answer_html
from tacit.report.figures import svg
from tacit.report.page import Card, Cell, Styled, Table, provenance_table, render_page, show
from tacit.report.rendering import render
from tacit.report.stored_audit import StoredAudit

SHOWN_TERMS = 12  # of a combination that is a proof
CANARIES: dict[str, Kind] = {"Client canaries": "client", "Gradient canaries": "gradient"}


def audit_page(audit: Audit, stored: StoredAudit, title: str) -> str:
    """A page about an audit alone."""
    setting = audit.setting
    lead = (
        f"Who can learn what about the data when {setting.algorithm.name} trains: "
        f"{setting.graph.clients} clients, {setting.task.parameters:,} parameters, "
        f"{audit.iterations} iterations."
    )
    sections = {name: Markup(html) for name, html in stored.sections.items()}
    sections["Made by"] = show(provenance_table({"This audit": stored.made}))
    return render_page(title, lead, sections, answer=answer_html(stored.answer))


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
    sections = {
        "pictures": {
            "Audit: who learns what": show(*_knowledge_cards(audit)),
            "Audit: what attacks achieved": show(_attack_cards(audit)),
        },
        "tables": {
            "Audit: verdict": _verdicts(audit),
            "Audit: passive and active": _gains(audit),
            "Audit: what is bounded": _bounded(audit),
            "Audit: what is measured": render("audit_measured.html.jinja", table=_measured(audit)),
        },
        "proofs": {
            "Audit: what is proved": render("audit_proofs.html.jinja", victims=_proofs(audit)),
            "Audit: assumptions": render(
                "audit_assumptions.html.jinja",
                assumptions=ASSUMPTIONS,
                options=repr(audit.setting.algorithm),
            ),
        },
    }
    shown = {
        kind: {name: str(html) for name, html in parts.items() if html}
        for kind, parts in sections.items()
    }
    return StoredAudit(answer=answer, config=config, made=made or {}, **shown)


def _verdicts(audit: Audit) -> Markup:
    rows: list[list[Cell]] = [
        [
            str(finding.adversary),
            audit.name_of(finding.victim),
            Styled(finding.verdict.headline),
            finding.verdict.summary,
            finding.ledger.best.statement,
            "; ".join(sorted(set(finding.levels))) or "–",
        ]
        for finding in audit.findings
    ]
    header = ["Adversary", "Victim", "Verdict", "Summary", "Guarantee", "Inversions"]
    return render(
        "audit_verdict.html.jinja",
        summary=audit.summary,
        coalitions=coalitions_table(audit) if audit.coalitions else None,
        promise=promise_of(audit.setting.algorithm, audit.setting.graph.clients),
        verdicts=Table(header, rows),
        remarks=audit.remarks,
        not_measured=audit.notes,
    )


def coalitions_table(audit: Audit) -> Table:
    """ε against coalitions of every size, if noisy sums are all that they learn."""
    rows = [
        [
            str(len(coalition.example)),
            coalition.who,
            coalition.learns,
            epsilon_text(coalition.bound.epsilon),
        ]
        for coalition in audit.coalitions
    ]
    delta = f"{audit.coalitions[0].bound.delta:g}"
    title = f"Coalitions: ε per sample at δ = {delta}, whole run, proved from the messages"
    return Table(["Size", "Coalitions", "Learn only", "ε ≤"], rows, title)


def _gains(audit: Audit) -> Markup:
    rows = [[gain.adversary, gain.victim_name, *gain_cells(gain, "; ")] for gain in audit.gains]
    header = ["Adversary", "Victim", *(name.capitalize() for name in GAIN_COLUMNS)]
    return render(
        "audit_gains.html.jinja",
        table=Table(header, rows),
        max_mse=MAX_MSE,
        statements=[gain.statement for gain in audit.gains],
    )


def _knowledge_cards(audit: Audit) -> tuple[list[Card], list[Card]]:
    """The map of all pairs, and for every victim what is known when."""
    exposure, timelines = [], []
    if audit.exposure is not None:
        name = "Who learns what about each client"
        caption = (
            "Each row is one curious client, each column the client it learns about. A number is "
            "the standard deviation of the noise on the gradient that it knows best. Linear "
            "combinations only."
        )
        drawing = figures.exposure_figure(audit.exposure, audit.setting.task.names)
        data = figures.exposure_csv(audit.exposure, audit.setting.task.names)
        exposure.append(Card(name, svg(drawing, name, caption, data=data), caption, "full"))
    for result in audit.results:
        for leakage in result.leakage:
            name = f"{result.adversary} about {leakage.victim_text}"
            drawing = figures.timeline_figure(leakage)
            data = figures.timeline_csv(leakage)
            timelines.append(Card(name, svg(drawing, f"What is known when: {name}", data=data)))
    return exposure, timelines


def _proofs(audit: Audit) -> list[dict[str, Any]]:
    """For each adversary and victim what is proved, and by which messages."""
    return [
        {
            "title": f"{finding.adversary} about {finding.leakage.victim_text}",
            "statements": finding.verdict.proved,
            "proofs": list(_combinations(finding.leakage)),
        }
        for finding in audit.findings
    ]


def _combinations(leakage: Leakage) -> Iterator[tuple[str, list[str], int]]:
    """The first exact answers: what is known, the messages combined, and how many are left out."""
    names = leakage.knowledge.adversary.names
    for question in QUESTIONS:
        if (proof := leakage.proof(question)) is not None:
            index = leakage.of(question).indices("exact")[0]
            target = f"θ[{client_name(leakage.victim, names)}] after {index} iterations"
            if question != "model":
                target = format_terms(*leakage.terms(question, index), names, most=SHOWN_TERMS)
            terms = _terms(proof, names)
            yield target, terms[:SHOWN_TERMS], len(terms) - SHOWN_TERMS


def _terms(proof: dict[str, Any], names: Sequence[str]) -> list[str]:
    terms = []
    for term in proof["messages"]:
        ends = [end for end in (term["source"], term["target"]) if end is not None]
        owner = "→".join(client_name(end, names) for end in ends)
        message = f"{term['message']}[{owner}]({term['tick']})"
        terms.append(f"{term['coefficient']:+.6g} · {message}")
    return terms + [f"{own['coefficient']:+.6g} · {own['holds']} (its own)" for own in proof["own"]]


def _bounded(audit: Audit) -> Markup:
    """Proved upper bounds, and beside them measured lower bounds."""
    ledgers = [(result, ledger) for result in audit.results for ledger in result.ledgers]
    rows: list[list[Cell]] = [
        [
            str(result.adversary),
            audit.name_of(ledger.victim),
            ledger.scope,
            Styled(str(ledger.upper)),
            ledger.upper.why,
        ]
        for result, ledger in ledgers
    ]
    assumptions = [text for _, ledger in ledgers for text in ledger.upper.assumptions]
    canaries = {
        name: [(result, canary) for result in audit.results for canary in result.canaries_of(kind)]
        for name, kind in CANARIES.items()
    }
    return render(
        "audit_bounded.html.jinja",
        bounds=Table(["Adversary", "Victim", "For", "Guarantee", "Because"], rows),
        canaries=[
            {
                "name": name,
                "confidence": measured[0][1].lower.confidence,
                "table": _canary_table(measured),
                "assumptions": list(dict.fromkeys(chain(*(c.assumptions for _, c in measured)))),
            }
            for name, measured in canaries.items()
            if measured
        ],
        comparisons=[
            f"{result.adversary}, client {audit.name_of(ledger.victim)}: {ledger.single_message}."
            for result, ledger in ledgers
            if ledger.single_message is not None
        ],
        assumptions=list(dict.fromkeys(assumptions)),
    )


def _canary_table(every: Sequence[tuple[AdversaryResult, CanaryResult]]) -> Table:
    rows: list[list[Cell]] = []
    for result, canary in every:
        gaussian = canary.gaussian_epsilon
        rows.append(
            [
                str(result.adversary),
                result.adversary.name_of(canary.victim),
                f"{canary.iterations:,}",
                f"ε ≥ {canary.lower.epsilon:.3g}",
                "–" if gaussian is None else f"ε ≥ {gaussian:.3g}",
                "–" if canary.upper is None else f"ε ≤ {canary.upper.epsilon:.3g}",
                f"{canary.trials:,}",
                Styled("a defect of the analysis") if canary.is_defect else "consistent",
            ]
        )
    columns = ["Iterations", "Measured", "If noise is Gaussian", "Proved", "Trials", "Comparison"]
    return Table(["Adversary", "Victim", *columns], rows)


def _attack_cards(audit: Audit) -> list[Card]:
    cards = []
    for result in audit.results:
        for attack in filter(figures.can_show, result.reconstructions):
            name = f"{result.adversary}: {attack.kind} of client {_victims(audit, attack)}"
            caption = "; ".join([attack.score.reading, *attack.assumptions])
            cards.append(Card(name, svg(figures.pictures_figure(attack), name), caption))
        for victim in dict.fromkeys(membership.victim for membership in result.memberships):
            shown = [membership for membership in result.memberships if membership.victim == victim]
            caption = "; ".join(
                dict.fromkeys(chain(*(membership.assumptions for membership in shown)))
            )
            name = f"{result.adversary}: membership in the data of client {audit.name_of(victim)}"
            cards.append(Card(name, svg(figures.roc_figure(shown), name), caption, "square"))
    return cards


def _measured(audit: Audit) -> Table:
    rows = []
    for result in audit.results:
        for attack in result.reconstructions:
            score = attack.score
            compared = (score.attack, score.prior_mean, score.same_class)
            squares = [f"{float(guess.mse.mean()):.3g}" for guess in compared]
            structures = [
                "–" if guess.ssim is None else f"{guess.ssim.mean():.3f}" for guess in compared
            ]
            rows.append(
                [
                    str(result.adversary),
                    _victims(audit, attack),
                    attack.kind,
                    attack.method,
                    score.reading,
                    *squares,
                    *structures,
                ]
            )
    scores = [[score, of] for score in ("MSE", "SSIM") for of in ("attack", "prior", "class")]
    return Table(["Adversary", "Victims", "Evidence", "Attack", "Reading", *scores], rows)


def _victims(audit: Audit, attack: ReconstructionResult) -> str:
    return ", ".join(audit.name_of(evidence.victim) for evidence in attack.evidence)
