"""The numbers at the end of runs: names, means over seeds, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tacit.record.history import decibels
from tacit.report.finished_run import FinalSpread, FinishedRun, Summary
from tacit.report.groups import RunGroup
from tacit.report.statistics import Interval, mean_and_interval, paired_difference
from tacit.tasks.metrics.metric import describe_metric

CONFIDENCE = 0.95
OWN_TEST = "own_test."


@dataclass(frozen=True)
class Measure:
    """A number at the end of a run.

    Attributes:
        key: Its name in CSV files.
        title: Its name in tables.
        value: The number of a run; None if it has none.
        form: How tables show it.
        is_metric: Whether it says how good the models are, as the mean over clients; otherwise it
            is a detail or a cost.
    """

    key: str
    title: str
    value: Callable[[FinishedRun], float | None]
    form: str
    is_metric: bool = False


def measures(runs: Sequence[FinishedRun]) -> list[Measure]:
    """The measures that some of these runs have; the first is what runs are compared by."""

    def final(metric: str, part: str) -> Callable[[FinishedRun], float | None]:
        return lambda run: getattr(getattr(run.summary, metric) or FinalSpread(), part)

    def msd(run: FinishedRun) -> float | None:
        return None if run.summary.msd is None else decibels(run.summary.msd)

    def plain(key: str) -> Callable[[FinishedRun], float | None]:
        return lambda run: getattr(run.summary, key)

    further = dict.fromkeys(name for run in runs for name in _further(run.summary))
    every = [
        Measure("accuracy_mean", "Accuracy (%)", final("accuracy", "mean"), ".2f", True),
        Measure("msd_db", "MSD (dB)", msd, ".1f", True),
        *map(_further_measure, further),
        Measure("loss_mean", "Loss", final("loss", "mean"), ".4g", True),
        Measure("accuracy_min", "lowest client (%)", final("accuracy", "min"), ".2f"),
        Measure("accuracy_max", "highest client (%)", final("accuracy", "max"), ".2f"),
        Measure(
            "accuracy_average_model", "average model (%)", final("accuracy", "average_model"), ".2f"
        ),
        Measure("baseline", "majority baseline (%)", plain("baseline"), ".2f"),
        Measure(
            "loss_average_model", "loss of average model", final("loss", "average_model"), ".4g"
        ),
        Measure("consensus_distance", "consensus distance", plain("consensus_distance"), ".3g"),
        Measure("bytes_sent", "bytes sent", plain("bytes_sent"), ".3g"),
        Measure("epsilon", "ε spent", _epsilon, ".3g"),
    ]
    return [measure for measure in every if any(measure.value(run) is not None for run in runs)]


def measure_of(column: str, runs: Sequence[FinishedRun]) -> Measure:
    """The measure of a column of the history, such as "accuracy.mean"; MSD in decibels."""
    metric, _, part = column.rpartition(".")
    key = "msd_db" if column == "msd" else f"{metric}_{part}" if metric else part
    known = next((measure for measure in measures(runs) if measure.key == key), None)

    def last(run: FinishedRun) -> float | None:
        return run.history[-1].value(column) if run.history else None

    if known is not None:
        return replace(known, is_metric=True)
    return Measure(key, column, last, ".4g", True)


def over_seeds(
    group: RunGroup, measure: Measure, confidence: float = CONFIDENCE
) -> Interval | None:
    """The mean over the runs of a group; None if one of them has no such number."""
    values = [measure.value(run) for run in group.runs]
    known = [value for value in values if value is not None and math.isfinite(value)]
    return mean_and_interval(known, confidence) if len(known) == len(values) else None


def paired(
    group: RunGroup, base: RunGroup, measure: Measure, confidence: float = CONFIDENCE
) -> Interval | None:
    """The mean difference of runs with the same seed; None if no seed has both numbers."""
    own, other = (
        {
            run.summary.seed: value
            for run in side.runs
            if (value := measure.value(run)) is not None and math.isfinite(value)
        }
        for side in (group, base)
    )
    seeds = [seed for seed in own if seed in other]
    if not seeds:
        return None
    return paired_difference([own[s] for s in seeds], [other[s] for s in seeds], confidence)


def paired_with_first(
    groups: Sequence[RunGroup], every: Sequence[Measure], confidence: float = CONFIDENCE
) -> list[tuple[int, RunGroup, Measure, Interval]]:
    """The difference of each group but the first to the first, in each metric that both have."""
    return [
        (number, group, measure, found)
        for number, group in enumerate(groups[1:], 1)
        for measure in every
        if measure.is_metric
        if (found := paired(group, groups[0], measure, confidence)) is not None
    ]


def _further(summary: Summary) -> list[str]:
    """The names of further metrics; those on clients' own test sets start with "own_test."."""
    # The baseline of a client's own test set does not depend on the run.
    own = (OWN_TEST + name for name in summary.own_test if name != "baseline")
    return [*summary.metrics, *own]


def _further_measure(name: str) -> Measure:
    plain = name.removeprefix(OWN_TEST)

    def value(run: FinishedRun) -> float | None:
        known = run.summary.metrics if name == plain else run.summary.own_test
        return known.get(plain, FinalSpread()).mean

    unit = " (%)" if metric_unit(name) else ""
    return Measure(f"{name}_mean", metric_title(name) + unit, value, metric_form(name), True)


def _epsilon(run: FinishedRun) -> float | None:
    return None if run.summary.privacy is None else run.summary.privacy.spent


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


def axis_label(name: str) -> str:
    """A metric's name at an axis."""
    plain = name.removeprefix(OWN_TEST)
    return f"{plain} (%)" if metric_unit(name) else plain
