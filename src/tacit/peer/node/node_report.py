"""The report of a node: one self-contained page for the member, from its own folder.

It tells what the node did and spent, and what its neighbours could learn from what it sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import ValidationError

from tacit.auditing.judgement import answer_of
from tacit.core.errors import Misuse
from tacit.core.storage import read_json, write_text
from tacit.core.toml import to_toml
from tacit.experiment.alternatives import with_alternatives
from tacit.experiment.auditing import audit
from tacit.peer.federation.audited import AuditedFederation
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.federation.graph_drawing import named_graph
from tacit.peer.node.results import read_history
from tacit.peer.node.sent_audit import SentAudit, audit_sent
from tacit.privacy.planning import epsilon_text
from tacit.report import plots
from tacit.report.answer_section import answer_html
from tacit.report.audit_sections import stored_audit
from tacit.report.figures import svg
from tacit.report.finished_run import StoredConfusion
from tacit.report.measures import metric_title, metric_unit
from tacit.report.numbers import format_number
from tacit.report.page import Card, Cell, Table, render_page, show
from tacit.report.predictions_section import confusion_card
from tacit.report.rendering import render
from tacit.report.style import PALETTE, new_figure, plot_style

MAX_EVENTS = 50  # the last ones that are more than information
AUDITED_ITERATIONS = 10


def write_node_report(
    folder: Path, out: Path, allowed_code: Sequence[str] = (), data: str | None = None
) -> Path:
    """Write the page about a node; raise Misuse if the folder is not that of a node.

    Args:
        folder: The node's folder.
        out: The page.
        allowed_code: Code of the manifest that may run; see `check_allowed`.
        data: The node's option --data, with which the transcript is compared.
    """
    audited = AuditedFederation.load(folder)
    if audited.member is None:
        raise Misuse(f"{folder} is not the folder of a node.", "Give the folder of one node.")
    manifest, run = audited.manifest, NodeFolder(folder).run
    try:
        records = read_history(run / "history.jsonl")
    except (OSError, ValueError) as problem:
        remedy = "Move it away: the report works without."
        raise Misuse(f"{run / 'history.jsonl'} is damaged: {problem}.", remedy) from None
    summary = read_json(run / "summary.json") if (run / "summary.json").exists() else {}
    subject = audited.subject(allowed_code)
    own, steps = manifest.position(audited.member), subject.experiment.steps
    found = audit(
        subject,
        audited.adversaries(own),
        own,
        iterations=min(AUDITED_ITERATIONS, steps),
        attacks=False,
        heat_map=False,
    )
    sent = audit_sent(NodeFolder(folder), data=data, allowed_code=allowed_code)
    answer = with_alternatives(answer_of(found), found, subject.experiment)
    stored = stored_audit(found, answer)
    sections = {
        "Summary": show(_summary(audited, records, summary)),
        "Training": render("curves.html.jinja", labels=(), figures=_curves(records)),
        "Predictions": _predictions(summary),
        "Graph": show([Card("", svg(named_graph(manifest), "The graph"), shape="square")]),
        **stored.pictures,
        "Warnings": show(_warnings(run / "log.jsonl")),
        "What was really sent": _sent(sent) if sent is not None else "",
        **stored.tables,
        **stored.proofs,
        "Configuration": render(
            "configuration.html.jinja",
            differing=Table((), ()),
            files=[("Signed by the operator", to_toml(manifest.config.as_dict()))],
        ),
    }
    lead = (
        f"Node {audited.member} of {manifest.federation}, generation {manifest.generation}: "
        f"{len(manifest.members)} members train with {found.setting.algorithm.name}. "
        "Of this node's data, the page tells only how well its model predicts them."
    )
    try:
        page = render_page(
            f"Node {audited.member}",
            lead,
            {name: Markup(html) for name, html in sections.items()},
            alerts=_alerts(summary),
            answer=answer_html(stored.answer),
        )
        write_text(out, page)
    except OSError as problem:
        raise Misuse(f"Cannot write {out}: {problem}.", "Choose another place for it.") from None
    return out


def _alerts(summary: dict[str, Any]) -> Markup:
    """Why the accuracy misleads, if it does."""
    if not summary.get("alerts"):
        return Markup("")
    return render("misleading.html.jinja", owner="", alerts=summary["alerts"])


def _sent(sent: SentAudit) -> Markup:
    """What neighbours compute from the transcript."""
    rows: list[list[Cell]] = [
        [one.who, one.summary, [str(value) for value in one.recovered] or "–"]
        for one in sent.coalitions
    ]
    header = ["neighbours", "what they compute from the messages", "compared with the truth"]
    return render(
        "sent.html.jinja", coverage=sent.coverage, table=Table(header, rows), notes=sent.notes
    )


def _predictions(summary: dict[str, Any]) -> Markup:
    """The confusion matrix of the node's model, if its summary has one."""
    if "confusion" not in summary:
        return Markup()
    try:
        confusion = StoredConfusion.model_validate(summary["confusion"])
    except ValidationError:
        damaged = "The confusion matrix in summary.json is damaged."
        return show([Card("Confusion matrix", damaged)])
    return show([confusion_card(confusion)])


