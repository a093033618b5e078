"""Tables with several columns: a claim per number, and a figure with a panel per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report.style import PALETTE, plot_style
from tacit_papers.framework.cells import Key
from tacit_papers.framework.claims import (
    Claim,
    ClaimVerdict,
    claim,
    full_scale_only,
    grade,
    grade_all,
)
from tacit_papers.framework.drawing import SLANTED, Draw, plot_published
from tacit_papers.framework.results import (
    ArtifactResult,
    NotMeasured,
    deviation,
    finite,
    mean_and_deviation,
)

PANEL, HEIGHT = 3.3, 3.6  # inches


@dataclass(frozen=True)
class Column:
    """A column: our metric, the paper's numbers, and how close ours should be.

    The paper's number is None where it has a dash, such as the rounds to an accuracy that is never
    reached.
    """

    metric: str
    label: str
    paper: Mapping[Key, float | None]
    tolerance: float
    form: str = ".2f"
    from_zero: bool = False  # whether the axis starts at zero

    def numbers(self, result: ArtifactResult, key: Key) -> list[float]:
        """The finite numbers of all repeats."""
        every = result[key].numbers(self.metric)
        if not every:
            raise NotMeasured(key)
        return finite(every)

    def formatted(self, result: ArtifactResult, key: Key) -> str:
        """Mean ± deviation, and how many repeats have a number, if not all do."""
        found, repeats = self.numbers(result, key), len(result[key].numbers(self.metric))
        if not found:
            return "–"
        text = mean_and_deviation(found, self.form)
        return text if len(found) == repeats else f"{text} ({len(found)} of {repeats} repeats)"


def column_claims(columns: Sequence[Column]) -> list[Claim]:
    """One claim per number of the paper: ours is within the column's tolerance of it."""
    return [
        full_scale_only(
            _near(
                f"{' · '.join(key)}: {column.label}",
                "–" if number is None else f"{number:g}",
                column,
                key,
                number,
            )
        )
        for column in columns
        for key, number in column.paper.items()
    ]


@claim
def _near(result: ArtifactResult, column: Column, key: Key, paper: float | None) -> ClaimVerdict:
    found, ours = column.numbers(result, key), column.formatted(result, key)
    repeats = len(result[key].numbers(column.metric))
    if paper is None:
        word = grade_all([not found, len(found) < repeats])
        return ClaimVerdict(word, ours, "–: never reached by the paper")
    if not found:
        return ClaimVerdict(grade_all([False]), ours, "–: never reached")
    off = f"{abs(sum(found) / len(found) - paper):{column.form}}"
    word = grade(float(off), column.tolerance)
    if word == "reproduced" and len(found) < repeats:
        word = "partly"
    reason = f"off by {off}, tolerance {column.tolerance:g}"
    return ClaimVerdict(word, ours, reason)


def panels(columns: Sequence[Column]) -> Draw:
    """A panel per column: ours filled, with the deviation; the paper's hollow."""

    def draw(result: ArtifactResult) -> Figure:
        with plot_style():
            figure = Figure(figsize=(max(6.4, PANEL * len(columns)), HEIGHT), layout="constrained")
            row = figure.subplots(1, len(columns), squeeze=False)[0]
            for number, (axes, column) in enumerate(zip(row, columns, strict=True)):
                draw_column(axes, result, column, PALETTE[number % len(PALETTE)])
            ours = "ours, quick version" if result.scale.quick else "ours"
            ours += "" if any(len(cell.values) > 1 for cell in result.measured) else ", one repeat"
            incomplete = any(_incomplete(result, column) for column in columns)
            note = "; k of n: repeats that have a number" if incomplete else ""
            figure.supxlabel(f"filled: {ours}; hollow: the paper's{note}", fontsize=9)
        return figure

    return draw


def draw_column(axes: Axes, result: ArtifactResult, column: Column, colour: str) -> None:
    """One panel, with the cells side by side."""
    cells = result.measured
    for x, text in _incomplete(result, column).items():
        where: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center"}
        axes.text(x, 0.02, text, va="bottom", color=colour, fontsize=9, **where)
    every = {x: finite(cell.numbers(column.metric)) for x, cell in enumerate(cells)}
    known = {x: found for x, found in every.items() if found}
    if known:
        means = [sum(found) / len(found) for found in known.values()]
        deviations = [deviation(found) or 0.0 for found in known.values()]
        axes.errorbar(list(known), means, yerr=deviations, fmt="o", color=colour, capsize=2)
    papers = {x: column.paper.get(cell.key) for x, cell in enumerate(cells)}
    published = {x: number for x, number in papers.items() if number is not None}
    plot_published(axes, published, "o", colour)
    names = [" · ".join(cell.key) for cell in cells]
    long = sum(map(len, names)) > 34 or max(map(len, names)) * len(names) > 45
    slant: dict[str, Any] = SLANTED if long else {}
    axes.set_xticks(range(len(cells)), names, fontsize=9, **slant)
    axes.set_xlim(-0.5, len(cells) - 0.5)
    if column.from_zero:
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    if not long:
        axes.set_xlabel(" · ".join(result.axes))
    axes.set_title(column.label, fontsize=10)


def _incomplete(result: ArtifactResult, column: Column) -> dict[int, str]:
    """How many repeats have a number, by cell, where not all have one."""
    every = [cell.numbers(column.metric) for cell in result.measured]
    return {
        x: f"{len(finite(found))} of {len(found)}"
        for x, found in enumerate(every)
        if len(finite(found)) < len(found)
    }
