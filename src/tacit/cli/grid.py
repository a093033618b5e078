"""`tacit grid`: one experiment with many values of its keys, each with the same seeds."""

from __future__ import annotations

import json
import re
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
from tacit.cli.metric_tables import print_alerts
from tacit.cli.progress import ProgressBars

if TYPE_CHECKING:
    from tacit.report.finished_grid import Grid

# Rows of the table of settings, and settings whose further metrics are printed.
MAX_ROWS, MAX_FURTHER = 30, 12
# Columns that a terminal of 80 characters has room for.
MAX_COLUMNS = 6
# Columns of the table of settings for which a terminal has none.
ONLY_ON_PAGES = ("Safe to take part?", "Wall time")


def grid(
    config: ConfigFile,
    over: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUES",
            help="A key and its values, e.g. algorithm=dsgt,lppa+fresh=true, graph=ring,complete "
            "or algorithm.lr=0.01,0.1; with --random also log:1e-3:1, uniform:0:1 or int:1:9 "
            "(repeatable).",
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
            help="Metric that judges, such as auc or own_test.f1 (default: accuracy.mean, msd or "
            "loss.mean)."
        ),
    ] = None,
    jobs: Jobs = 1,
    out: Out = Path("runs/grid"),
    data: Data = None,
    overrides: Overrides = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Run algorithms, graphs or any other values on one experiment, and compare them by seed.

    Differences are to the first setting, paired by seed.
    """
    from tacit.config.loading import load_config
    from tacit.core.provenance import current_provenance
    from tacit.experiment import grid as running
    from tacit.experiment.axes import Axis, combine
    from tacit.report.grid_page import write_grid_report

    experiment = load_config(config, overrides or [], print_note)
    axes = [Axis.parse(text) for text in over]
    combinations = combine(axes, draws, experiment.run.seed)
    with ProgressBars(Console(stderr=True), runs=len(combinations) * seeds) as bars:
        made = running.grid(
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
    page = None
    if made.groups:
        page = write_grid_report(made, out / "report.html", current_provenance())
    if as_json:
        print(json.dumps(made.as_dict()))
    else:
        print_grid(made, Console())
        if page is not None:
            print(f"Report: {page}")
    if not made.groups:
        raise typer.Exit(1)


def print_grid(grid: Grid, console: Console) -> None:
    """Print the settings, their further metrics, what misleads, and what is best."""
    console.print(settings_table(grid))
    if 0 < len(grid.groups) <= MAX_FURTHER and (further := further_table(grid)).rows:
        console.print(further)
    print_alerts({"alerts": grid.alerts})
    for sentence in grid.sentences():
        print(sentence)


def settings_table(grid: Grid) -> Table:
    """Mean ± deviation over the seeds, the best setting first; differences are paired by seed.

    Below accuracies is a row of the majority baseline. If some settings kept a guarantee, a column
    has the ε of each.
    """
    from tacit.report.finished_grid import short_keys
    from tacit.report.tables import mean_over_seeds, overview_columns

    count, base = len(grid.stored.seeds), grid.base
    caption = f"mean ± deviation over {count} seeds" if count > 1 else "one seed"
    caption += f", judged on {grid.stored.judged_on}"
    if base is not None and len(grid.groups) > 1:
        caption += f"; differences to {base.label}, paired by seed"
    if (more := len(grid.settings) - MAX_ROWS) > 0:
        caption += f"; {more} more are in grid.csv"
    table, keys = Table(caption=caption), short_keys(grid.stored.keys)
    for key in keys:
        table.add_column(key, overflow="fold")
    columns = overview_columns(grid.groups, grid.measure)
    for title in ONLY_ON_PAGES:
        columns.pop(title, None)
    sent = columns.pop("Sent")
    loss = next((measure for measure in grid.measures if measure.column == "loss.mean"), None)
    # Where there is room: it is among the further metrics, too.
    if loss not in (None, grid.measure) and len(keys) + len(columns) + 2 <= MAX_COLUMNS:
        columns["Loss"] = lambda setting: mean_over_seeds(setting, loss)
    columns["Sent"] = sent
    for title in columns:
        shown = title if title == grid.measure.title else title.lower()
        table.add_column(shown, justify="right", no_wrap=True)
    for setting in grid.ranked[:MAX_ROWS]:
        cells = [str(column(setting)) if setting.runs else "" for column in columns.values()]
        if setting.failures:
            cells[0] = "failed"
        elif setting.diverged:
            cells[0] += f" ({setting.diverged} diverged)"
        style = "bold" if setting is grid.best else None
        table.add_row(*setting.values.values(), *cells, style=style)
    if grid.measure.column == "accuracy.mean" and (baseline := _baseline(grid)) is not None:
        table.add_section()
        table.add_row("majority baseline", *[""] * (len(keys) - 1), f"{baseline:.2f}")
    return table


def further_table(grid: Grid) -> Table:
    """All metrics and, with several seeds, the 95 % confidence intervals of differences."""
    from tacit.report.numbers import format_difference
    from tacit.report.tables import mean_over_seeds

    several = len(grid.stored.seeds) > 1
    table = Table(title="All metrics" if several else "Further metrics", title_justify="left")
    table.add_column("metric", overflow="fold")
    for name in ("value", "difference", *(["95 % interval"] if several else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for measure in grid.measures:
        if not measure.is_metric or (measure is grid.measure and not several):
            continue
        table.add_row(measure.title, style="bold")
        for setting in grid.groups:
            difference = grid.difference(setting, measure)
            texts = format_difference(difference, measure.form) if difference else [""]
            mean, *ends = (re.sub("^-", "−", text) for text in texts)
            cells = [mean_over_seeds(setting, measure), mean, *([" to ".join(ends)] * several)]
            table.add_row(f"  {setting.label}", *cells)
        if measure.column == "accuracy.mean" and (baseline := _baseline(grid)) is not None:
            table.add_row("  majority baseline", f"{baseline:.2f}")
        table.add_section()
    return table


def _baseline(grid: Grid) -> float | None:
    """The accuracy of always predicting the most frequent class, the mean over all runs."""
    known = [run.last.baseline for run in grid.runs if run.last.baseline is not None]
    return sum(known) / len(known) if known else None
