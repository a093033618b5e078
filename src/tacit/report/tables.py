"""The tables of a report: how the runs ended."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence

from markupsafe import Markup

from tacit.record.history import PARTS
from tacit.report.finished_run import FinishedRun
from tacit.report.groups import RunGroup, runs_of
from tacit.report.measures import (
    Measure,
    format_metric,
    further,
    measures,
    metric_title,
    over_seeds,
    paired,
    paired_with_first,
)
from tacit.report.numbers import (
    format_bytes,
    format_difference,
    format_duration,
    format_number,
    format_pair,
)
from tacit.report.page import Cell, Styled, Table
from tacit.report.rendering import render
from tacit.report.spending import guarantee_text
from tacit.report.statistics import Interval


def run_result(run: FinishedRun) -> Markup:
    """The result of one run in large numbers."""
    return render("run_result.html.jinja", summary=run.summary, last=run.last)


def run_numbers(run: FinishedRun) -> Markup:
    """All numbers of one run."""
    last = run.last
    spreads = {"accuracy": last.accuracy, "loss": last.loss, **further(last)}
    rows = [
        [metric_title(metric), *(format_metric(getattr(spread, part), metric) for part in PARTS)]
        for metric, spread in spreads.items()
        if spread is not None
    ]
    if last.baseline is not None:
        rows.insert(1, [metric_title("baseline"), *[format_metric(last.baseline, "baseline")] * 4])
    header = ["At the end", "mean over clients", "lowest client", "highest client", "average model"]
    return render(
        "run_numbers.html.jinja", spreads=Table(header, rows), summary=run.summary, last=last
    )


def comparison(groups: Sequence[RunGroup]) -> Markup:
    """The differences of all metrics; then all numbers of groups and runs, folded."""
    runs = runs_of(groups)
    every = measures(runs)
    shown = [measure for measure in every if measure.key != "bytes_sent"]
    means = None
    if len(runs) > len(groups):
        rows = [
            [group.legend, *(mean_over_seeds(group, measure) for measure in shown)]
            for group in groups
        ]
        header = ["Run", *(measure.title for measure in shown)]
        title = "Mean ± standard deviation over seeds"
        means = Table(header, rows, title, range(len(groups)))
    # The names of runs of one group have their seeds.
    seeds = ["Seed"] if any(len(group.runs) == 1 for group in groups) else []
    rows = [
        [
            group.name_of(run),
            *(format_number(measure.value(run), measure.form) for measure in shown),
            format_bytes(run.last.bytes_sent),
            format_duration(run.last.wall_seconds),
            *([str(run.summary.seed)] if seeds else []),
        ]
        for group in groups
        for run in group.runs
    ]
    series = [number for number, group in enumerate(groups) for _ in group.runs]
    header = ["Run", *(measure.title for measure in shown), "Sent", "Wall time", *seeds]
    return render(
        "numbers.html.jinja",
        differences=difference_table(groups, every),
        means=means,
        each=Table(header, rows, "At the end of each run", series),
    )


def overview_table(groups: Sequence[RunGroup]) -> Table:
    """A row per group: the first metric and its difference, what leaks, ε, bytes and time."""
    runs = runs_of(groups)
    metric = next((measure for measure in measures(runs) if measure.is_metric), None)
    columns = overview_columns(groups, metric)
    rows = [[group.legend, *(column(group) for column in columns.values())] for group in groups]
    return Table(["Run", *columns], rows, overview_title(groups), range(len(groups)))


def overview_title(groups: Sequence[RunGroup]) -> str:
    """What the numbers of an overview are."""
    several = any(len(group.runs) > 1 for group in groups)
    return "At the end: mean ± standard deviation over seeds" if several else "At the end"


def overview_columns(
    groups: Sequence[RunGroup], metric: Measure | None
) -> dict[str, Callable[[RunGroup], Cell]]:
    """The columns of an overview by their titles: the cell of each group.

    Args:
        groups: All groups; differences are to the first.
        metric: What groups are compared by, if there is a metric.
    """
    runs = runs_of(groups)
    columns: dict[str, Callable[[RunGroup], Cell]] = {}
    if metric is not None:
        columns[metric.title] = lambda group: mean_over_seeds(group, metric)
        if any(paired(group, groups[0], metric) is not None for group in groups[1:]):
            columns["Difference"] = lambda group: _difference(group, groups[0], metric)
    if any(run.audit is not None for run in runs):
        columns["Safe to take part?"] = lambda group: _answers(group.runs)
    if any(run.spending is not None for run in runs):
        columns["ε"] = lambda group: guarantee_text(group.epsilon)
    columns["Sent"] = lambda group: _mean_text(group, "bytes_sent", format_bytes)
    columns["Wall time"] = lambda group: _mean_text(group, "wall_seconds", format_duration)
    return columns


def difference_table(groups: Sequence[RunGroup], every: Sequence[Measure]) -> Table:
    """Each group minus the first one, paired by seed, with 95 % confidence intervals.

    It has no rows if no other group shares a seed with the first.
    """
    rows, series = [], []
    for number, group, measure, difference in paired_with_first(groups, every):
        name = measure.title.replace("(%)", "(points)")
        cells = _difference_cells(difference, measure.form)
        rows.append([group.label, name, str(difference.count), *cells])
        series.append(number)
    header = ["Run", "Metric", "Seeds", "Difference", "95 % interval", "Reading"]
    return Table(header, rows, f"Difference to {groups[0].label}, paired by seed", series)


def _difference_cells(difference: Interval, form: str) -> list[str]:
    mean, *ends = (re.sub("^-", "−", text) for text in format_difference(difference, form))
    if not ends:
        why = "deviation over seeds is zero" if difference.is_constant else "one seed"
        return [mean, "–", f"{why}: no interval"]
    if not difference.excludes_zero:
        reading = "not distinguishable from 0"
    else:
        reading = "higher" if difference.mean > 0 else "lower"
    return [mean, " to ".join(ends), reading]


def _difference(group: RunGroup, base: RunGroup, measure: Measure) -> str:
    """The paired difference, mean ± deviation; nothing for the group that others differ from."""
    difference = None if group is base else paired(group, base, measure)
    if difference is None:
        return "" if group is base else "–"
    return format_pair(difference.mean, difference.deviation, f"+{measure.form}").replace("-", "−")


def _answers(runs: Sequence[FinishedRun]) -> Cell:
    """The answers of the audits of some runs, each once."""
    by_verdict = {
        run.audit.answer.verdict: run.audit.answer for run in runs if run.audit is not None
    }
    return [
        Styled(answer.verdict, f"verdict-cell wrap {answer.level}")
        for answer in by_verdict.values()
    ] or "not audited"


def _mean_text(group: RunGroup, key: str, form: Callable[[float | None], str]) -> str:
    """The mean of a cost over the runs of a group; a dash if one of them has none."""
    return form(statistics.fmean(getattr(run.last, key) for run in group.runs))


def mean_over_seeds(group: RunGroup, measure: Measure) -> str:
    """Mean and sample deviation, or a dash if a value is missing."""
    interval = over_seeds(group, measure)
    return "–" if interval is None else format_pair(interval.mean, interval.deviation, measure.form)
