"""The tables of a report: how the runs ended."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from tacit.record.history import decibels
from tacit.report.finished_run import FinalSpread, FinishedRun, Summary
from tacit.report.groups import RunGroup, run_name
from tacit.report.page import amount, duration, facts, number, table, tile
from tacit.report.style import VARIABLES, series_style


def of_one_run(run: FinishedRun) -> str:
    """The outcome of a run: large numbers, then all of them."""
    done, none = run.summary, FinalSpread()
    accuracy, loss = done.accuracy or none, done.loss or none
    tiles = []
    if done.accuracy is not None:
        spread = (
            f"clients from {number(accuracy.min, '.2f')} to {number(accuracy.max, '.2f', ' %')}"
        )
        tiles.append(
            tile("Accuracy, mean over clients", number(accuracy.mean, ".2f", " %"), spread)
        )
        tiles.append(
            tile("Accuracy of the average model", number(accuracy.average_model, ".2f", " %"))
        )
    else:
        if done.msd is not None:
            tiles.append(tile("Mean-square deviation", number(decibels(done.msd), ".1f", " dB")))
        spread = f"clients from {number(loss.min)} to {number(loss.max)}"
        tiles.append(tile("Loss, mean over clients", number(loss.mean), spread))
        tiles.append(tile("Loss of the average model", number(loss.average_model)))
    each = done.bytes_sent / max(1, done.clients) if done.bytes_sent is not None else None
    tiles.append(tile("Sent by all clients", amount(done.bytes_sent), f"{amount(each)} per client"))
    tiles.append(tile("Wall time", duration(done.wall_seconds), f"{done.rounds:,} rounds"))
    header = ["At the end", "mean over clients", "lowest client", "highest client", "average model"]
    rows = [["Loss", *_spread(loss, ".4g")]]
    if done.accuracy is not None:
        rows.insert(0, ["Accuracy", *_spread(accuracy, ".2f", " %")])
    about = [
        ("Algorithm", done.algorithm),
        ("Clients", f"{done.clients:,}"),
        ("Parameters", f"{done.parameters:,}"),
        ("Rounds", f"{done.rounds:,}"),
        ("Steps", f"{done.steps:,}"),
        ("Consensus distance", number(done.consensus_distance)),
        ("Bytes sent", number(done.bytes_sent, ",.0f")),
        ("Seed", str(done.seed)),
    ]
    if done.msd is not None:
        about.insert(-2, ("Mean-square deviation", number(done.msd)))
    return f'<dl class="tiles">{"".join(tiles)}</dl>\n' + table(header, rows) + facts(about)


def _spread(spread: FinalSpread, form: str, unit: str = "") -> list[str]:
    return [
        number(part, form, unit)
        for part in (spread.mean, spread.min, spread.max, spread.average_model)
    ]


def of_several_runs(groups: Sequence[RunGroup]) -> str:
    """One row per run and, where runs differ in seeds only, one per group before."""
    summaries = [run.summary for group in groups for run in group.runs]
    columns = _columns(
        with_accuracy=any(done.accuracy is not None for done in summaries),
        with_deviation=any(done.msd is not None for done in summaries),
    )
    rows = [
        [
            _sign(place) + escape(run_name(group, run)),
            *(number(column.of(run.summary), column.form) for column in columns),
            amount(run.summary.bytes_sent),
            duration(run.summary.wall_seconds),
            escape(str(run.summary.seed)),
        ]
        for place, group in enumerate(groups)
        for run in group.runs
    ]
    names = [column.name for column in columns]
    each = table(["Run", *names, "Sent", "Wall time", "Seed"], rows, "At the end of each run")
    if all(len(group.runs) == 1 for group in groups):
        return each
    chief = [column for column in columns if column.chief]
    rows = [
        [
            _sign(place) + escape(group.label),
            *(
                _over_seeds([column.of(run.summary) for run in group.runs], column.form)
                for column in chief
            ),
        ]
        for place, group in enumerate(groups)
    ]
    header = ["Runs", *(column.name for column in chief)]
    return table(header, rows, "Mean ± standard deviation over seeds") + each


@dataclass(frozen=True)
class _Column:
    name: str
    of: Callable[[Summary], float | None]
    form: str
    chief: bool = True  # worth a column over the seeds


def _columns(with_accuracy: bool, with_deviation: bool) -> list[_Column]:
    none = FinalSpread()
    accuracy = [
        _Column("Accuracy (%)<br>mean", lambda done: (done.accuracy or none).mean, ".2f"),
        _Column("<br>lowest", lambda done: (done.accuracy or none).min, ".2f"),
        _Column("<br>highest", lambda done: (done.accuracy or none).max, ".2f", chief=False),
        _Column("of average<br>model", lambda done: (done.accuracy or none).average_model, ".2f"),
    ]
    deviation = [_Column("MSD (dB)", lambda done: decibels(done.msd), ".1f")]
    others = [
        _Column("Loss<br>mean", lambda done: (done.loss or none).mean, ".4g"),
        _Column(
            "of average<br>model",
            lambda done: (done.loss or none).average_model,
            ".4g",
            chief=False,
        ),
        _Column("Consensus<br>distance", lambda done: done.consensus_distance, ".3g"),
    ]
    return accuracy * with_accuracy + deviation * with_deviation + others


def _over_seeds(values: Sequence[float | None], form: str) -> str:
    """Mean and sample deviation, or a dash where a value is missing."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < len(values):
        return "–"
    deviation = f" ± {statistics.stdev(known):#.2g}".rstrip(".") if len(known) > 1 else ""
    return number(statistics.mean(known), form) + deviation


def _sign(place: int) -> str:
    colour, _, sign = series_style(place)
    return f'<span class="sign" aria-hidden="true" style="color:var({VARIABLES[colour]})">{sign}</span> '
