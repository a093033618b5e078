"""`tacit grid`: one experiment with many values of its keys, each with the same seeds."""

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
from tacit.cli.metric_tables import print_alerts
from tacit.cli.progress import ProgressBars

if TYPE_CHECKING:
    from tacit.report.finished_grid import Grid, GridSetting
    from tacit.report.measures import Measure
    from tacit.report.statistics import Interval

# Rows of the table of settings, and settings whose further metrics are printed.
MAX_ROWS, MAX_FURTHER = 30, 12
# Columns that a terminal of 80 characters has room for.
MAX_COLUMNS = 6


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
    from tacit.report.numbers import format_bytes
    from tacit.report.spending import guarantee_text

    count, stored, base = len(grid.stored.seeds), grid.stored, grid.base
    caption = f"mean ± deviation over {count} seeds" if count > 1 else "one seed"
    caption += f", judged on {stored.judged_on}"
    if base is not None and len(grid.groups) > 1:
        caption += f"; differences to {base.label}, paired by seed"
    if (more := len(grid.settings) - MAX_ROWS) > 0:
        caption += f"; {more} more are in grid.csv"
    table = Table(caption=caption)
    keys = short_keys(stored.keys)
    for key in keys:
        table.add_column(key, overflow="fold")
    guarantees = any(group.epsilon is not None for group in grid.groups)
    titles = [grid.measure.title, "difference"] + ["ε"] * guarantees
    loss = _measure(grid, "loss_mean")
    # Where there is room: it is among the further metrics, too.
    if loss is not None and len(keys) + len(titles) + 2 <= MAX_COLUMNS:
        titles.append("loss")
    for title in (*titles, "sent"):
        table.add_column(title, justify="right", no_wrap=True)
    sent = _measure(grid, "bytes_sent")
    for setting in grid.ranked[:MAX_ROWS]:
        cells = {
            grid.measure.title: _score(grid, setting),
            "difference": pair_cell(
                grid.difference(setting, grid.measure), f"+{grid.measure.form}"
            ),
            "ε": "" if setting.group is None else guarantee_text(setting.group.epsilon),
            "loss": "" if loss is None else pair_cell(setting.interval(loss), loss.form),
        }
        found = None if sent is None else setting.interval(sent)
        style = "bold" if setting is grid.best else None
        table.add_row(
            *setting.values.values(),
            *(cells[title] for title in titles),
            format_bytes(None if found is None else found.mean),
            style=style,
        )
    if grid.measure.key == "accuracy_mean" and (baseline := _baseline(grid)) is not None:
        table.add_section()
        table.add_row("majority baseline", *[""] * (len(keys) - 1), f"{baseline:.2f}")
    return table


def further_table(grid: Grid) -> Table:
    """All metrics and, with several seeds, the 95 % confidence intervals of differences."""
    from tacit.report.numbers import format_difference

    paired = len(grid.stored.seeds) > 1
    table = Table(title="All metrics" if paired else "Further metrics", title_justify="left")
    table.add_column("metric", overflow="fold")
    for name in ("value", "difference", *(["95 % interval"] if paired else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for measure in grid.measures:
        if not measure.is_metric or (measure is grid.measure and not paired):
            continue
        table.add_row(measure.title, style="bold")
        for setting in grid.settings:
            value, difference = setting.interval(measure), grid.difference(setting, measure)
            if value is not None:
                mean, *ends = format_difference(difference, measure.form) if difference else [""]
                cells = [pair_cell(value, measure.form), mean, *([" to ".join(ends)] * paired)]
                table.add_row(f"  {setting.label}", *cells)
        if measure.key == "accuracy_mean" and (baseline := _baseline(grid)) is not None:
            table.add_row("  majority baseline", f"{baseline:.2f}")
        table.add_section()
    return table


def pair_cell(interval: Interval | None, form: str) -> str:
    """A mean and its deviation, if they are known."""
    from tacit.report.numbers import format_pair

    return "" if interval is None else format_pair(interval.mean, interval.deviation, form)


def _score(grid: Grid, setting: GridSetting) -> str:
    if setting.failures:
        return "failed"
    score = pair_cell(setting.score, grid.measure.form) or "–"
    return f"{score} ({setting.diverged} diverged)" if setting.diverged else score


def _measure(grid: Grid, key: str) -> Measure | None:
    return next((measure for measure in grid.measures if measure.key == key), None)


def _baseline(grid: Grid) -> float | None:
    """The accuracy of always predicting the most frequent class, the mean over all runs."""
    known = [run.summary.baseline for run in grid.runs if run.summary.baseline is not None]
    return sum(known) / len(known) if known else None
