"""The tables of a report: how the runs ended."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from html import escape

from tacit.record.history import decibels
from tacit.report.finished_run import FinalSpread, FinishedRun
from tacit.report.groups import RunGroup
from tacit.report.measures import Measure, measures, over_seeds, paired
from tacit.report.metric_names import metric_form, metric_title, metric_unit
from tacit.report.page import (
    collapsible,
    facts,
    format_bytes,
    format_duration,
    format_number,
    table,
    tile,
)
from tacit.report.precision import format_alike, format_pair
from tacit.report.spending import guarantee_text
from tacit.report.statistics import Interval
from tacit.report.style import CSS_VARIABLES, series_style


def run_tiles(run: FinishedRun) -> str:
    """The result of one run in large numbers."""
    summary = run.summary
    name, cells, tiles = "Loss", _cells(summary.loss, ".4g"), []
    if summary.accuracy is not None:
        name, cells = "Accuracy", _cells(summary.accuracy, ".2f", " %")
    elif summary.msd is not None:
        msd = format_number(decibels(summary.msd), ".1f", " dB")
        tiles.append(tile("Mean-square deviation", msd))
    mean, low, high, average = cells
    ends = f"clients from {low.removesuffix(' %')} to {high}"
    tiles.append(tile(f"{name}, mean over clients", mean, ends))
    tiles.append(tile(f"{name} of the average model", average))
    if summary.baseline is not None:
        baseline = format_number(summary.baseline, ".2f", " %")
        every = "the most frequent class for every sample"
        tiles.insert(1, tile("Majority baseline", baseline, every))
    for metric, spread in summary.metrics.items():
        mean, low, high, _ = _cells(spread, metric_form(metric), metric_unit(metric))
        ends = f"clients from {low.removesuffix(' %')} to {high}"
        tiles.append(tile(escape(metric_title(metric)), mean, ends))
    sent = summary.bytes_sent
    each = format_bytes(None if sent is None else sent / max(1, summary.clients))
    tiles.append(tile("Sent by all clients", format_bytes(sent), f"{each} per client"))
    rounds = f"{summary.rounds:,} rounds"
    tiles.append(tile("Wall time", format_duration(summary.wall_seconds), rounds))
    return f'<dl class="tiles">{"".join(tiles)}</dl>\n'


def run_table(run: FinishedRun) -> str:
    """All numbers of one run."""
    summary = run.summary
    rows = [["Loss", *_cells(summary.loss, ".4g")]]
    if summary.accuracy is not None:
        rows.insert(0, ["Accuracy", *_cells(summary.accuracy, ".2f", " %")])
    if summary.baseline is not None:
        baseline = format_number(summary.baseline, ".2f", " %")
        rows.insert(1, ["Majority baseline", *[baseline] * 4])
    for metric, spread in summary.metrics.items():
        form, unit = metric_form(metric), metric_unit(metric)
        rows.append([escape(metric_title(metric)), *_cells(spread, form, unit)])
    for metric, spread in summary.own_test.items():
        title = escape(metric_title(f"own_test.{metric}"))
        rows.append([title, *_cells(spread, metric_form(metric), metric_unit(metric))])
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
    return table(header, rows) + facts(values)


def run_choice(groups: Sequence[RunGroup]) -> str:
    """Boxes that hide or show runs, for the page's script; "" if there is one run only."""
    if len(groups) < 2:
        return ""
    boxes = "".join(
        f'<label><input type="checkbox" checked name="{escape(group.label)}" value="{place}"> '
        f"{_marker(place)}{escape(group.label)}</label>"
        for place, group in enumerate(groups)
    )
    return f'<fieldset class="runs" hidden><legend>Show</legend>{boxes}</fieldset>\n'


def _cells(spread: FinalSpread | None, form: str, unit: str = "") -> list[str]:
    spread = spread or FinalSpread()
    parts = (spread.mean, spread.min, spread.max, spread.average_model)
    return [format_number(part, form, unit) for part in parts]


def comparison_tables(groups: Sequence[RunGroup]) -> str:
    """The differences of all metrics; then all numbers of groups and runs, folded."""
    runs = [run for group in groups for run in group.runs]
    every = measures(runs)
    html = difference_table(groups, every)
    shown = [one for one in every if one.key != "bytes_sent"]
    titles = [escape(one.title) for one in shown]
    if len(runs) > len(groups):
        rows = [
            [title, *(_mean_over_seeds(group, one) for group in groups)]
            for title, one in zip(titles, shown, strict=True)
        ]
        header = ["", *(_marker(place) + escape(one.label) for place, one in enumerate(groups))]
        means = table(header, rows, "Mean ± standard deviation over seeds")
        html += collapsible("All means over seeds", means)
    # The names of runs of one group have their seeds.
    seeds = ["Seed"] if any(len(group.runs) == 1 for group in groups) else []
    rows = [
        [
            _marker(place) + escape(group.name_of(run)),
            *(format_number(one.value(run.summary), one.form) for one in shown),
            format_bytes(run.summary.bytes_sent),
            format_duration(run.summary.wall_seconds),
            *([escape(str(run.summary.seed))] if seeds else []),
        ]
        for place, group in enumerate(groups)
        for run in group.runs
    ]
    places = [place for place, group in enumerate(groups) for _ in group.runs]
    header = ["Run", *titles, "Sent", "Wall time", *seeds]
    return html + collapsible("Each run", table(header, rows, "At the end of each run", places))


