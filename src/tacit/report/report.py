"""Reports: one self-contained HTML page about one run, or a comparison of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from markupsafe import Markup
from matplotlib.figure import Figure

from tacit.core.errors import Misuse
from tacit.core.shown_paths import without_folders
from tacit.core.storage import write_text
from tacit.report import plots
from tacit.report.answer_section import answer_html, answers_table, unaudited_answer
from tacit.report.drawings import can_draw, graph_figure, partition_figure
from tacit.report.figures import csv_text, svg
from tacit.report.finished_run import FinishedRun, StoredGraph, StoredPartition, read_run
from tacit.report.groups import RunGroup, differences, group_runs, owner_of, runs_of
from tacit.report.measures import OWN_TEST, axis_label, metric_title
from tacit.report.page import Card, Table, counts_table, provenance_table, render_page, show
from tacit.report.predictions_section import predictions_section
from tacit.report.privacy_section import privacy_section
from tacit.report.rendering import render
from tacit.report.stored_audit import StoredAudit
from tacit.report.tables import comparison, overview_table, run_numbers, run_result

MAX_DRAWINGS = 6  # of the different graphs or partitions of several runs
MAX_COUNT_ROWS = 60  # longer tables of counts are of no use to a reader

SPREAD_CAPTION = "Solid: the mean over clients. Dashed: the average model. Band: lowest to highest."
MSD_CAPTION = "Mean of ‖θᵢ − θ*‖² over clients and seeds; θ* is the optimum at the last gradient."
CONSENSUS_CAPTION = "Root mean square distance of the clients' models from their average."
MEANS_CAPTION = "The mean over clients; with this many curves, without ranges and average models."


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    title: str,
    sections: Mapping[str, str] | None = None,
    made: Mapping[str, str] | None = None,
    audit: StoredAudit | None = None,
) -> Path:
    """Write a page about these runs; `sections`, HTML by title, precede the configuration.

    `made` says when and how the page was made. `audit` is that of the first run, by default the one
    in its folder.
    """
    page = report_page(folders, title=title, sections=sections, made=made, audit=audit)
    return write_page(page, out)


def write_page(page: str, out: Path) -> Path:
    """Write a page; Misuse if that is not possible."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, page)
    except OSError as problem:
        raise Misuse(
            f"Cannot write the report {out}: {problem}.", "Choose another place for it."
        ) from None
    return out


def report_page(
    folders: Sequence[Path],
    *,
    title: str,
    sections: Mapping[str, str] | None = None,
    made: Mapping[str, str] | None = None,
    audit: StoredAudit | None = None,
    refresh: int | None = None,
) -> str:
    """The page about these runs; see `write_report` and `render_page`."""
    distinct = list({folder.resolve(): folder for folder in folders}.values())
    if not distinct:
        raise Misuse(
            "There is no run to report on.", "Give at least one folder that `tacit run` made."
        )
    runs = [read_run(folder) for folder in distinct]
    if audit is not None:
        runs[0] = replace(runs[0], audit=audit)
    groups = group_runs(runs)
    result = show(overview_table(groups)) if len(runs) > 1 else run_result(runs[0])
    return groups_page(
        groups,
        title=title,
        lead=_lead(runs),
        first={"Result": result},
        sections=sections,
        made=made,
        refresh=refresh,
    )


def groups_page(
    groups: Sequence[RunGroup],
    *,
    title: str,
    lead: str,
    first: Mapping[str, Markup],
    notes: str = "",
    sections: Mapping[str, str] | None = None,
    made: Mapping[str, str] | None = None,
    refresh: int | None = None,
) -> str:
    """The page about groups of runs; the sections `first` lead, and `notes` stand above all."""
    unfinished = any(not run.is_finished for group in groups for run in group.runs)
    return render_page(
        title,
        lead,
        _assemble(groups, first, sections or {}, made or {}),
        alerts=notes + _alerts(groups),
        answer=_answer(groups),
        refresh=refresh if unfinished else None,
    )


