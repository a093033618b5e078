"""Figures of the dual-protection paper: deviations over iterations, and sliding means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tacit.report.style import INK, MUTED, PALETTE, plot_style
from tacit_papers.framework.cells import Key
from tacit_papers.framework.drawing import Draw, legend_below, line_style, split
from tacit_papers.framework.results import ArtifactResult, CellResult

PANEL, HEIGHT = 3.5, 3.2  # inches
SERIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("sent", "sent", {"color": PALETTE[5], "linewidth": 0.7, "alpha": 0.7}),
    ("estimate", "its own estimate", {"color": PALETTE[0], "linewidth": 1.6}),
    ("mean", "the eavesdropper's sliding mean", {"color": PALETTE[1], "linewidth": 1.2}),
    ("target", "optimum", {"color": INK, "linewidth": 1.2, "linestyle": "--"}),
)


def deviations_and_messages(
    panels: Sequence[str], keys: Sequence[Key], map_panel: Callable[[Axes], None] | None = None
) -> Draw:
    """MSD curves, a panel per label of the first axis; below, messages of the first agent."""

    def draw(result: ArtifactResult) -> Figure:
        shown = [panel for panel in panels if panel in result.labels(0)]
        cells = [result[key] for key in keys if key in result and "heard" in result[key].first]
        first = int(map_panel is not None)
        width = first + len(shown)
        with plot_style():
            figure = Figure(figsize=(max(2, width) * PANEL, 2.1 * HEIGHT), layout="constrained")
            upper, lower = split(figure, 2, 1)
            row = upper.subplots(1, width, squeeze=False)[0]
            if map_panel is not None:
                map_panel(row[0])
            for axes, panel in zip(row[first:], shown, strict=True):
                _deviations(axes, result, panel)
            lines = {
                str(line.get_label()): line
                for axes in row[first:]
                for line in axes.lines
                if not str(line.get_label()).startswith("_")
            }
            where: dict[str, Any] = {"loc": "outside lower center", "ncols": 5, "fontsize": 8}
            upper.legend(lines.values(), list(lines), **where)
            if cells:
                _messages(lower, cells)
        return figure

    return draw


def _iterations(axes: Axes, title: str) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 3, 5, 10]))
    axes.set_title(title, color=MUTED, fontsize=10)
    axes.set_xlabel("iteration")


def _deviations(axes: Axes, result: ArtifactResult, panel: str) -> None:
    names = result.labels(-1)
    for cell in result.measured:
        if cell.key[0] == panel:
            curve, name = result.curve(cell.key), cell.key[-1]
            decibels = [10 * math.log10(msd) if msd > 0 else math.nan for msd in curve["msd"]]
            axes.plot(curve["round"], decibels, label=name, **line_style(names.index(name)))
    _iterations(axes, panel)
    axes.set_ylabel("MSD (dB)")


def _messages(figure: Any, cells: list[CellResult]) -> None:
    """First coordinates at agent 1 in the first run."""
    row = figure.subplots(1, len(cells), squeeze=False, sharey=True)[0]
    for axes, cell in zip(row, cells, strict=True):
        curve = cell.first["heard"]
        for name, label, style in SERIES:
            axes.plot(curve["round"], curve[name], label=label, **style)
        _iterations(axes, cell.key[-1])
    row[0].set_ylabel("first coordinate at agent 1")
    legend_below(figure, row[0])


def anchor_map(
    anchors: Sequence[Sequence[float]], target: tuple[float, float]
) -> Callable[[Axes], None]:
    """A panel with the positions of the anchors and of the target."""

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*anchors, strict=True), "s", color=PALETTE[0], label="_anchors")
        axes.plot(*target, "*", color=PALETTE[1], markersize=12, label="_target")
        for number, (x, y) in enumerate(anchors, 1):
            where: dict[str, Any] = {"textcoords": "offset points", "xytext": (0, 7)}
            axes.annotate(f"anchor {number}", (x, y), ha="center", **where)
        axes.annotate("target", target, textcoords="offset points", xytext=(0, 8), ha="center")
        axes.margins(0.25)
        axes.set_aspect("equal")
        axes.set_title("positions", color=MUTED, fontsize=10)

    return draw
