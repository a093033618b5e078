"""Tables of runs for papers: every run, means over seeds and paired differences; CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.record.history import decibels
from tacit.report.finished_run import FinalSpread, FinishedRun, Summary
from tacit.report.groups import RunGroup
from tacit.report.metric_names import metric_form, metric_title, metric_unit
from tacit.report.precision import format_alike, format_pair
from tacit.report.statistics import Interval, mean_and_interval, paired_difference

CONFIDENCE = 0.95
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "±": r"$\pm$",
    "−": r"$-$",
    "∞": r"$\infty$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


@dataclass(frozen=True)
class Measure:
    """A number at the end of a run.

    Attributes:
        key: Its name in CSV files.
        title: Its name in LaTeX tables.
        value: The number of a run; None if it has none.
        form: How LaTeX tables show it.
    """

    key: str
    title: str
    value: Callable[[Summary], float | None]
    form: str


def measures(runs: Sequence[FinishedRun]) -> list[Measure]:
    """The measures that some of these runs have; the first is what runs are compared by."""

    def final(metric: str, part: str) -> Callable[[Summary], float | None]:
        return lambda summary: getattr(getattr(summary, metric) or FinalSpread(), part)

    def msd(summary: Summary) -> float | None:
        return None if summary.msd is None else decibels(summary.msd)

    def further(metric: str) -> Measure:
        title = metric_title(metric) + (" (%)" if metric_unit(metric) else "")

        def mean(summary: Summary) -> float | None:
            return summary.metrics.get(metric, FinalSpread()).mean

        return Measure(f"{metric}_mean", title, mean, metric_form(metric))

    every = [
        Measure("accuracy_mean", "accuracy (%)", final("accuracy", "mean"), ".2f"),
        Measure("accuracy_min", "lowest client (%)", final("accuracy", "min"), ".2f"),
        Measure("accuracy_max", "highest client (%)", final("accuracy", "max"), ".2f"),
        Measure(
            "accuracy_average_model", "average model (%)", final("accuracy", "average_model"), ".2f"
        ),
        Measure("msd_db", "MSD (dB)", msd, ".1f"),
        *map(further, dict.fromkeys(name for run in runs for name in run.summary.metrics)),
        Measure("loss_mean", "loss", final("loss", "mean"), ".4g"),
        Measure(
            "loss_average_model", "loss of average model", final("loss", "average_model"), ".4g"
        ),
        Measure("consensus_distance", "consensus distance", lambda s: s.consensus_distance, ".3g"),
        Measure("bytes_sent", "bytes sent", lambda s: s.bytes_sent, ".3g"),
        Measure("epsilon", "ε spent", _epsilon, ".3g"),
    ]
    return [one for one in every if any(one.value(run.summary) is not None for run in runs)]


def runs_csv(groups: Sequence[RunGroup]) -> str:
    """A line per run."""
    columns = measures([run for group in groups for run in group.runs])
    header = ["runs", "folder", "algorithm", "seed", *(one.key for one in columns), "diverged"]
    lines = [
        [
            group.name,
            run.name,
            run.summary.algorithm,
            run.summary.seed,
            *(one.value(run.summary) for one in columns),
            run.summary.diverged,
        ]
        for group in groups
        for run in group.runs
    ]
    return _csv(header, lines)


def means_csv(groups: Sequence[RunGroup], confidence: float = CONFIDENCE) -> str:
    """A line per group and measure: mean, deviation and confidence interval over seeds."""
    lines = [
        [group.name, one.key, *_cells(interval)]
        for group in groups
        for one in measures([run for group in groups for run in group.runs])
        if (interval := over_seeds(group, one, confidence)) is not None
    ]
    return _csv(["runs", "measure", *_CELLS], lines)


def differences_csv(groups: Sequence[RunGroup], confidence: float = CONFIDENCE) -> str:
    """A line per group but the first, and measure: the difference to the first, paired by seed."""
    lines = [
        [group.name, groups[0].name, one.key, *_cells(interval)]
        for group in groups[1:]
        for one in measures([run for group in groups for run in group.runs])
        if (interval := paired(group, groups[0], one, confidence)) is not None
    ]
    return _csv(["runs", "less", "measure", *_CELLS], lines)


def latex_table(groups: Sequence[RunGroup], confidence: float = CONFIDENCE) -> str:
    """A booktabs table with a line per group: mean ± deviation, and the paired difference."""
    columns = measures([run for group in groups for run in group.runs])
    if not columns:
        return "% No run has a result.\n"
    first, shown = columns[0], [one for one in columns if one.key not in _ONLY_CSV]
    seeds = max(len(group.runs) for group in groups)
    compared = len(groups) > 1
    percent = f"{100 * confidence:g}"
    title = f"difference, {percent} % interval"
    header = ["", *(one.title for one in shown), *([title] if compared else [])]
    lines = []
    for group in groups:
        cells = [escape_latex(group.name)]
        cells += [_mean(over_seeds(group, one, confidence), one.form) for one in shown]
        if compared:
            found = None if group is groups[0] else paired(group, groups[0], first, confidence)
            cells.append(_difference(found, first.form))
        lines.append(" & ".join(cells) + r" \\")
    caption = "At the end of the runs"
    if seeds > 1:
        most = "" if all(len(group.runs) == seeds for group in groups) else "up to "
        caption += f": mean ± standard deviation over {most}{seeds} seeds"
    if compared:
        caption += f"; differences of {first.title} to {groups[0].name}, paired by seed, with "
        caption += f"the {percent} % confidence interval of Student's t"
    return "\n".join(
        [
            r"% Needs \usepackage{booktabs}.",
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{escape_latex(caption)}.}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"    \toprule",
            "    " + " & ".join(map(escape_latex, header)) + r" \\",
            r"    \midrule",
            *(f"    {line}" for line in lines),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def over_seeds(group: RunGroup, measure: Measure, confidence: float) -> Interval | None:
    """The mean over the runs of a group; None if one of them has no such number."""
    values = [measure.value(run.summary) for run in group.runs]
    known = [value for value in values if value is not None and math.isfinite(value)]
    return mean_and_interval(known, confidence) if len(known) == len(values) else None


def paired(group: RunGroup, base: RunGroup, measure: Measure, confidence: float) -> Interval | None:
    """The mean difference of runs with the same seed; None if no seed has both numbers."""
    own, other = (
        {
            run.summary.seed: value
            for run in one.runs
            if (value := measure.value(run.summary)) is not None and math.isfinite(value)
        }
        for one in (group, base)
    )
    seeds = [seed for seed in own if seed in other]
    if not seeds:
        return None
    return paired_difference([own[s] for s in seeds], [other[s] for s in seeds], confidence)


def escape_latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda found: LATEX[found.group()], text)


_CELLS = ["seeds", "mean", "deviation", "low", "high", "confidence"]
# Measures that would make a printed table too wide.
_ONLY_CSV = ("accuracy_max", "loss_average_model", "consensus_distance")


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


def _difference(interval: Interval | None, form: str) -> str:
    if interval is None:
        return "--"
    if interval.count < 2:
        return f"${_in_mathematics(f'{interval.mean:+{form}}')}$"
    ends = (interval.mean, interval.low, interval.high)
    shown = format_alike(ends, interval.half_width, f"+{form}")
    mean, low, high = map(_in_mathematics, shown)
    return f"${mean}$ $[{low}, {high}]$"


def _in_mathematics(text: str) -> str:
    """A number for LaTeX's mathematics, such as 1.2 \\times 10^{6}."""
    number, _, exponent = text.partition("e")
    number = number.rstrip(".")
    return f"{number} \\times 10^{{{int(exponent)}}}" if exponent else number


def _csv(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """Lines of values; empty where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value is None else value for value in line] for line in lines)
    return text.getvalue()


def _epsilon(summary: Summary) -> float | None:
    return None if summary.privacy is None else summary.privacy.spent
