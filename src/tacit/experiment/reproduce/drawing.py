"""Figures of artifacts: a table as points beside the paper's, curves, and how they become files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tacit.experiment.reproduce.outcome import Outcome
from tacit.experiment.style import MUTED, PALETTE, SHAPES, styled

WIDTH, HEIGHT = 6.4, 3.4  # inches
APART = 0.7  # of the distance between two groups that the points of one take


def beside_paper(label: str, log: bool = False) -> Callable[[Outcome], Figure]:
    """Ours, filled, with its deviation, beside the paper's, hollow: a group per row, a colour per column."""

    def draw(outcome: Outcome) -> Figure:
        cells = outcome.measured
        rows = list(dict.fromkeys(" · ".join(cell.key[:-1]) for cell in cells))
        columns = outcome.places(-1)
        with styled():
            figure = Figure(figsize=(max(WIDTH, 0.9 * len(rows)), HEIGHT), layout="constrained")
            axes = figure.add_subplot()
            for number, column in enumerate(columns):
                colour, shape = PALETTE[number % len(PALETTE)], SHAPES[number % len(SHAPES)]
                shift = APART * ((number + 0.5) / len(columns) - 0.5)
                here = [cell for cell in cells if cell.key[-1] == column]
                at = [rows.index(" · ".join(cell.key[:-1])) + shift for cell in here]
                axes.errorbar(
                    at,
                    [outcome.mean(cell.key) for cell in here],
                    yerr=[outcome.deviation(cell.key) or 0.0 for cell in here],
                    fmt=shape, color=colour, label=column, capsize=2,
                )  # fmt: skip
                known = [
                    (x, cell.paper.mean) for x, cell in zip(at, here, strict=True) if cell.paper is not None
                ]
                if known:
                    x, y = zip(*known, strict=True)
                    axes.plot(x, y, shape, color=colour, markerfacecolor="none", markersize=10)
            axes.set_xticks(range(len(rows)), rows, rotation=0 if len(rows) < 7 else 30)
            axes.set_ylabel(label)
            if log:
                _log(axes)
            figure.legend(
                loc="outside lower center", ncols=len(columns), title="filled: ours; hollow: the paper's"
            )
        return figure

    return draw


def curves(y: str, label: str, x: str = "round", log: bool = False) -> Callable[[Outcome], Figure]:
    """One curve per cell: the mean over the repeats, and in a light shade each of them; a panel per first place."""

    def draw(outcome: Outcome) -> Figure:
        panels = outcome.places(0) if len(outcome.artifact.axes) > 1 else [""]
        with styled():
            figure = Figure(figsize=(max(WIDTH, 3.4 * len(panels)), HEIGHT), layout="constrained")
            row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
            names = list(dict.fromkeys(" · ".join(cell.key[-1:]) for cell in outcome.measured))
            for axes, panel in zip(row, panels, strict=True):
                for cell in outcome.measured:
                    if panel and cell.key[0] != panel:
                        continue
                    colour = PALETTE[names.index(cell.key[-1]) % len(PALETTE)]
                    for one in cell.values.values():
                        axes.plot(
                            one["curve"][x], _plain(one["curve"][y]), color=colour, alpha=0.25, linewidth=0.8
                        )
                    mean = outcome.curve(cell.key)
                    axes.plot(mean[x], mean[y], color=colour, label=" · ".join(cell.key[1:]) or cell.key[0])
                axes.set_title(panel, color=MUTED)
                axes.set_xlabel(x)
                if log:
                    _log(axes)
            row[0].set_ylabel(label)
            handles, labels = row[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=min(4, max(1, len(labels))))
        return figure

    return draw


def write_figure(figure: Figure, folder: Path) -> list[Path]:
    """As figure.svg and figure.png, on white."""
    written = []
    for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        path = folder / f"figure.{kind}"
        with styled():
            figure.savefig(path, dpi=150, facecolor="white", metadata=metadata)
        written.append(path)
    return written


def _log(axes: Any) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _plain(values: list[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