def _summary(
    audited: AuditedFederation, records: Sequence[dict[str, Any]], summary: dict[str, Any]
) -> dict[str, str]:
    last = records[-1] if records else {}
    values = {
        "Iterations": f"{summary.get('steps', last.get('step', 0)):,}",
        "State": "finished" if summary else "not finished",
        "Loss on own data": format_number(last.get("loss")),
        "Accuracy on own data": format_number(last.get("accuracy"), ".2f", " %"),
        "Majority baseline": format_number(last.get("baseline"), ".2f", " %"),
        **{
            metric_title(name): format_number(value, ".4g", metric_unit(name))
            for name, value in last.get("metrics", {}).items()
        },
        "Bytes sent": f"{last.get('bytes_sent', 0):,}",
        "Bytes received": f"{last.get('bytes_received', 0):,}",
        "Neighbours": ", ".join(_neighbours(audited)),
    }
    if "rejected" in summary:
        values["Messages rejected"] = str(summary["rejected"])
    if privacy := summary.get("privacy"):
        values["Privacy spent"] = _spent(privacy)
    return values


def _spent(privacy: dict[str, Any]) -> str:
    spent, promised, sums = (privacy.get(key) for key in ("epsilon_spent", "epsilon", "sums"))
    if spent is None or promised is None or not math.isfinite(promised):
        return "no guarantee: epsilon is inf"
    return f"ε = {epsilon_text(spent)} of {promised:g} at δ = {privacy['delta']:g}, {sums:,} sums"


def _neighbours(audited: AuditedFederation) -> list[str]:
    manifest, name = audited.manifest, str(audited.member)
    near = [*manifest.in_neighbours(name), *manifest.out_neighbours(name)]
    return list(dict.fromkeys(member.name for member in near))


def _curves(records: Sequence[dict[str, Any]]) -> list[Card]:
    cards = []
    further = dict.fromkeys(name for one in records for name in one.get("metrics", {}))
    labels = {"accuracy": "accuracy (%)", "loss": "loss"} | {name: name for name in further}
    for key, label in labels.items():
        values = [(one["round"], one.get("metrics", {}).get(key, one.get(key))) for one in records]
        points = [(number, value) for number, value in values if value is not None]
        if points:
            figure = svg(_curve(points, label), label, "Of this node's model, by round.")
            cards.append(Card(f"{metric_title(key)} on own data", figure))
    return cards


@plot_style()
def _curve(points: Sequence[tuple[int, float]], label: str) -> Figure:
    figure, axes = new_figure(plots.WIDTH, plots.HEIGHT)
    axes.plot(*zip(*points, strict=True), color=PALETTE[0])
    axes.set(xlabel="round", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _warnings(log: Path) -> Table:
    """The last warnings and errors of a log, if it is kept in the folder."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else ()
    rows = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("level") in ("warning", "error"):
            why = event.get("why") or event.get("reason") or ""
            cells = (event.get("time"), event["level"], event.get("event"), why)
            rows.append([str(cell) for cell in cells])
    return Table(["time", "level", "event", "why"], rows[-MAX_EVENTS:])
