"""`tacit reproduce`: published tables and figures, with the paper's numbers beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.progress import ProgressBar, ProgressBars

if TYPE_CHECKING:
    from tacit_papers.framework.outcome import ArtifactResult


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="list|PAPER/ARTIFACT", help="Which one; `list` shows all.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller version that takes minutes on two cores.")
    ] = False,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Seeds per cell (default: the artifact's own).")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only cells with this in their key, e.g. --only MNIST (repeatable)."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[
        Path, typer.Option(help="Folder of all results; each artifact has its own below.")
    ] = Path("reproduced"),
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of the datasets (default: $TACIT_DATA).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep what is measured, and measure the rest.")
    ] = False,
    redraw: Annotated[
        bool,
        typer.Option(
            "--redraw", help="Measure nothing: judge and draw anew what was measured before."
        ),
    ] = False,
    jobs: Annotated[
        int,
        typer.Option(
            min=1, help="Measure so many cells at once, in processes that share cores and device."
        ),
    ] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print result.json, and nothing else.")
    ] = False,
) -> None:
    """Regenerate a published table or figure: numbers, verdicts, picture."""
    if name == "list":
        _list(as_json)
        return
    from tacit.core.devices import check_device
    from tacit.core.errors import Misuse
    from tacit_papers.framework.artifact import Scale
    from tacit_papers.framework.drawing import write_figure
    from tacit_papers.framework.registry import artifact_named
    from tacit_papers.framework.results_file import ResultsFile
    from tacit_papers.framework.runner import (
        ReproductionListener,
        Wanted,
        command,
        refuse_to_overwrite,
        run_artifact,
    )
    from tacit_papers.framework.summary import write_summary
    from tacit_papers.framework.workers import workers

    artifact, console = artifact_named(name), Console(stderr=True)
    check_device(device, "--device")
    wanted = Wanted(
        artifact, Scale(quick), 0 if redraw else repeats, tuple(only or ()), device, data
    )
    if redraw and not (wanted.folder(out) / "result.json").exists():
        raise Misuse(f"There is nothing of {name} in {out}.", "Measure it first, without --redraw.")
    if redraw and (
        other := ResultsFile.empty(wanted.folder(out), artifact, wanted.scale).refresh()
    ):
        raise Misuse(
            f"{len(other)} cells of {name} are measured in another way now, such as {' · '.join(other[0])}: drawn "
            "anew, their numbers would be lost.",
            "Measure them again with --resume.",
        )
    if quick and not as_json:
        console.print(f"Quick version: {artifact.quickly}.", highlight=False, soft_wrap=True)
    runs = len(wanted.cells()) * len(wanted.seeds)
    if not (resume or redraw):
        refuse_to_overwrite(wanted, out)

    def say(words: str) -> None:
        console.print(words, highlight=False, markup=False, soft_wrap=True)

    with ProgressBars(console, runs=runs) as progress, ProgressBar(console) as bar:
        teller = ReproductionListener(
            progress.watch,
            bar,
            lambda done, of, left: say(
                f"{artifact.name}: {done} of {of} measured, {_duration(left)} left"
            ),
            say,
        )
        with workers(command(wanted, out), 0 if redraw else jobs - 1, wanted.folder(out), say):
            run_artifact(wanted, out, resume=True, teller=teller)
        outcome = run_artifact(
            wanted, out, resume=True, teller=teller
        )  # with theirs, and what one may have left
    folder = out / artifact.name
    figures = write_figure(artifact.draw(outcome), folder)
    summary = write_summary(out)
    if as_json:
        print((folder / "result.json").read_text(encoding="utf-8"))
        return
    for table in _tables(outcome):
        Console().print(table)
    print(f"Numbers: {folder / 'result.json'}")
    print(f"Figure: {figures[-1]}")
    print(f"All claims: {summary}")


def _list(as_json: bool) -> None:
    from tacit_papers.framework.artifact import Scale
    from tacit_papers.framework.registry import ARTIFACTS

    rows = [
        {
            "name": one.name,
            "title": one.title,
            "cells": len(one.cells(Scale())),
            "quick_cells": len(one.cells(Scale(quick=True))),
            "repeats": one.repeats,
        }
        for one in ARTIFACTS.values()
    ]
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("artifact", "what", "cells", "repeats", caption="tacit reproduce NAME [--quick]")
    for row in rows:
        table.add_row(str(row["name"]), str(row["title"]), str(row["cells"]), str(row["repeats"]))
    Console().print(table)


def _tables(outcome: ArtifactResult) -> list[Table]:
    """The artifact as a table, ours before the paper's; and the claims."""
    from tacit_papers.framework.claims import spread

    artifact = outcome.artifact
    columns = outcome.places(-1)
    table = Table(
        *artifact.axes[:-1], title=f"{artifact.title} ({artifact.metric}, {artifact.unit})"
    )
    for column in columns:
        table.add_column(column, justify="right")
    for row in dict.fromkeys(cell.key[:-1] for cell in outcome.measured):
        entries = []
        for column in columns:
            key = (*row, column)
            if key not in outcome:
                entries.append("")
                continue
            paper = outcome[key].paper
            entries.append(spread(outcome, key) + ("" if paper is None else f"\n({paper})"))
        table.add_row(*row, *entries)
    verdicts = Table("claim", "paper", "ours", "verdict", title="Claims")
    for claim in artifact.claims:
        verdict = claim.verdict(outcome)
        if not verdict.ours:  # of cells that were left out
            continue
        verdicts.add_row(
            claim.text,
            claim.paper,
            verdict.ours,
            f"{verdict.word}{': ' + verdict.why if verdict.why else ''}",
        )
    return [table, verdicts]


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
