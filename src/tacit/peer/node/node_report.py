"""The report of a node: one self-contained page for the member, from its own folder.

It tells what the node did and spent, and what its neighbours could learn from what it sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import ValidationError

from tacit.auditing.answer import answer_of
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
from tacit.report import plots
from tacit.report.answer_section import answer_html
from tacit.report.audit_sections import stored_audit
from tacit.report.finished_run import StoredConfusion
from tacit.report.metric_names import metric_title, metric_unit
from tacit.report.page import card, collapsible, facts, format_number, grid, render_page, table
from tacit.report.predictions_section import confusion_card, warning_box
from tacit.report.spending import epsilon_text
from tacit.report.style import PALETTE, new_figure, plot_style, svg

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
        "Summary": _summary(audited, records, summary),
        "Training": _curves(records),
        **({"Predictions": drawn} if (drawn := _predictions(summary)) else {}),
        "Graph": grid([card("", svg(named_graph(manifest), "The graph"), square=True)]),
        **stored.pictures,
        **({"Warnings": warnings} if (warnings := _warnings(run / "log.jsonl")) else {}),
        **({"What was really sent": _sent(sent)} if sent is not None else {}),
        **stored.tables,
        **stored.proofs,
        "Configuration": collapsible(
            "Signed by the operator", f"<pre>{escape(to_toml(manifest.config.as_dict()))}</pre>"
        ),
    }
    lead = (
        f"Node {audited.member} of {manifest.federation}, generation {manifest.generation}: "
        f"{len(manifest.members)} members train with {found.setting.algorithm.name}. "
        "Of this node's data, the page tells only how well its model predicts them."
    )
    try:
        alerts = warning_box(summary.get("alerts", ()))
        title, top = f"Node {audited.member}", answer_html(stored.answer)
        write_text(out, render_page(title, lead, alerts, sections, answer=top))
    except OSError as problem:
        raise Misuse(f"Cannot write {out}: {problem}.", "Choose another place for it.") from None
    return out


def _sent(sent: SentAudit) -> str:
    """What neighbours compute from the transcript."""
    rows = [
        [
            escape(one.who),
            escape(one.summary),
            "<br>".join(escape(str(value)) for value in one.recovered) or "–",
        ]
        for one in sent.coalitions
    ]
    notes = "".join(f"<p>Not measured: {escape(note)}</p>\n" for note in sent.notes)
    header = ["neighbours", "what they compute from the messages", "compared with the truth"]
    lead = f"<p>{escape(sent.coverage[0].upper() + sent.coverage[1:])}.</p>\n"
    return lead + (table(header, rows) if rows else "") + notes


def _predictions(summary: dict[str, Any]) -> str:
    """The confusion matrix of the node's model, if its summary has one."""
    if "confusion" not in summary:
        return ""
    try:
        confusion = StoredConfusion.model_validate(summary["confusion"])
    except ValidationError:
        return "<p>The confusion matrix in summary.json is damaged.</p>\n"
    return grid([confusion_card(confusion)])


def _summary(
    audited: AuditedFederation, records: Sequence[dict[str, Any]], summary: dict[str, Any]
) -> str:
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
    return facts(values)


def _spent(privacy: dict[str, Any]) -> str:
    spent, promised, sums = (privacy.get(key) for key in ("epsilon_spent", "epsilon", "sums"))
    if spent is None or promised is None or not math.isfinite(promised):
        return "no guarantee: epsilon is inf"
    return f"ε = {epsilon_text(spent)} of {promised:g} at δ = {privacy['delta']:g}, {sums:,} sums"


def _neighbours(audited: AuditedFederation) -> list[str]:
    manifest, name = audited.manifest, str(audited.member)
    near = [*manifest.in_neighbours(name), *manifest.out_neighbours(name)]
    return list(dict.fromkeys(member.name for member in near))


def _curves(records: Sequence[dict[str, Any]]) -> str:
    if not records:
        return "<p>No round was recorded.</p>\n"
    cards = []
    further = dict.fromkeys(name for one in records for name in one.get("metrics", {}))
    labels = {"accuracy": "accuracy (%)", "loss": "loss"} | {name: name for name in further}
    for key, label in labels.items():
        values = [(one["round"], one.get("metrics", {}).get(key, one.get(key))) for one in records]
        points = [(number, value) for number, value in values if value is not None]
        if points:
            figure = svg(_curve(points, label), label, "Of this node's model, by round.")
            cards.append(card(f"{metric_title(key)} on own data", figure))
    return grid(cards)


@plot_style()
def _curve(points: Sequence[tuple[int, float]], label: str) -> Figure:
    figure, axes = new_figure(plots.WIDTH, plots.HEIGHT)
    axes.plot(*zip(*points, strict=True), color=PALETTE[0])
    axes.set(xlabel="round", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _warnings(log: Path) -> str:
    """The last warnings and errors of a log, if it is kept in the folder."""
    if not log.exists():
        return ""
    rows = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("level") in ("warning", "error"):
            why = event.get("why") or event.get("reason") or ""
            cells = (event.get("time"), event["level"], event.get("event"), why)
            rows.append([escape(str(cell)) for cell in cells])
    return table(["time", "level", "event", "why"], rows[-MAX_EVENTS:]) if rows else ""
