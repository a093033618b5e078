"""Tables of runs for papers: every run, means over seeds and paired differences; CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit.report.figures import csv_text
from tacit.report.finished_grid import Grid
from tacit.report.groups import RunGroup, runs_of
from tacit.report.measures import CONFIDENCE, measures, over_seeds, paired, paired_with_first
from tacit.report.numbers import format_difference, format_pair
from tacit.report.rendering import latex, render
from tacit.report.statistics import Interval


def runs_csv(groups: Sequence[RunGroup]) -> str:
    """A line per run."""
    columns = measures(runs_of(groups))
    keys = [measure.key for measure in columns]
    lines = [
        [
            group.name,
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


def means_csv(groups: Sequence[RunGroup], confidence: float = CONFIDENCE) -> str:
    """A line per group and measure: mean, deviation and confidence interval over seeds."""
    lines = [
        [group.name, measure.key, *_cells(interval)]
        for group in groups
        for measure in measures(runs_of(groups))
        if (interval := over_seeds(group, measure, confidence)) is not None
    ]
    return csv_text(["runs", "measure", *_CELLS], lines)


def differences_csv(groups: Sequence[RunGroup], confidence: float = CONFIDENCE) -> str:
    """A line per group but the first, and measure: the difference to the first, paired by seed."""
    lines = [
        [group.name, groups[0].name, measure.key, *_cells(interval)]
        for group in groups[1:]
        for measure in measures(runs_of(groups))
        if measure.key != "baseline"
        if (interval := paired(group, groups[0], measure, confidence)) is not None
    ]
    return csv_text(["runs", "less", "measure", *_CELLS], lines)


def latex_table(groups: Sequence[RunGroup], confidence: float = CONFIDENCE) -> str:
    """A booktabs table with a line per group, mean ± deviation, and one of paired differences."""
    columns = measures(runs_of(groups))
    if not columns:
        return "% No run has a result.\n"
    shown = [measure for measure in columns if measure.key not in _ONLY_CSV]
    seeds = max(len(group.runs) for group in groups)
    lines = []
    for group in groups:
        means = (_mean(over_seeds(group, measure, confidence), measure.form) for measure in shown)
        lines.append([latex(group.name), *means])
    caption = "At the end of the runs"
    if seeds > 1:
        most = "" if all(len(group.runs) == seeds for group in groups) else "up to "
        caption += f": mean ± standard deviation over {most}{seeds} seeds"
    text = "% Needs \\usepackage{booktabs}.\n"
    text += _tabular(["", *(measure.title for measure in shown)], lines, caption)
    return text + _latex_differences(groups, confidence)


def _latex_differences(groups: Sequence[RunGroup], confidence: float) -> str:
    """A table with a line per group but the first, and metric; "" if no seeds can be paired."""
    columns = measures(runs_of(groups))
    found = paired_with_first(groups, columns, confidence)
    if not found:
        return ""
    percent = f"{100 * confidence:g} %"
    lines = [
        [latex(group.name), latex(measure.title), *_difference(interval, measure.form)]
        for _, group, measure, interval in found
    ]
    caption = f"Differences to {groups[0].name}, paired by seed, with the {percent} confidence "
    caption += "interval of Student's t"
    if any(interval.is_constant for *_, interval in found):
        caption += "; no interval where the deviation over seeds is zero"
    return "\n" + _tabular(["", "metric", "difference", f"{percent} interval"], lines, caption)


def _tabular(header: Sequence[str], lines: Sequence[Sequence[str]], caption: str) -> str:
    """A table environment; header and caption are text, cells are LaTeX."""
    texts = sum(name in ("", "metric") for name in header)
    return str(
        render(
            "table.tex.jinja",
            caption=caption,
            alignment="l" * texts + "r" * (len(header) - texts),
            header=header,
            lines=lines,
        )
    )


_CELLS = ["seeds", "mean", "deviation", "low", "high", "confidence"]
# Measures that would make a printed table too wide.
_ONLY_CSV = ("accuracy_max", "baseline", "loss_average_model", "consensus_distance")


def _cells(interval: Interval) -> list[float | int | None]:
    numbers = (interval.mean, interval.deviation, interval.low, interval.high)
    finite = [value if math.isfinite(value) else None for value in numbers]
    return [interval.count, *finite, interval.confidence]


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
