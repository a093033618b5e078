"""The tables of a report: how the runs ended."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from tacit.record.history import decibels
from tacit.report.finished_run import FinalSpread, FinishedRun, Summary
from tacit.report.groups import RunGroup
from tacit.report.metric_names import metric_form, metric_title, metric_unit
from tacit.report.page import facts, format_bytes, format_duration, format_number, table, tile
from tacit.report.precision import format_alike, format_pair
from tacit.report.spending import guarantee_text
from tacit.report.statistics import Interval, paired_difference
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
    """One row per run and, if groups have several seeds, a table with one row per group."""
    summaries = [run.summary for group in groups for run in group.runs]
    columns, guarantees = _columns(summaries), any(summary.privacy for summary in summaries)
    rows = [
        [
            _marker(place) + escape(group.name_of(run)),
            *([_guarantee([run])] if guarantees else []),
            *(format_number(column.value(run.summary), column.form) for column in columns),
            format_bytes(run.summary.bytes_sent),
            format_duration(run.summary.wall_seconds),
            escape(str(run.summary.seed)),
        ]
        for place, group in enumerate(groups)
        for run in group.runs
    ]
    places = [place for place, group in enumerate(groups) for _ in group.runs]
    epsilon = ["ε"] if guarantees else []
    header = ["Run", *epsilon, *(column.name for column in columns), "Sent", "Wall time", "Seed"]
    runs = table(header, rows, "At the end of each run", places)
    if all(len(group.runs) == 1 for group in groups):
        return runs + difference_table(groups)
    columns = [column for column in columns if column.over_seeds]
    rows = [
        [
            _marker(place) + escape(group.label),
            *([_guarantee(group.runs)] if guarantees else []),
            *(_mean_over_seeds(group, column) for column in columns),
        ]
        for place, group in enumerate(groups)
    ]
    header = ["Runs", *epsilon, *(column.name for column in columns)]
    means = table(header, rows, "Mean ± standard deviation over seeds", [*range(len(groups))])
    return means + difference_table(groups) + runs


def difference_table(groups: Sequence[RunGroup]) -> str:
    """Each group minus the first one, paired by seed, with 95 % confidence intervals.

    "" if no other group shares a seed with the first.
    """
    first, rows, places = groups[0], [], []
    further = [name for group in groups for run in group.runs for name in run.summary.metrics]
    for place, group in enumerate(groups[1:], 1):
        for metric in dict.fromkeys(("accuracy", *further, "loss")):
            base, values = _by_seed(first, metric), _by_seed(group, metric)
            if shared := [seed for seed in base if seed in values]:
                found = paired_difference(
                    [values[seed] for seed in shared], [base[seed] for seed in shared]
                )
                what = escape(metric_title(metric)) + (" (points)" if metric_unit(metric) else "")
                row = [_marker(place) + escape(group.name), what, str(len(shared))]
                rows.append([*row, *_difference_cells(found, metric_form(metric))])
                places.append(place)
    header = ["Run", "Metric", "Seeds", "Difference", "95 % interval", "Reading"]
    title = f"Difference to {first.name}, paired by seed"
    return table(header, rows, title, places) if rows else ""


def _difference_cells(found: Interval, form: str) -> list[str]:
    if math.isnan(found.low):
        mean = format_number(found.mean, f"+{form}").replace("-", "−")
        return [mean, "–", "one seed: no interval" if found.count == 1 else "not finite"]
    shown = format_alike((found.mean, found.low, found.high), found.half_width, f"+{form}")
    mean, low, high = (re.sub("^-", "−", text) for text in shown)
    if not found.excludes_zero:
        reading = "not distinguishable from 0"
    else:
        reading = "higher" if found.mean > 0 else "lower"
    return [mean, f"{low} to {high}", reading]


def _by_seed(group: RunGroup, metric: str) -> dict[str, float]:
    """The mean over clients of a metric, by the seed of the run."""
    found = {}
    for summary in (run.summary for run in group.runs):
        named = {"accuracy": summary.accuracy, "loss": summary.loss, **summary.metrics}
        spread = named.get(metric)
        if spread is not None and spread.mean is not None:
            found[str(summary.seed)] = spread.mean
    return found


@dataclass(frozen=True)
class _Column:
    name: str
    value: Callable[[Summary], float | None]
    form: str
    over_seeds: bool = True


def _columns(summaries: Sequence[Summary]) -> list[_Column]:
    def final(metric: str, part: str) -> Callable[[Summary], float | None]:
        return lambda summary: getattr(getattr(summary, metric) or FinalSpread(), part)

    def further(metric: str) -> Callable[[Summary], float | None]:
        return lambda summary: summary.metrics.get(metric, FinalSpread()).mean

    def on_own_tests(metric: str) -> Callable[[Summary], float | None]:
        return lambda summary: summary.own_test.get(metric, FinalSpread()).mean

    columns = []
    if any(summary.accuracy is not None for summary in summaries):
        columns += [
            _Column("Accuracy (%)<br>mean", final("accuracy", "mean"), ".2f"),
            _Column("Accuracy (%)<br>lowest", final("accuracy", "min"), ".2f"),
            _Column("Accuracy (%)<br>highest", final("accuracy", "max"), ".2f", over_seeds=False),
            _Column("Accuracy (%)<br>of average", final("accuracy", "average_model"), ".2f"),
            _Column("Majority<br>baseline (%)", lambda s: s.baseline, ".2f"),
        ]
    for metric in dict.fromkeys(name for summary in summaries for name in summary.metrics):
        title = f"{escape(metric_title(metric))}{_in_percent(metric)}<br>mean"
        columns.append(_Column(title, further(metric), metric_form(metric)))
    for metric in dict.fromkeys(name for summary in summaries for name in summary.own_test):
        title = f"{escape(metric_title(metric))}{_in_percent(metric)},<br>own test sets"
        columns.append(_Column(title, on_own_tests(metric), metric_form(metric)))
    if any(summary.msd is not None for summary in summaries):
        columns.append(_Column("MSD (dB)", lambda s: decibels(s.msd), ".1f"))
    return [
        *columns,
        _Column("Loss<br>mean", final("loss", "mean"), ".4g"),
        _Column("Loss<br>of average", final("loss", "average_model"), ".4g", over_seeds=False),
        _Column("Consensus<br>distance", lambda s: s.consensus_distance, ".3g"),
    ]


def _in_percent(metric: str) -> str:
    return " (%)" if metric_unit(metric) else ""


def _guarantee(runs: Sequence[FinishedRun]) -> str:
    """The largest ε of some runs, or "none" if one of them has no guarantee."""
    promises = [run.summary.privacy for run in runs]
    spent = [one.spent for one in promises if one is not None and one.spent is not None]
    return guarantee_text(max(spent) if len(spent) == len(runs) else None)


def _mean_over_seeds(group: RunGroup, column: _Column) -> str:
    """Mean and sample deviation, or a dash if a value is missing."""
    values = [column.value(run.summary) for run in group.runs]
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < len(values):
        return "–"
    deviation = statistics.stdev(known) if len(known) > 1 else math.nan
    return format_pair(statistics.mean(known), deviation, column.form)


def _marker(place: int) -> str:
    colour, _, symbol = series_style(place)
    style = f"color:var({CSS_VARIABLES[colour]})"
    return f'<span class="sign" aria-hidden="true" style="{style}">{symbol}</span> '
