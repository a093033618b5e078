"""The tables and figures of a report as files for papers: CSV, LaTeX, and every figure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from tacit.core.errors import Misuse
from tacit.core.storage import write_text
from tacit.report.drawings import can_draw, graph_figure, partition_figure
from tacit.report.figures import csv_text, write_figure
from tacit.report.finished_grid import Grid
from tacit.report.groups import RunGroup, runs_of
from tacit.report.measures import measures, over_seeds, paired, paired_with_first
from tacit.report.numbers import format_difference, format_pair
from tacit.report.rendering import latex, render
from tacit.report.report import metric_figures
from tacit.report.statistics import CONFIDENCE, Interval

# The columns of an interval in CSV files.
NUMBERS = ["seeds", "mean", "deviation", "low", "high", "confidence"]
# Measures that would make a printed table too wide.
ONLY_CSV = ("accuracy_max", "baseline", "loss_average_model", "consensus_distance")


def write_paper_files(
    groups: Sequence[RunGroup],
    beside: Path,
    *,
    csv: bool = False,
    latex: bool = False,
    figures: str | None = None,
) -> list[Path]:
    """Write tables and figures of these runs beside a report.

    Args:
        groups: The runs.
        beside: The report, after which the files are named.
        csv: Write the runs, means over seeds, and differences paired by seed.
        latex: Write a LaTeX table.
        figures: Write every figure in this format: "pdf", "svg" or "png".

    Returns:
        The files.

    Raises:
        Misuse: If a run cannot be read, or a file cannot be written.
    """
    texts: dict[str, str] = {}
    if csv:
        texts = {"runs.csv": runs_csv(groups), "means.csv": means_csv(groups)}
        if len(groups) > 1:
            texts["differences.csv"] = differences_csv(groups)
    if latex:
        texts["table.tex"] = latex_tables(groups)
    written = []
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            written.append(beside.with_name(f"{beside.stem}-{name}"))
            write_text(written[-1], text)
        if figures is not None:
            folder = beside.with_name(f"{beside.stem}-figures")
            folder.mkdir(exist_ok=True)
            for name, figure in _figures(groups).items():
                written.append(folder / f"{name}.{figures}")
                write_figure(figure, written[-1], figures, dpi=200, bbox_inches="tight")
    except OSError as problem:
        raise Misuse(f"Cannot write {written[-1]}: {problem}.", "Choose another --out.") from None
    return written


def _figures(groups: Sequence[RunGroup]) -> dict[str, Figure]:
    """Every figure by the name of its file."""
    drawn = {_file_name(name): figure for name, figure, _ in metric_figures(groups)}
    run = groups[0].runs[0]
    if can_draw(run.graph):
        drawn["graph"] = graph_figure(run.graph)
    if run.partition is not None and run.partition.classes and run.partition.counts:
        drawn["partition"] = partition_figure(run.partition)
    return drawn


def _file_name(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def runs_csv(groups: Sequence[RunGroup]) -> str:
    """A line per run."""
    columns = measures(runs_of(groups))
    keys = [measure.key for measure in columns]
    lines = [
        [
            group.label,
            run.name,
            run.summary.algorithm,
            run.summary.seed,
            *(measure.value(run) for measure in columns),
            run.summary.diverged,
        ]
        for group in groups
        for run in group.runs
    ]
    return csv_text(["runs", "folder", "algorithm", "seed", *keys, "diverged"], lines)


def grid_csv(grid: Grid) -> str:
    """A line per run of a grid that has ended, with the value of each key."""
    keys = [measure.key for measure in grid.measures]
    lines = []
    for setting in grid.settings:
        for run in setting.runs:
            numbers = [measure.value(run) for measure in grid.measures]
            lines.append([*setting.values.values(), run.name, run.summary.seed, *numbers])
    return csv_text([*grid.stored.keys, "folder", "seed", *keys], lines)


def means_csv(groups: Sequence[RunGroup]) -> str:
    """A line per group and measure: mean, deviation and confidence interval over seeds."""
    lines = [
        [group.label, measure.key, *_numbers(interval)]
        for group in groups
        for measure in measures(runs_of(groups))
        if (interval := over_seeds(group, measure)) is not None
    ]
    return csv_text(["runs", "measure", *NUMBERS], lines)


def differences_csv(groups: Sequence[RunGroup]) -> str:
    """A line per group but the first, and measure: the difference to the first, paired by seed."""
    lines = [
        [group.label, groups[0].label, measure.key, *_numbers(interval)]
        for group in groups[1:]
        for measure in measures(runs_of(groups))
        if measure.key != "baseline"
        if (interval := paired(group, groups[0], measure)) is not None
    ]
    return csv_text(["runs", "less", "measure", *NUMBERS], lines)


def latex_tables(groups: Sequence[RunGroup]) -> str:
    """A booktabs table with a line per group, mean ± deviation, and one of paired differences."""
    columns = measures(runs_of(groups))
    if not columns:
        return "% No run has a result.\n"
    shown = [measure for measure in columns if measure.key not in ONLY_CSV]
    means = [
        [
            latex(group.label),
            *(_mean(over_seeds(group, measure), measure.form) for measure in shown),
        ]
        for group in groups
    ]
    paired_groups = paired_with_first(groups, columns)
    differences = [
        [latex(group.label), latex(measure.title), *_difference(difference, measure.form)]
        for _, group, measure, difference in paired_groups
    ]
    seeds = [len(group.runs) for group in groups]
    return str(
        render(
            "tables.tex.jinja",
            titles=[measure.title for measure in shown],
            means=means,
            seeds=max(seeds),
            are_equal=min(seeds) == max(seeds),
            base=groups[0].label,
            differences=differences,
            some_constant=any(difference.is_constant for *_, difference in paired_groups),
        )
    )


def _numbers(interval: Interval) -> list[float | int | None]:
    numbers = interval.as_dict() | {"confidence": CONFIDENCE}
    return [numbers[name] for name in NUMBERS]


def _mean(interval: Interval | None, form: str) -> str:
    if interval is None:
        return "--"
    # One value has no deviation, and what does not depend on the seed needs none.
    deviation = interval.deviation if interval.deviation > 0 else math.nan
    pair = format_pair(interval.mean, deviation, form).split(" ± ")
    numbers = r" \pm ".join(map(_in_mathematics, pair))
    return f"${numbers}$"


def _difference(interval: Interval, form: str) -> list[str]:
    """A mean and its interval, if it has one."""
    mean, *ends = map(_in_mathematics, format_difference(interval, form))
    return [f"${mean}$", f"$[{', '.join(ends)}]$" if ends else "--"]


def _in_mathematics(text: str) -> str:
    """A number for LaTeX's mathematics, such as 1.2 \\times 10^{6}."""
    number, _, exponent = text.partition("e")
    number = number.rstrip(".")
    return f"{number} \\times 10^{{{int(exponent)}}}" if exponent else number