def _assemble(
    groups: Sequence[RunGroup],
    first: Mapping[str, Markup],
    sections: Mapping[str, str],
    made: Mapping[str, str],
) -> dict[str, Markup]:
    """The sections by title: pictures, then tables, then proofs."""
    runs = runs_of(groups)
    alone = runs[0] if len(runs) == 1 else None
    audit = alone.audit if alone is not None else None
    parts = {
        **first,
        "Over the rounds": _curves(groups),
        "Predictions": predictions_section(groups),
        "Privacy": privacy_section(groups),
        "Graph and data": _drawings(groups),
        **(audit.pictures if audit is not None else {}),
        "Numbers": run_numbers(alone) if alone is not None else comparison(groups),
        **(audit.tables if audit is not None else {}),
        **sections,
        **(audit.proofs if audit is not None else {}),
        "Configuration": _configurations(groups),
        "Made by": _provenance(groups, made),
    }
    # Stored audits and the caller's sections are HTML.
    return {name: Markup(html) for name, html in parts.items()}


def _answer(groups: Sequence[RunGroup]) -> Markup:
    """Whether it is safe to take part; of several runs, if any of them was audited."""
    if len(groups) > 1 or len(groups[0].runs) > 1:
        return show(answers_table(groups))
    audit = groups[0].runs[0].audit
    return answer_html(unaudited_answer(groups[0]) if audit is None else audit.answer)


def _provenance(groups: Sequence[RunGroup], made: Mapping[str, str]) -> Markup:
    sources = {"This page": made}
    for group in groups:
        for run in group.runs:
            name = "This run" if len(groups) == len(group.runs) == 1 else group.name_of(run)
            sources[name] = run.made
            if run.audit is not None:
                audited = "this run" if name == "This run" else name
                sources[f"Audit of {audited}"] = run.audit.made
    return show(provenance_table(sources))


def _lead(runs: Sequence[FinishedRun]) -> str:
    first = runs[0].summary
    if len(runs) == 1:
        what = "a model" if first.parameters is None else f"{first.parameters:,} parameters"
        return (
            f"A run of {first.algorithm}: {first.clients:,} clients train {what} "
            f"for {first.rounds:,} rounds ({first.steps:,} steps)."
        )
    clients = sorted({run.summary.clients for run in runs})
    many = f"{clients[0]:,}" if len(clients) == 1 else f"{clients[0]:,} to {clients[-1]:,}"
    algorithms = ", ".join(dict.fromkeys(run.summary.algorithm for run in runs))
    return f"{len(runs)} runs compared ({algorithms}), with {many} clients."


def _alerts(groups: Sequence[RunGroup]) -> Markup:
    """What a reader must know first; a note that several runs share is shown once."""
    notes: dict[str, list[str]] = {}
    for group in groups:
        for run in group.runs:
            for note in dict.fromkeys(map(without_folders, run.summary.notes)):
                notes.setdefault(note, []).append(group.name_of(run))
    count = len(runs_of(groups))
    shared = {note: "" if len(of) == count else "; ".join(of) for note, of in notes.items()}
    return render("alerts.html.jinja", groups=groups, owner_of=owner_of, notes=shared)


def _curves(groups: Sequence[RunGroup]) -> Markup:
    labels = [group.legend for group in groups]
    cards = [
        # The legend explains spreads to those who see it.
        Card(
            name,
            svg(figure, f"{name}: {'; '.join(labels)}", caption),
            "" if caption == SPREAD_CAPTION else caption,
        )
        for name, figure, caption in metric_figures(groups)
    ]
    return render("curves.html.jinja", labels=labels, figures=cards)


def metric_figures(groups: Sequence[RunGroup]) -> Iterator[tuple[str, Figure, str]]:
    """The figures that these runs have: title, figure, and caption."""
    series = [
        plots.Series(group.legend, tuple(run.history for run in group.runs)) for group in groups
    ]
    histories = [history for entry in series for history in entry.histories if history]
    if not histories:
        return
    records = [record for history in histories for record in history]
    spread = SPREAD_CAPTION if len(series) <= plots.MAX_RANGES else MEANS_CAPTION
    if has_accuracy := any(record.accuracy is not None for record in records):
        yield "Accuracy", plots.accuracy_figure(series), spread
    if any(record.msd is not None for record in records):
        yield "Mean-square deviation", plots.msd_figure(series), MSD_CAPTION
    if any(record.loss is not None for record in records):
        yield "Loss", plots.loss_figure(series), spread
    yield "Consensus distance", plots.consensus_figure(series), CONSENSUS_CAPTION
    caption = "Bytes sent by all clients since the start."
    yield "Communication", plots.bytes_figure(series), caption
    bytes_per_round = {history[-1].bytes_sent / max(1, history[-1].round) for history in histories}
    if has_accuracy and len(bytes_per_round) > 1:
        yield "Accuracy and bytes sent", plots.accuracy_by_bytes_figure(series), spread
    further = dict.fromkeys(name for history in histories for name in history.metrics)
    # The baseline of a client's own test set does not change: it is in the tables.
    for metric in (name for name in further if name != f"{OWN_TEST}baseline"):
        figure = plots.metric_figure(series, metric, axis_label(metric))
        yield metric_title(metric), figure, spread


