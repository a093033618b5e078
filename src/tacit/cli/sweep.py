"""`tacit sweep`: an experiment with many values of its keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.arguments import (
    ConfigFile,
    Data,
    Jobs,
    Json,
    Out,
    Overrides,
    Resume,
    Seeds,
    print_note,
)
from tacit.cli.progress import ProgressBars

if TYPE_CHECKING:
    from tacit.experiment.sweep import Sweep

MAX_ROWS = 30


def sweep(
    config: ConfigFile,
    over: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUES",
            help="A key and its values, e.g. algorithm.lr=0.01,0.1; with --random also "
            "log:1e-3:1, uniform:0:1 or int:1:9 (repeatable).",
        ),
    ],
    draws: Annotated[
        int | None,
        typer.Option("--random", min=1, help="Draw so many combinations instead of all."),
    ] = None,
    seeds: Seeds = 1,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric that judges, such as auc (default: accuracy.mean, msd or loss.mean)."
        ),
    ] = None,
    jobs: Jobs = 1,
    out: Out = Path("runs/sweep"),
    data: Data = None,
    overrides: Overrides = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Run an experiment with many values of its keys, and find the best."""
    from tacit.config.loading import load_config
    from tacit.experiment import sweep as sweeping

    experiment = load_config(config, overrides or [], print_note)
    axes = [sweeping.Axis.parse(text) for text in over]
    combinations = sweeping.combine(axes, draws, experiment.run.seed)
    with ProgressBars(Console(stderr=True), runs=len(combinations) * seeds) as bars:
        found = sweeping.sweep(
            experiment,
            axes,
            out,
            draws=draws,
            seeds=seeds,
            metric=metric,
            data_folder=data,
            jobs=jobs,
            resume=resume,
            note=print_note,
            listener_for=bars.listener_for,
        )
    page = sweeping.write_page(found, out / "report.html", f"Sweep on {experiment.task_name}")
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        Console().print(sweep_table(found))
        for sentence in found.sentences():
            print(sentence)
        print(f"Report: {page}")
    if found.best is None:
        raise typer.Exit(1)


def sweep_table(found: Sweep) -> Table:
    """Mean ± deviation over the seeds, the best combination first."""
    from tacit.report.numbers import format_bytes, format_pair

    count = len(found.seeds)
    seeds = f"mean ± deviation over {count} seeds" if count > 1 else "one seed"
    more = len(found.cells) - MAX_ROWS
    hidden = f"; {more} more are in sweep.json" if more > 0 else ""
    table = Table(caption=f"{seeds}, judged on {found.judged_on}{hidden}")
    for key in found.keys:
        table.add_column(key, overflow="fold")
    table.add_column(found.metric, justify="right", no_wrap=True)
    table.add_column("sent", justify="right", no_wrap=True)
    for cell in found.ranked[:MAX_ROWS]:
        row = cell.row()
        score = format_pair(row.mean, row.deviation, ".4g") if not cell.failures else "failed"
        style = "bold" if cell is found.best else None
        table.add_row(*row.values, score, format_bytes(row.bytes_sent), style=style)
    return table
