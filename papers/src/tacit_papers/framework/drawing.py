"""Figures of artifacts: a table as points beside the paper's, curves, and how they become files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tacit.report.style import MUTED, PALETTE, MARKERS, plot_style
from tacit_papers.framework.outcome import ArtifactResult, Filled

WIDTH, HEIGHT = 6.4, 3.4  # inches
APART = 0.7  # of the distance between two groups that the points of one take


def look_of(number: int) -> dict[str, Any]:
    """Colour, dashes and width of a curve: later ones are thinner, so that equal ones do not hide each other."""
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": ("-", "--", "-.", ":")[number % 4],
        "linewidth": max(1.5, 2.7 - 0.4 * number),
    }


def beside_paper(label: str, log: bool = False) -> Callable[[ArtifactResult], Figure]:
    """Ours, filled, beside the paper's, hollow: a group per row, a colour per column.

    A bar is the deviation over the repeats; on a logarithmic axis, which has no room for a deviation larger
    than the mean, it goes from the lowest repeat to the highest.
    """

    def draw(outcome: ArtifactResult) -> Figure:
        cells = outcome.measured
        rows = list(dict.fromkeys(" · ".join(cell.key[:-1]) for cell in cells))
        columns = outcome.places(-1)
        with plot_style():
            figure = Figure(figsize=(max(WIDTH, 0.9 * len(rows)), HEIGHT), layout="constrained")
            axes = figure.add_subplot()
            for number, column in enumerate(columns):
                colour, shape = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
                shift = APART * ((number + 0.5) / len(columns) - 0.5)
                here = [cell for cell in cells if cell.key[-1] == column]
                at = [rows.index(" · ".join(cell.key[:-1])) + shift for cell in here]
                axes.errorbar(
                    at,
                    [outcome.mean(cell.key) for cell in here],
                    yerr=_extents(outcome, here) if log else [outcome.deviation(cell.key) or 0.0 for cell in here],
                    fmt=shape, color=colour, label=column, capsize=2,
                )  # fmt: skip
                known = [
                    (x, cell.paper.mean)
                    for x, cell in zip(at, here, strict=True)
                    if cell.paper is not None
                ]
                if known:
                    x, y = zip(*known, strict=True)
                    axes.plot(x, y, shape, color=colour, markerfacecolor="none", markersize=10)
            if len(rows) < 7:
                axes.set_xticks(range(len(rows)), rows)
            else:
                axes.set_xticks(
                    range(len(rows)), rows, rotation=30, ha="right", rotation_mode="anchor"
                )
            axes.set_xlim(-0.5, len(rows) - 0.5)
            axes.set_ylabel(label)
            if log:
                _log(axes)
            bars = "from the lowest to the highest repeat" if log else "deviation over repeats"
            title = f"filled: ours; hollow: the paper's; bars: {bars}"
            figure.legend(
                loc="outside lower center", ncols=len(columns), title=title, title_fontsize=9
            )
        return figure

    return draw


def curves(
    y: str, label: str, x: str = "round", log: bool = False
) -> Callable[[ArtifactResult], Figure]:
    """One curve per cell: the mean over the repeats, and in a light shade each of them; a panel per first place."""

    def draw(outcome: ArtifactResult) -> Figure:
        panels = outcome.places(0) if len(outcome.artifact.axes) > 1 else [""]
        with plot_style():
            figure = Figure(figsize=(max(WIDTH, 3.4 * len(panels)), HEIGHT), layout="constrained")
            row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
            names = list(dict.fromkeys(" · ".join(cell.key[-1:]) for cell in outcome.measured))
            for axes, panel in zip(row, panels, strict=True):
                for cell in outcome.measured:
                    if panel and cell.key[0] != panel:
                        continue
                    number = names.index(cell.key[-1])
                    colour = PALETTE[number % len(PALETTE)]
                    for one in cell.values.values():
                        axes.plot(
                            one["curve"][x],
                            plain(one["curve"][y]),
                            color=colour,
                            alpha=0.25,
                            linewidth=0.8,
                        )
                    mean = outcome.curve(cell.key)
                    name = " · ".join(cell.key[1:]) or cell.key[0]
                    axes.plot(mean[x], mean[y], label=name, **look_of(number))
                axes.set_title(panel, color=MUTED)
                axes.set_xlabel(x)
                if log:
                    _log(axes)
            row[0].set_ylabel(label)
            handles, labels = row[0].get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside lower center", ncols=min(4, max(1, len(labels)))
            )
        return figure

    return draw


def write_figure(figure: Figure, folder: Path) -> list[Path]:
    """As figure.svg and figure.png, on white."""
    written = []
    for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        path = folder / f"figure.{kind}"
        with plot_style():
            figure.savefig(path, dpi=150, facecolor="white", metadata=metadata)
        written.append(path)
    return written


def _log(axes: Any) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _extents(outcome: ArtifactResult, cells: Sequence[Filled]) -> list[list[float]]:
    """How far the lowest repeat is below the mean, and the highest above it."""
    means = [outcome.mean(cell.key) for cell in cells]
    numbers = [cell.numbers(outcome.artifact.metric) for cell in cells]
    return [
        [mean - min(each) for mean, each in zip(means, numbers, strict=True)],
        [max(each) - mean for mean, each in zip(means, numbers, strict=True)],
    ]


def plain(values: Sequence[float | None]) -> list[float]:
    """Of JSON: what is null is not a number."""
    return [math.nan if value is None else value for value in values]
