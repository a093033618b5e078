"""The tables of a report: how the runs ended."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence

from markupsafe import Markup

from tacit.record.history import decibels
from tacit.report.finished_run import FinalSpread, FinishedRun
from tacit.report.groups import RunGroup, runs_of
from tacit.report.measures import (
    OWN_TEST,
    Measure,
    measures,
    metric_form,
    metric_title,
    metric_unit,
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
from tacit.report.page import Cell, Styled, Table, Tile, show
from tacit.report.rendering import render
from tacit.report.spending import guarantee_text
from tacit.report.statistics import Interval


def run_tiles(run: FinishedRun) -> list[Tile]:
    """The result of one run in large numbers."""
    summary = run.summary
    name, spread, form, unit = "Loss", summary.loss, ".4g", ""
    tiles = []
    if summary.accuracy is not None:
        name, spread, form, unit = "Accuracy", summary.accuracy, ".2f", " %"
    elif summary.msd is not None:
        msd = format_number(decibels(summary.msd), ".1f", " dB")
        tiles.append(Tile("Mean-square deviation", msd))
    if spread is not None:
        tiles.append(_spread_tile(f"{name}, mean over clients", spread, form, unit))
    if summary.baseline is not None:
        baseline = format_number(summary.baseline, ".2f", " %")
        every = "the most frequent class for every sample"
        tiles.insert(1, Tile("Majority baseline", baseline, every))
    if spread is not None:
        tiles.append(Tile(f"{name} of the average model", _cells(spread, form, unit)[-1]))
    for metric, spread in summary.metrics.items():
        form, unit = metric_form(metric), metric_unit(metric)
        tiles.append(_spread_tile(metric_title(metric), spread, form, unit))
    sent = summary.bytes_sent
    each = format_bytes(None if sent is None else sent / max(1, summary.clients))
    tiles.append(Tile("Sent by all clients", format_bytes(sent), f"{each} per client"))
    rounds = f"{summary.rounds:,} rounds"
    return [*tiles, Tile("Wall time", format_duration(summary.wall_seconds), rounds)]


def _spread_tile(name: str, spread: FinalSpread | None, form: str, unit: str) -> Tile:
    mean, low, high, _ = _cells(spread, form, unit)
    return Tile(name, mean, f"clients from {low.removesuffix(' %')} to {high}")


def run_numbers(run: FinishedRun) -> Markup:
    """All numbers of one run."""
    summary = run.summary
    rows = [] if summary.loss is None else [["Loss", *_cells(summary.loss, ".4g")]]
    if summary.accuracy is not None:
        rows.insert(0, ["Accuracy", *_cells(summary.accuracy, ".2f", " %")])
    if summary.baseline is not None:
        baseline = format_number(summary.baseline, ".2f", " %")
        rows.insert(1, ["Majority baseline", *[baseline] * 4])
    further = summary.metrics | {
        f"{OWN_TEST}{metric}": spread for metric, spread in summary.own_test.items()
    }
    for metric, spread in further.items():
        cells = _cells(spread, metric_form(metric), metric_unit(metric))
        rows.append([metric_title(metric), *cells])
    header = ["At the end", "mean over clients", "lowest client", "highest client", "average model"]
    values = {
        "Algorithm": summary.algorithm,
        "Clients": f"{summary.clients:,}",
        "Parameters": format_number(summary.parameters, ",d"),
        "Rounds": f"{summary.rounds:,}",
        "Steps": f"{summary.steps:,}",
        "Consensus distance": format_number(summary.consensus_distance),
        "Mean-square deviation": format_number(summary.msd),
        "Bytes sent": format_number(summary.bytes_sent, ",.0f"),
        "Seed": str(summary.seed),
    }
    if summary.msd is None:
        del values["Mean-square deviation"]
    return show(Table(header, rows), values)


def _cells(spread: FinalSpread | None, form: str, unit: str = "") -> list[str]:
    spread = spread or FinalSpread()
    parts = (spread.mean, spread.min, spread.max, spread.average_model)
    return [format_number(part, form, unit) for part in parts]


def comparison(groups: Sequence[RunGroup]) -> Markup:
    """The differences of all metrics; then all numbers of groups and runs, folded."""
    runs = runs_of(groups)
    every = measures(runs)
    shown = [measure for measure in every if measure.key != "bytes_sent"]
    means = None
    if len(runs) > len(groups):
        rows = [
            [group.label, *(_mean_over_seeds(group, measure) for measure in shown)]
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
            format_bytes(run.summary.bytes_sent),
            format_duration(run.summary.wall_seconds),
            *([str(run.summary.seed)] if seeds else []),
        ]
        for group in groups
        for run in group.runs
    ]
    series = [place for place, group in enumerate(groups) for _ in group.runs]
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
    rows = [[group.label, *(column(group) for column in columns.values())] for group in groups]
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
        columns[metric.title] = lambda group: _mean_over_seeds(group, metric)
        if any(paired(group, groups[0], metric) is not None for group in groups[1:]):
            columns["Difference"] = lambda group: _difference(group, groups[0], metric)
    if any(run.audit is not None for run in runs):
        columns["Safe to take part?"] = lambda group: _answers(group.runs)
    if any(run.summary.privacy for run in runs):
        columns["ε"] = lambda group: guarantee_text(group.epsilon)
    columns["Sent"] = lambda group: _mean_text(group, "bytes_sent", format_bytes)
    columns["Wall time"] = lambda group: _mean_text(group, "wall_seconds", format_duration)
    return columns


def difference_table(groups: Sequence[RunGroup], every: Sequence[Measure]) -> Table:
    """Each group minus the first one, paired by seed, with 95 % confidence intervals.

    It has no rows if no other group shares a seed with the first.
    """
    rows, series = [], []
    for place, group, measure, found in paired_with_first(groups, every):
        name = measure.title.replace("(%)", "(points)")
        cells = _difference_cells(found, measure.form)
        rows.append([group.name, name, str(found.count), *cells])
        series.append(place)
    header = ["Run", "Metric", "Seeds", "Difference", "95 % interval", "Reading"]
    return Table(header, rows, f"Difference to {groups[0].name}, paired by seed", series)


def _difference_cells(found: Interval, form: str) -> list[str]:
    mean, *ends = (re.sub("^-", "−", text) for text in format_difference(found, form))
    if not ends:
        why = "deviation over seeds is zero" if found.is_constant else "one seed"
        return [mean, "–", f"{why}: no interval"]
    if not found.excludes_zero:
        reading = "not distinguishable from 0"
    else:
        reading = "higher" if found.mean > 0 else "lower"
    return [mean, " to ".join(ends), reading]


def _difference(group: RunGroup, base: RunGroup, measure: Measure) -> str:
    """The paired difference, mean ± deviation; nothing for the group that others differ from."""
    found = None if group is base else paired(group, base, measure)
    if found is None:
        return "" if group is base else "–"
    return format_pair(found.mean, found.deviation, f"+{measure.form}").replace("-", "−")


def _answers(runs: Sequence[FinishedRun]) -> Cell:
    """The answers of the audits of some runs, each once."""
    found = {run.audit.answer.verdict: run.audit.answer for run in runs if run.audit is not None}
    return [
        Styled(answer.verdict, f"verdict-cell wrap {answer.level}") for answer in found.values()
    ] or "not audited"


def _mean_text(group: RunGroup, key: str, form: Callable[[float | None], str]) -> str:
    """The mean of a cost over the runs of a group; a dash if one of them has none."""
    values = [getattr(run.summary, key) for run in group.runs]
    return form(None if None in values else statistics.fmean(values))


def _mean_over_seeds(group: RunGroup, measure: Measure) -> str:
    """Mean and sample deviation, or a dash if a value is missing."""
    found = over_seeds(group, measure)
    return "–" if found is None else format_pair(found.mean, found.deviation, measure.form)