def _drawings(groups: Sequence[RunGroup]) -> Markup:
    graphs = _distinct(groups, lambda run: run.graph)
    partitions = _distinct(groups, _drawable_partition)
    cards = [_graph_card(graph, owners) for owners, graph in graphs[:MAX_DRAWINGS]]
    cards += [_partition_card(part, owners) for owners, part in partitions[:MAX_DRAWINGS]]
    left_out = max(len(graphs), len(partitions)) - MAX_DRAWINGS
    return render("cards.html.jinja", tables=(), cards=cards, left_out=left_out)


def _graph_card(graph: StoredGraph, owners: str) -> Card:
    caption = owners + graph.description
    if not can_draw(graph):
        drawing = f"The graph of {graph.clients:,} clients has too many edges to draw."
    else:
        ends = ([graph.name_of(end) for end in edge] for edge in graph.edges or ())
        edges = csv_text(("from", "to"), ends)
        drawing = svg(graph_figure(graph), f"Graph of {caption}", data=edges)
        caption += ". Arrows point from sender to receiver." if graph.directed else ""
    return Card("Graph", drawing, caption, "square")


def _partition_card(partition: StoredPartition, owners: str) -> Card:
    caption = owners + partition.description
    counted = zip(partition.client_names, partition.counts, strict=True)
    table = counts_table("client", partition.classes, counted)
    data = csv_text(
        ("client", *partition.classes),
        ([who, *row] for who, row in zip(partition.client_names, partition.counts, strict=True)),
    )
    name = f"Samples per client and class of {caption}"
    drawing = svg(partition_figure(partition), name, data=data)
    shown = table if len(partition.counts) <= MAX_COUNT_ROWS else None
    return Card("Partition", drawing, caption, numbers=shown)


def _drawable_partition(run: FinishedRun) -> StoredPartition | None:
    part = run.partition
    return part if part is not None and part.classes and part.counts else None


S = TypeVar("S", StoredGraph, StoredPartition)


def _distinct(
    groups: Sequence[RunGroup], get: Callable[[FinishedRun], S | None]
) -> list[tuple[str, S]]:
    """The different graphs or partitions of the groups' first runs.

    Each comes with the names of the runs it belongs to, or "" if it belongs to all of them.
    """
    owned: dict[str, tuple[list[str], S]] = {}
    depends_on_seed = False
    for group in groups:
        value = get(group.runs[0])
        if value is None:
            continue
        varies = any(get(run) != value for run in group.runs)
        depends_on_seed |= varies
        name = group.name_of(group.runs[0]) if varies else group.label
        owned.setdefault(value.model_dump_json(), ([], value))[0].append(name)
    if len(owned) == 1 and not depends_on_seed:
        return [("", value) for _, value in owned.values()]
    return [(f"{'; '.join(names)}: ", value) for names, value in owned.values()]


def _configurations(groups: Sequence[RunGroup]) -> Markup:
    named = [(group.name_of(run), run) for group in groups for run in group.runs]
    differing = differences([run for _, run in named])
    rows = [
        [name, *(values[index] for values in differing.values())]
        for index, (name, _) in enumerate(named if differing else ())
    ]
    return render(
        "configuration.html.jinja",
        differing=Table(["Run", *differing], rows, "What differs between the runs"),
        files=[
            (
                "config.toml" if len(named) == 1 else f"config.toml of {name}",
                without_folders(run.config),
            )
            for name, run in named
        ],
    )
