"""One self-contained HTML page about one run, or about several beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TypeVar

from tacit.core.errors import Misuse
from tacit.core.storage import write_text
from tacit.report import plots, tables
from tacit.report.finished_run import FinishedRun, StoredGraph, StoredPartition, read_run
from tacit.report.groups import RunGroup, differences, group_runs, run_name
from tacit.report.page import PageSection, card, folded, table, whole_page


PICTURES = 6  # different graphs or partitions shown of several runs
NUMBERED_ROWS = 60  # a longer table of counts is for programs, not for people


def write_report(
    folders: Sequence[Path], out: Path, *, title: str, sections: Sequence[PageSection] = ()
) -> Path:
    """Write a page about the runs in these folders; `sections` are added before the configuration."""
    distinct = list({folder.resolve(): folder for folder in folders}.values())
    if not distinct:
        raise Misuse(
            "There is no run to report on.", "Give at least one folder that `tacit run` made."
        )
    page = report_page([read_run(folder) for folder in distinct], title=title, sections=sections)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, page)
    except OSError as problem:
        raise Misuse(
            f"Cannot write the report {out}: {problem}.", "Choose another place for it."
        ) from None
    return out


def report_page(
    runs: Sequence[FinishedRun], *, title: str, sections: Sequence[PageSection] = ()
) -> str:
    """The page as text."""
    groups = group_runs(runs)
    parts = [
        PageSection(
            "Summary",
            tables.of_one_run(runs[0]) if len(runs) == 1 else tables.of_several_runs(groups),
        ),
        PageSection("Over the rounds", _curves(groups)),
        PageSection("Graph and data", _pictures(groups)),
        *sections,
        PageSection("Configuration", _configurations(groups)),
    ]
    return whole_page(title, _lead(runs), _warnings(groups) + _notes(groups), parts)


# --- words ---------------------------------------------------------------------------------------------


def _lead(runs: Sequence[FinishedRun]) -> str:
    first = runs[0].summary
    if len(runs) == 1:
        return (
            f"A run of {first.algorithm}: {first.clients:,} clients learn {first.parameters:,} "
            f"parameters together for {first.rounds:,} rounds ({first.steps:,} steps)."
        )
    clients = sorted({run.summary.clients for run in runs})
    many = f"{clients[0]:,}" if len(clients) == 1 else f"{clients[0]:,} to {clients[-1]:,}"
    algorithms = ", ".join(dict.fromkeys(run.summary.algorithm for run in runs))
    return f"{len(runs)} runs compared ({algorithms}): {many} clients learn together."


def _warnings(groups: Sequence[RunGroup]) -> str:
    alone = len(groups) == 1
    return "".join(
        f'<div class="box warning" role="alert"><p><strong>{"This run" if alone else escape(group.name)} '
        f"diverged.</strong> {escape(run.summary.diverged)}</p></div>\n"
        for group in groups
        for run in group.runs
        if run.summary.diverged is not None
    )


def _notes(groups: Sequence[RunGroup]) -> str:
    """The notes of all runs; one that several runs share is shown once."""
    names: dict[str, list[str]] = {}
    for group in groups:
        for run in group.runs:
            for note in dict.fromkeys(run.summary.notes):
                names.setdefault(note, []).append(run_name(group, run))
    if not names:
        return ""
    total = sum(len(group.runs) for group in groups)
    items = ""
    for note, whose in names.items():
        of_some = "" if len(whose) == total else f" <em>({escape('; '.join(whose))})</em>"
        items += f"<li>{escape(note)}{of_some}</li>"
    return f'<div class="box" role="note"><p><strong>Notes</strong></p><ul>{items}</ul></div>\n'


# --- pictures ------------------------------------------------------------------------------------------


def _curves(groups: Sequence[RunGroup]) -> str:
    series = [group.series for group in groups]
    histories = [history for one in series for history in one.histories]
    if not any(histories):
        return "<p>No round was recorded.</p>\n"
    records = [record for history in histories for record in history]
    accurate = any(record.accuracy is not None for record in records)
    legend = spread = (
        "Solid: the mean over clients. Dashed: the average model. Band: from lowest to highest."
    )
    if len(series) > plots.CROWD:
        spread = "The mean over clients; ranges and average models are left out with so many lines."
    apart = "Root mean square distance of the clients' models from their average."
    wanted = [
        ("Loss", plots.loss_figure, spread),
        ("Consensus distance", plots.consensus_figure, apart),
        (
            "Communication",
            plots.bytes_figure,
            "Bytes sent by all clients together since the start.",
        ),
    ]
    if any(record.msd is not None for record in records):
        told = "Mean of ‖θᵢ − θ*‖² over clients and seeds, θ* being the optimum when the last gradient was taken."
        wanted.insert(0, ("Mean-square deviation", plots.msd_figure, told))
    if accurate:
        wanted.insert(0, ("Accuracy", plots.accuracy_figure, spread))
        if (
            len(
                {
                    history[-1].bytes_sent / max(1, history[-1].round)
                    for history in histories
                    if history
                }
            )
            > 1
        ):
            wanted.append(
                ("Accuracy for its communication", plots.accuracy_by_bytes_figure, spread)
            )
    names = "; ".join(one.label for one in series)
    cards = [
        card(
            name, plots.svg(draw(series), f"{name}: {names}", told), told if told != legend else ""
        )
        for name, draw, told in wanted
    ]
    return _grid(cards)


def _pictures(groups: Sequence[RunGroup]) -> str:
    graphs = _distinct(groups, lambda run: run.graph)
    partitions = _distinct(groups, _drawable_partition)
    cards = [_graph(graph, whose) for whose, graph in graphs[:PICTURES]]
    cards += [_partition(partition, whose) for whose, partition in partitions[:PICTURES]]
    more = max(len(graphs), len(partitions)) - PICTURES
    rest = f"<p>{more} more are not shown.</p>\n" if more > 0 else ""
    return _grid(cards) + rest


def _graph(graph: StoredGraph, whose: str) -> str:
    told = whose + graph.description
    if not plots.can_draw(graph):
        drawing = f"<p>The graph of {graph.clients:,} clients has too many edges to draw.</p>"
    else:
        drawing = plots.svg(plots.graph_figure(graph), f"Graph of {told}")
        told += ". Arrows point from sender to receiver." if graph.directed else ""
    return card("Who talks to whom", drawing, told, square=True)


def _partition(partition: StoredPartition, whose: str) -> str:
    told = whose + partition.description
    drawing = plots.svg(
        plots.partition_figure(partition), f"Samples per client and class of {told}"
    )
    if len(partition.counts) <= NUMBERED_ROWS:
        rows = [
            [str(client), *(f"{count:,}" for count in counts), f"{sum(counts):,}"]
            for client, counts in enumerate(partition.counts)
        ]
        drawing += folded(
            "As numbers", table(["client", *map(escape, partition.classes), "all"], rows)
        )
    return card("Who holds which data", drawing, told)


Kind = TypeVar("Kind", StoredGraph, StoredPartition)


def _distinct(
    groups: Sequence[RunGroup], of: Callable[[FinishedRun], Kind | None]
) -> list[tuple[str, Kind]]:
    """Each different thing once, with whose it is where that is not plain; of a group its first run's."""
    found: dict[str, tuple[list[str], Kind]] = {}
    by_seed = False
    for group in groups:
        thing = of(group.runs[0])
        if thing is None:
            continue
        varies = any(of(run) != thing for run in group.runs)
        by_seed |= varies
        name = run_name(group, group.runs[0]) if varies else group.name
        found.setdefault(thing.model_dump_json(), ([], thing))[0].append(name)
    plain = len(found) == 1 and not by_seed
    return [("" if plain else f"{'; '.join(names)}: ", thing) for names, thing in found.values()]


def _drawable_partition(run: FinishedRun) -> StoredPartition | None:
    return (
        run.partition if run.partition and run.partition.classes and run.partition.counts else None
    )


def _grid(cards: Sequence[str]) -> str:
    return f'<div class="grid">\n{"".join(cards)}</div>\n'


# --- configurations ------------------------------------------------------------------------------------


def _configurations(groups: Sequence[RunGroup]) -> str:
    named = [(run_name(group, run), run) for group in groups for run in group.runs]
    if len(named) == 1:
        return folded("config.toml", _source(named[0][1]))
    differing = differences([run for _, run in named])
    html = ""
    if differing:
        rows = [
            [escape(name), *(escape(values[place]) for values in differing.values())]
            for place, (name, _) in enumerate(named)
        ]
        header = ["Run", *map(escape, differing)]
        html = table(header, rows, "What differs between the runs")
    return html + "".join(folded(f"config.toml of {name}", _source(run)) for name, run in named)


def _source(run: FinishedRun) -> str:
    return f'<div class="sheet"><pre>{escape(run.config)}</pre></div>'
