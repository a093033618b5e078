"""The tables of a report: how the runs ended."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from html import escape

from tacit.experiment.finished import FinalSpread, FinishedRun, Summary
from tacit.experiment.overlay import Group, run_name
from tacit.experiment.page import amount, duration, number, table, tile
from tacit.experiment.style import VARIABLES, look


def of_one_run(run: FinishedRun) -> str:
    """The outcome of a run: large numbers, then all of them."""
    done, none = run.summary, FinalSpread()
    accuracy, loss = done.accuracy or none, done.loss or none
    tiles = []
    if done.accuracy is not None:
        spread = f"clients from {number(accuracy.min, '.2f')} to {number(accuracy.max, '.2f', ' %')}"
        tiles.append(tile("Accuracy, mean over clients", number(accuracy.mean, ".2f", " %"), spread))
        tiles.append(tile("Accuracy of the average model", number(accuracy.average_model, ".2f", " %")))
    else:
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
    facts = [
        ["Algorithm", escape(done.algorithm)], ["Clients", f"{done.clients:,}"],
        ["Parameters of the model", f"{done.parameters:,}"], ["Rounds", f"{done.rounds:,}"],
        ["Steps", f"{done.steps:,}"], ["Consensus distance", number(done.consensus_distance)],
        ["Bytes sent", f"{amount(done.bytes_sent)} ({number(done.bytes_sent, ',.0f')})"],
        ["Wall time", duration(done.wall_seconds)], ["Seed", escape(str(done.seed))],
    ]  # fmt: skip
    return f'<dl class="tiles">{"".join(tiles)}</dl>\n' + table(header, rows) + table([], facts, words=2)


def _spread(spread: FinalSpread, form: str, unit: str = "") -> list[str]:
    return [number(part, form, unit) for part in (spread.mean, spread.min, spread.max, spread.average_model)]


def of_several_runs(groups: Sequence[Group]) -> str:
    """One row per run and, where runs differ in seeds only, one per group before."""
    with_accuracy = any(run.summary.accuracy is not None for group in groups for run in group.runs)
    header = ["Run", *["mean", "lowest", "highest", "average model"] * with_accuracy]
    header[1 : 5 * with_accuracy] = [f"Accuracy<br>{kind}" for kind in header[1 : 5 * with_accuracy]]
    header += ["Loss<br>mean", "Loss<br>average model", "Consensus<br>distance", "Sent", "Wall time", "Seed"]
    rows = []
    for place, group in enumerate(groups):
        for run in group.runs:
            done, loss = run.summary, run.summary.loss or FinalSpread()
            rows.append([
                _sign(place) + escape(run_name(group, run)),
                *(_spread(done.accuracy or FinalSpread(), ".2f", " %") if with_accuracy else []),
                number(loss.mean), number(loss.average_model), number(done.consensus_distance, ".3g"),
                amount(done.bytes_sent), duration(done.wall_seconds), escape(str(done.seed)),
            ])  # fmt: skip
    html = table(header, rows, "At the end of each run")
    if any(len(group.runs) > 1 for group in groups):
        html = _over_seeds(groups, with_accuracy) + html
    return html


def _over_seeds(groups: Sequence[Group], with_accuracy: bool) -> str:
    none = FinalSpread()
    columns: list[tuple[str, Callable[[Summary], float | None], str, str]] = [
        ("Loss<br>mean", lambda done: (done.loss or none).mean, ".4g", ""),
        ("Consensus<br>distance", lambda done: done.consensus_distance, ".3g", ""),
    ]
    if with_accuracy:
        columns[:0] = [
            ("Accuracy<br>mean", lambda done: (done.accuracy or none).mean, ".2f", " %"),
            ("Accuracy<br>lowest client", lambda done: (done.accuracy or none).min, ".2f", " %"),
            ("Accuracy<br>average model", lambda done: (done.accuracy or none).average_model, ".2f", " %"),
        ]
    rows = []
    for place, group in enumerate(groups):
        cells = []
        for _, value, form, unit in columns:
            values = [value(run.summary) for run in group.runs]
            known = [one for one in values if one is not None]
            if len(known) < len(values):
                cells.append("–")
                continue
            deviation = f" ± {statistics.stdev(known):{form}}" if len(known) > 1 else ""
            cells.append(f"{statistics.mean(known):{form}}{deviation}{unit}")
        rows.append([_sign(place) + escape(group.label), *cells])
    header = ["Over the seeds", *(column[0] for column in columns)]
    return table(header, rows, "Mean ± standard deviation over seeds")


def _sign(place: int) -> str:
    colour, _, sign = look(place)
    return f'<span class="sign" aria-hidden="true" style="color:var({VARIABLES[colour]})">{sign}</span> '
