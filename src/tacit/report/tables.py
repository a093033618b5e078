"""The tables of a report: how the runs ended."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from tacit.record.history import decibels
from tacit.report.finished_run import FinalSpread, FinishedRun, Summary
from tacit.report.groups import RunGroup
from tacit.report.metric_names import metric_title, metric_unit
from tacit.report.page import facts, format_bytes, format_duration, format_number, table, tile
from tacit.report.spending import guarantee_text
from tacit.report.style import CSS_VARIABLES, series_style


def run_summary(run: FinishedRun) -> str:
    """The result of one run: large numbers, then all of them."""
    summary = run.summary
    name, cells = "Loss", _cells(summary.loss, ".4g")
    rows, tiles = [[name, *cells]], []
    if summary.accuracy is not None:
        name, cells = "Accuracy", _cells(summary.accuracy, ".2f", " %")
        rows.insert(0, [name, *cells])
    elif summary.msd is not None:
        msd = format_number(decibels(summary.msd), ".1f", " dB")
        tiles.append(tile("Mean-square deviation", msd))
    mean, low, high, average = cells
    ends = f"clients from {low.removesuffix(' %')} to {high}"
    tiles.append(tile(f"{name}, mean over clients", mean, ends))
    tiles.append(tile(f"{name} of the average model", average))
    if summary.baseline is not None:
        baseline = format_number(summary.baseline, ".2f", " %")
        rows.insert(1, ["Majority baseline", *[baseline] * 4])
        every = "the most frequent class for every sample"
        tiles.insert(1, tile("Majority baseline", baseline, every))
    for metric, spread in summary.metrics.items():
        rows.append([escape(metric_title(metric)), *_cells(spread, ".4g", metric_unit(metric))])
    for metric, spread in summary.own_test.items():
        title = escape(metric_title(f"own_test.{metric}"))
        rows.append([title, *_cells(spread, ".4g", metric_unit(metric))])
    sent = summary.bytes_sent
    each = format_bytes(None if sent is None else sent / max(1, summary.clients))
    rounds = f"{summary.rounds:,}"
    tiles.append(tile("Sent by all clients", format_bytes(sent), f"{each} per client"))
    tiles.append(tile("Wall time", format_duration(summary.wall_seconds), f"{rounds} rounds"))
    header = ["At the end", "mean over clients", "lowest client", "highest client", "average model"]
    values = {
        "Algorithm": summary.algorithm,
        "Clients": f"{summary.clients:,}",
        "Parameters": f"{summary.parameters:,}",
        "Rounds": rounds,
        "Steps": f"{summary.steps:,}",
        "Consensus distance": format_number(summary.consensus_distance),
        "Mean-square deviation": format_number(summary.msd),
        "Bytes sent": format_number(sent, ",.0f"),
        "Seed": str(summary.seed),
    }
    if summary.msd is None:
        del values["Mean-square deviation"]
    return f'<dl class="tiles">{"".join(tiles)}</dl>\n' + table(header, rows) + facts(values)


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
    epsilon = ["ε"] if guarantees else []
    header = ["Run", *epsilon, *(column.name for column in columns), "Sent", "Wall time", "Seed"]
    runs = table(header, rows, "At the end of each run")
    if all(len(group.runs) == 1 for group in groups):
        return runs
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
    return table(header, rows, "Mean ± standard deviation over seeds") + runs


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
            _Column("<br>lowest", final("accuracy", "min"), ".2f"),
            _Column("<br>highest", final("accuracy", "max"), ".2f", over_seeds=False),
            _Column("of average<br>model", final("accuracy", "average_model"), ".2f"),
            _Column("Majority<br>baseline (%)", lambda s: s.baseline, ".2f"),
        ]
    for metric in dict.fromkeys(name for summary in summaries for name in summary.metrics):
        columns.append(_Column(f"{escape(metric_title(metric))}<br>mean", further(metric), ".4g"))
    for metric in dict.fromkeys(name for summary in summaries for name in summary.own_test):
        title = escape(metric_title(f"own_test.{metric}")).replace(", ", ",<br>", 1)
        columns.append(_Column(title, on_own_tests(metric), ".4g"))
    if any(summary.msd is not None for summary in summaries):
        columns.append(_Column("MSD (dB)", lambda s: decibels(s.msd), ".1f"))
    return [
        *columns,
        _Column("Loss<br>mean", final("loss", "mean"), ".4g"),
        _Column("of average<br>model", final("loss", "average_model"), ".4g", over_seeds=False),
        _Column("Consensus<br>distance", lambda s: s.consensus_distance, ".3g"),
    ]


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
    deviation = f" ± {statistics.stdev(known):#.2g}".rstrip(".") if len(known) > 1 else ""
    return format_number(statistics.mean(known), column.form) + deviation


def _marker(place: int) -> str:
    colour, _, symbol = series_style(place)
    style = f"color:var({CSS_VARIABLES[colour]})"
    return f'<span class="sign" aria-hidden="true" style="{style}">{symbol}</span> '
