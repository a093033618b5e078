"""Tables with several columns that one run measures: a claim for each number, and a figure with a panel per column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report.style import PALETTE, plot_style
from tacit_papers.framework.artifact import Key
from tacit_papers.framework.claims import Claim, ClaimVerdict, graded
from tacit_papers.framework.outcome import ArtifactResult, Missing, deviation

PANEL, HEIGHT = 3.3, 3.6  # inches


@dataclass(frozen=True)
class Column:
    """One column: the metric of ours that it shows, the paper's numbers, and how near ours should be to them.

    Of the paper, None is a dash: the number does not exist, as rounds to an accuracy that is never reached.
    """

    metric: str
    label: str
    paper: Mapping[Key, float | None]
    tolerance: float
    form: str = ".2f"
    from_zero: bool = False  # of its axis

    def ours(self, outcome: ArtifactResult, key: Key) -> list[float]:
        """The numbers of all repeats that have one."""
        numbers = outcome[key].numbers(self.metric)
        if not numbers:
            raise Missing(key)
        return _finite(numbers)

    def words(self, outcome: ArtifactResult, key: Key) -> str:
        """Mean ± deviation, and in how many repeats there is a number, if not in all."""
        found, repeats = self.ours(outcome, key), len(outcome[key].numbers(self.metric))
        if not found:
            return "–"
        mean, width = sum(found) / len(found), deviation(found)
        text = (
            f"{mean:{self.form}}" if width is None else f"{mean:{self.form}} ± {width:{self.form}}"
        )
        return text if len(found) == repeats else f"{text} ({len(found)} of {repeats} repeats)"


def column_claims(columns: Sequence[Column]) -> list[Claim]:
    """One claim for each number of the paper: ours is within the column's tolerance of it."""
    return [
        _claim(column, key, number) for column in columns for key, number in column.paper.items()
    ]


def _claim(column: Column, key: Key, paper: float | None) -> Claim:
    def check(outcome: ArtifactResult) -> ClaimVerdict:
        found, words = column.ours(outcome, key), column.words(outcome, key)
        if outcome.scale.quick:
            return ClaimVerdict("not measured", words, "the quick version is too small to compare")
        every = len(found) == len(outcome[key].numbers(column.metric))
        if paper is None or not found:
            agree = paper is None and not found
            return ClaimVerdict(
                "reproduced" if agree else "not reproduced", words, "– is: never reached"
            )
        off = abs(sum(found) / len(found) - paper)
        word = graded(off, column.tolerance)
        word = "partly" if word == "reproduced" and not every else word
        return ClaimVerdict(
            word, words, f"off by {off:{column.form}}, tolerance {column.tolerance:g}"
        )

    return Claim(
        f"{' · '.join(key)}: {column.label}", "–" if paper is None else f"{paper:g}", check
    )


def panels(columns: Sequence[Column]) -> Callable[[ArtifactResult], Figure]:
    """A panel per column: ours, filled, with its deviation; the paper's hollow."""

    def draw(outcome: ArtifactResult) -> Figure:
        with plot_style():
            figure = Figure(figsize=(max(6.4, PANEL * len(columns)), HEIGHT), layout="constrained")
            row = figure.subplots(1, len(columns), squeeze=False)[0]
            for number, (axes, column) in enumerate(zip(row, columns, strict=True)):
                draw_column(axes, outcome, column, PALETTE[number % len(PALETTE)])
            ours = "ours, quick version" if outcome.scale.quick else "ours"
            ours += "" if any(len(cell.values) > 1 for cell in outcome.measured) else ", one repeat"
            few = any(_repeats_without(outcome, column) for column in columns)
            words = "; k of n: repeats that have a number" if few else ""
            figure.supxlabel(f"filled: {ours}; hollow: the paper's{words}", fontsize=9)
        return figure

    return draw


def draw_column(axes: Axes, outcome: ArtifactResult, column: Column, colour: str) -> None:
    """One panel: a place per cell."""
    cells = outcome.measured
    at = [(x, _finite(cell.numbers(column.metric))) for x, cell in enumerate(cells)]
    known = [(x, found) for x, found in at if found]
    for x, words in _repeats_without(outcome, column).items():
        axes.text(
            x,
            0.02,
            words,
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
            color=colour,
            fontsize=9,
        )
    if known:
        axes.errorbar(
            [x for x, _ in known],
            [sum(found) / len(found) for _, found in known],
            yerr=[deviation(found) or 0.0 for _, found in known],
            fmt="o", color=colour, capsize=2,
        )  # fmt: skip
    papers = [(x, column.paper.get(cell.key)) for x, cell in enumerate(cells)]
    hollow = [(x, number) for x, number in papers if number is not None]
    if hollow:
        axes.plot(
            *zip(*hollow, strict=True), "o", color=colour, markerfacecolor="none", markersize=10
        )
    names = [" · ".join(cell.key) for cell in cells]
    long = sum(map(len, names)) > 34 or max(map(len, names)) * len(names) > 45
    axes.set_xticks(
        range(len(cells)), names, rotation=35 if long else 0, ha="right" if long else "center",
        rotation_mode="anchor" if long else "default", fontsize=9,
    )  # fmt: skip
    axes.set_xlim(-0.5, len(cells) - 0.5)
    if column.from_zero:
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    if not long:
        axes.set_xlabel(" · ".join(outcome.artifact.axes))
    axes.set_title(column.label, fontsize=10)


def _repeats_without(outcome: ArtifactResult, column: Column) -> dict[int, str]:
    """By place, in how many repeats there is a number, where not in all."""
    found = [cell.numbers(column.metric) for cell in outcome.measured]
    return {
        x: f"{len(_finite(numbers))} of {len(numbers)}"
        for x, numbers in enumerate(found)
        if len(_finite(numbers)) < len(numbers)
    }


def _finite(numbers: Sequence[float]) -> list[float]:
    return [number for number in numbers if math.isfinite(number)]
