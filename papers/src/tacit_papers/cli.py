"""`tacit reproduce`: published tables and figures, with the paper's numbers beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.progress import ProgressBar, ProgressBars

# Imports of the framework load torch and matplotlib, which `tacit --help` does not need.
if TYPE_CHECKING:
    from tacit_papers.framework.artifact import Artifact
    from tacit_papers.framework.results import ArtifactResult
    from tacit_papers.framework.runner import Reproduction


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="list|status|all|report|PAPER/ARTIFACT",
            help="Artifact. `list` shows all, `status` what is missing, `all` measures that; "
            "`report` writes the report about all results.",
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller version that takes minutes on two cores.")
    ] = False,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Seeds per cell (default: the artifact's).")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only cells with this in their key, e.g. --only MNIST (repeatable). Of `status` "
            "and `all`: only these artifacts, e.g. --only 'lppa/*,dfl-opt/fig5'."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[
        Path, typer.Option(help="Folder of all results; each artifact has a subfolder.")
    ] = Path("reproduced"),
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of the datasets (default: $TACIT_DATA).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep stored measurements and measure the rest.")
    ] = False,
    redraw: Annotated[
        bool,
        typer.Option("--redraw", help="Measure nothing: judge and draw stored measurements again."),
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes that measure cells at the same time.")
    ] = 1,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Of `all`: begin only what ends within them.")
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Of `all`: draw what has changed.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print result.json, and nothing else.")
    ] = False,
) -> None:
    """Regenerate a published table or figure: numbers, verdicts, picture."""
    if name == "list":
        _list(as_json)
        return
    if name == "report":
        from tacit_papers.findings.frontier_picture import write_pictures
        from tacit_papers.framework.filled_text import write_report

        path = write_report(out)
        for picture in write_pictures(out, path.parent):
            print(f"Picture: {picture}")
        print(f"Report: {path}")
        return
    if name in ("status", "all"):
        from tacit_papers.backlog_cli import BacklogOptions, measure_all, show_status

        asked = {"--quick": quick, "--repeats": repeats, "--redraw": redraw}
        patterns = tuple(pattern for words in only or () for pattern in words.split(","))
        options = BacklogOptions(
            out, minutes, device, data, resume, jobs, as_json, patterns, figures
        )
        options.refuse({option: value for option, value in asked.items() if value}, name)
        (show_status if name == "status" else measure_all)(options)
        return
    from tacit.core.devices import check_device
    from tacit_papers.backlog_cli import duration
    from tacit_papers.framework.cells import Scale
    from tacit_papers.framework.drawing import write_figure
    from tacit_papers.framework.registry import find_artifact
    from tacit_papers.framework.runner import Reproduction, ReproductionListener, run_artifact
    from tacit_papers.framework.summary import write_summary
    from tacit_papers.framework.workers import worker_processes

    artifact, console = find_artifact(name), Console(stderr=True)
    check_device(device, "--device")
    count = 0 if redraw else repeats
    request = Reproduction(artifact, Scale(quick), out, count, tuple(only or ()), device, data)
    if redraw:
        _check_redraw(request)
    elif not resume:
        request.check_new()
    if quick and not as_json:
        console.print(f"Quick version: {artifact.quickly}.", highlight=False, soft_wrap=True)

    def report(message: str) -> None:
        console.print(message, highlight=False, markup=False, soft_wrap=True)

    def report_measured(done: int, total: int, seconds: float) -> None:
        report(f"{artifact.name}: {done} of {total} measured, {duration(seconds)} left")

    runs = len(request.cells()) * len(request.seeds)
    with ProgressBars(console, runs=runs) as bars, ProgressBar(console) as bar:
        listener = ReproductionListener(bars.listener_for, bar, report_measured, report)
        workers = 0 if redraw else jobs - 1
        with worker_processes(request.command(), workers, request.folder, report):
            run_artifact(request, resume=True, listener=listener)
        # Once more: reads what the workers measured, and measures what a failed one left.
        result = run_artifact(request, resume=True, listener=listener)
    drawn = write_figure(artifact.draw(result), request.folder)
    summary = write_summary(out)
    stored = request.folder / "result.json"
    if as_json:
        print(stored.read_text(encoding="utf-8"))
        return
    for table in _tables(artifact, result):
        Console().print(table)
    print(f"Numbers: {stored}")
    print(f"Figure: {drawn[-1]}")
    print(f"All claims: {summary}")


def _check_redraw(request: Reproduction) -> None:
    from tacit.core.errors import Misuse
    from tacit_papers.framework.results_file import ResultsFile

    name = request.artifact.name
    if not (request.folder / "result.json").exists():
        raise Misuse(
            f"There are no results of {name} in {request.out}.",
            "Measure it first, without --redraw.",
        )
    request.check_scale()
    if outdated := ResultsFile.read(request.folder, request.artifact, request.scale).outdated:
        raise Misuse(
            f"{len(outdated)} cells of {name} are measured in another way now, such as "
            f"{' · '.join(outdated[0])}: --redraw would lose their numbers.",
            "Measure them again with --resume.",
        )


def _list(as_json: bool) -> None:
    from tacit_papers.framework.cells import Scale
    from tacit_papers.framework.registry import ARTIFACTS

    rows = [
        {
            "name": artifact.name,
            "title": artifact.title,
            "cells": len(artifact.cells(Scale())),
            "quick_cells": len(artifact.cells(Scale(quick=True))),
            "repeats": artifact.repeats,
        }
        for artifact in ARTIFACTS.values()
    ]
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("artifact", "what", "cells", "repeats", caption="tacit reproduce NAME [--quick]")
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("name", "title", "cells", "repeats")))
    Console().print(table)


def _tables(artifact: Artifact, result: ArtifactResult) -> list[Table]:
    """The artifact as a table, ours above the paper's; and the claims."""
    title = f"{artifact.title} ({artifact.metric}, {artifact.unit})"
    table = Table(*artifact.axes[:-1], title=title)
    columns = result.labels(-1)
    for column in columns:
        table.add_column(column, justify="right")
    for row in dict.fromkeys(cell.key[:-1] for cell in result.measured):
        keys = [(*row, column) for column in columns]
        table.add_row(*row, *(_entry(result, key) for key in keys))
    if not artifact.claims:
        return [table]
    verdicts = Table("claim", "paper", "ours", "verdict", title="Claims")
    for claim in artifact.claims:
        verdict = claim.judge(result)
        # Claims about cells that were left out have no number.
        if verdict.ours:
            reason = f": {verdict.reason}" if verdict.reason else ""
            verdicts.add_row(claim.text, claim.paper, verdict.ours, verdict.grade + reason)
    return [table, verdicts]


def _entry(result: ArtifactResult, key: tuple[str, ...]) -> str:
    if key not in result:
        return ""
    paper = result[key].paper
    return result.formatted(key) + ("" if paper is None else f"\n({paper})")