def overview_table(groups: Sequence[RunGroup]) -> str:
    """A row per group: the first metric and its difference, what leaks, ε, bytes and time."""
    runs = [run for group in groups for run in group.runs]
    every = measures(runs)
    columns: dict[str, Callable[[RunGroup], str]] = {}
    if metrics := [one for one in every if one.is_metric]:
        first = metrics[0]
        columns[escape(first.title)] = lambda group: _mean_over_seeds(group, first)
        if any(_is_paired(group, groups[0]) for group in groups[1:]):
            columns["Difference"] = lambda group: _difference(group, groups[0], first)
    if any(run.audit is not None for run in runs):
        columns["Safe to take part?"] = lambda group: _answers(group.runs)
    if any(run.summary.privacy for run in runs):
        columns["ε"] = lambda group: _guarantee(group.runs)
    columns["Sent"] = lambda group: _mean_text(group, "bytes_sent", format_bytes)
    columns["Wall time"] = lambda group: _mean_text(group, "wall_seconds", format_duration)
    rows = [
        [_marker(place) + escape(group.label), *(column(group) for column in columns.values())]
        for place, group in enumerate(groups)
    ]
    several = len(runs) > len(groups)
    title = "At the end: mean ± standard deviation over seeds" if several else "At the end"
    return table(["Run", *columns], rows, title, [*range(len(groups))])


def difference_table(groups: Sequence[RunGroup], every: Sequence[Measure]) -> str:
    """Each group minus the first one, paired by seed, with 95 % confidence intervals.

    "" if no other group shares a seed with the first.
    """
    first, rows, places = groups[0], [], []
    for place, group in enumerate(groups[1:], 1):
        for one in every:
            found = paired(group, first, one) if one.is_metric else None
            if found is not None:
                name = escape(one.title.replace("(%)", "(points)"))
                row = [_marker(place) + escape(group.name), name, str(found.count)]
                rows.append([*row, *_difference_cells(found, one.form)])
                places.append(place)
    header = ["Run", "Metric", "Seeds", "Difference", "95 % interval", "Reading"]
    title = f"Difference to {first.name}, paired by seed"
    return table(header, rows, title, places) if rows else ""


def _difference_cells(found: Interval, form: str) -> list[str]:
    if math.isnan(found.low):
        mean = format_number(found.mean, f"+{form}").replace("-", "−")
        if found.is_constant:
            return [mean, "–", "deviation over seeds is zero: no interval"]
        return [mean, "–", "one seed: no interval"]
    shown = format_alike((found.mean, found.low, found.high), found.half_width, f"+{form}")
    mean, low, high = (re.sub("^-", "−", text) for text in shown)
    if not found.excludes_zero:
        reading = "not distinguishable from 0"
    else:
        reading = "higher" if found.mean > 0 else "lower"
    return [mean, f"{low} to {high}", reading]


def _is_paired(group: RunGroup, base: RunGroup) -> bool:
    """Whether the groups share a seed."""
    seeds = {run.summary.seed for run in base.runs}
    return any(run.summary.seed in seeds for run in group.runs)


def _difference(group: RunGroup, base: RunGroup, measure: Measure) -> str:
    """The paired difference, mean ± deviation; nothing for the group that others differ from."""
    found = None if group is base else paired(group, base, measure)
    if found is None:
        return "" if group is base else "–"
    return format_pair(found.mean, found.deviation, f"+{measure.form}").replace("-", "−")


def _answers(runs: Sequence[FinishedRun]) -> str:
    """The answers of the audits of some runs, each once."""
    found = {run.audit.answer.verdict: run.audit.answer for run in runs if run.audit is not None}
    cells = [
        f'<span class="verdict-cell wrap {one.level}">{escape(one.verdict)}</span>'
        for one in found.values()
    ]
    return "<br>".join(cells) or "not audited"


def _mean_text(group: RunGroup, key: str, form: Callable[[float | None], str]) -> str:
    """The mean of a cost over the runs of a group; a dash if one of them has none."""
    values = [getattr(run.summary, key) for run in group.runs]
    return form(None if None in values else statistics.fmean(values))


def _guarantee(runs: Sequence[FinishedRun]) -> str:
    """The largest ε of some runs, or "none" if one of them has no guarantee."""
    promises = [run.summary.privacy for run in runs]
    spent = [one.spent for one in promises if one is not None and one.spent is not None]
    return guarantee_text(max(spent) if len(spent) == len(runs) else None)


def _mean_over_seeds(group: RunGroup, measure: Measure) -> str:
    """Mean and sample deviation, or a dash if a value is missing."""
    found = over_seeds(group, measure)
    return "–" if found is None else format_pair(found.mean, found.deviation, measure.form)


def _marker(place: int) -> str:
    colour, _, symbol = series_style(place)
    style = f"color:var({CSS_VARIABLES[colour]})"
    return f'<span class="sign" aria-hidden="true" style="{style}">{symbol}</span> '
