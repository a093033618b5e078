"""The numbers at the end of runs: names, means over seeds, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tacit.core.missing_numbers import finite_or_none
from tacit.record.history import Record, Spread, decibels
from tacit.report.finished_run import FinishedRun
from tacit.report.groups import RunGroup
from tacit.report.numbers import format_number
from tacit.report.statistics import Interval, mean_and_interval, paired_difference
from tacit.tasks.metrics.metric import describe_metric

OWN_TEST = "own_test."
MSD, EPSILON = "msd", "epsilon"


@dataclass(frozen=True)
class Measure:
    """A number at the end of a run.

    Attributes:
        column: Its name in the history, such as "accuracy.mean"; ε has none there.
        title: Its name in tables.
        form: How tables show it.
        is_metric: Whether it says how good the models are, as the mean over clients; otherwise it
            is a detail or a cost.
    """

    column: str
    title: str
    form: str
    is_metric: bool = False

    @property
    def key(self) -> str:
        """Its name in CSV files."""
        metric, _, part = self.column.rpartition(".")
        return "msd_db" if self.column == MSD else f"{metric}_{part}" if metric else part

    def value(self, run: FinishedRun) -> float | None:
        """The number of a run; None if it has none, or it is not finite."""
        if self.column == EPSILON:
            return finite_or_none(None if run.spending is None else run.spending.spent)
        number = run.last.numbers.get(self.column)
        return finite_or_none(decibels(number) if self.column == MSD else number)


def measures(runs: Sequence[FinishedRun]) -> list[Measure]:
    """The measures that some of these runs have; the first is what runs are compared by."""
    every = [
        Measure("accuracy.mean", "Accuracy (%)", ".2f", True),
        Measure(MSD, "MSD (dB)", ".1f", True),
        *map(_further_measure, _judging(runs)),
        Measure("loss.mean", "Loss", ".4g", True),
        Measure("accuracy.min", "lowest client (%)", ".2f"),
        Measure("accuracy.max", "highest client (%)", ".2f"),
        Measure("accuracy.average_model", "average model (%)", ".2f"),
        Measure("baseline", "majority baseline (%)", ".2f"),
        Measure("loss.average_model", "loss of average model", ".4g"),
        Measure("consensus_distance", "consensus distance", ".3g"),
        Measure("bytes_sent", "bytes sent", ".3g"),
        Measure(EPSILON, "ε spent", ".3g"),
    ]
    return [measure for measure in every if any(measure.value(run) is not None for run in runs)]


def _judging(runs: Sequence[FinishedRun]) -> list[str]:
    """The further metrics of some runs, but the baseline of own test sets: no run changes it."""
    names = dict.fromkeys(name for run in runs for name in further(run.last))
    return [name for name in names if name != f"{OWN_TEST}baseline"]


def measure_of(column: str, runs: Sequence[FinishedRun]) -> Measure:
    """The measure of a column of the history, such as "accuracy.mean"; MSD in decibels."""
    known = (measure for measure in measures(runs) if measure.column == column)
    return replace(next(known, Measure(column, column, ".4g")), is_metric=True)


def further(last: Record) -> dict[str, Spread]:
    """The metrics beyond accuracy and loss; those on clients' own test sets with "own_test."."""
    own = {OWN_TEST + name: spread for name, spread in last.own_test.items()}
    return {**last.metrics, **own}


def over_seeds(group: RunGroup, measure: Measure) -> Interval | None:
    """The mean over the runs of a group; None if one of them has no such number."""
    values = [measure.value(run) for run in group.runs]
    known = [value for value in values if value is not None]
    return mean_and_interval(known) if known and len(known) == len(values) else None


def paired(group: RunGroup, base: RunGroup, measure: Measure) -> Interval | None:
    """The mean difference of runs with the same seed; None if no seed has both numbers."""
    here, there = (
        {
            run.summary.seed: number
            for run in side.runs
            if (number := measure.value(run)) is not None
        }
        for side in (group, base)
    )
    seeds = [seed for seed in here if seed in there]
    if not seeds:
        return None
    return paired_difference([here[seed] for seed in seeds], [there[seed] for seed in seeds])


def paired_with_first(
    groups: Sequence[RunGroup], every: Sequence[Measure]
) -> list[tuple[int, RunGroup, Measure, Interval]]:
    """The difference of each group but the first to the first, in each metric that both have."""
    return [
        (number, group, measure, difference)
        for number, group in enumerate(groups[1:], 1)
        for measure in every
        if measure.is_metric
        if (difference := paired(group, groups[0], measure)) is not None
    ]


def _further_measure(name: str) -> Measure:
    unit = " (%)" if metric_unit(name) else ""
    return Measure(f"{name}.mean", metric_title(name) + unit, metric_form(name), True)


def metric_title(name: str) -> str:
    """A metric's name in a title, such as "AUC" or "AUC, own test sets"."""
    plain = name.removeprefix(OWN_TEST)
    title = "Majority baseline" if plain == "baseline" else describe_metric(plain).label
    return title if plain == name else f"{title}, own test sets"


def metric_unit(name: str) -> str:
    """What stands behind a metric's numbers: " %" or nothing."""
    plain = name.removeprefix(OWN_TEST)
    return " %" if plain == "baseline" else describe_metric(plain).unit


def metric_form(name: str) -> str:
    """The format of a metric's numbers."""
    return ".2f" if metric_unit(name) else ".4g"


def format_metric(value: float | None, name: str) -> str:
    """A metric's number with its unit."""
    return format_number(value, metric_form(name), metric_unit(name))


def axis_label(name: str) -> str:
    """A metric's name at an axis."""
    plain = name.removeprefix(OWN_TEST)
    return f"{plain} (%)" if metric_unit(name) else plain
