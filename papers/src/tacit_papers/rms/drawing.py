"""Figures of the dual-protection paper: deviations over iterations, and what a listener makes of messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tacit.report.style import INK, MUTED, PALETTE, plot_style
from tacit_papers.framework.artifact import Key
from tacit_papers.framework.drawing import look_of
from tacit_papers.framework.outcome import ArtifactResult, Filled

PANEL, HEIGHT = 3.5, 3.2  # inches


def deviations_and_listener(
    panels: Sequence[str], heard: Sequence[Key], before: Callable[[Axes], None] | None = None
) -> Callable[[ArtifactResult], Figure]:
    """MSD curves, a panel for each first place of a key, and what was heard from the first agent in some cells."""

    def draw(outcome: ArtifactResult) -> Figure:
        shown = [panel for panel in panels if panel in outcome.places(0)]
        listened = [
            outcome[key] for key in heard if key in outcome and "heard" in _first(outcome[key])
        ]
        first = int(before is not None)
        width = first + len(shown)
        with plot_style():
            figure = Figure(figsize=(max(2, width) * PANEL, 2.1 * HEIGHT), layout="constrained")
            upper, lower = figure.subfigures(2, 1, squeeze=False).flatten()
            row = upper.subplots(1, width, squeeze=False)[0]
            if before is not None:
                before(row[0])
            names = outcome.places(-1)
            for axes, panel in zip(row[first:], shown, strict=True):
                _deviations(axes, outcome, panel, names)
            lines = {
                line.get_label(): line
                for axes in row[first:]
                for line in axes.lines
                if not str(line.get_label()).startswith("_")
            }
            upper.legend(
                lines.values(),
                [str(name) for name in lines],
                loc="outside lower center",
                ncols=5,
                fontsize=8,
            )
            if listened:
                _heard(lower, listened)
        return figure

    return draw


def _first(cell: Filled) -> dict[str, Any]:
    return cell.values[min(cell.values)]


def _deviations(axes: Axes, outcome: ArtifactResult, panel: str, names: list[str]) -> None:
    for cell in outcome.measured:
        if cell.key[0] != panel:
            continue
        curve = outcome.curve(cell.key)
        number = names.index(cell.key[-1])
        axes.plot(
            curve["round"],
            [10 * math.log10(value) if value > 0 else math.nan for value in curve["msd"]],
            label=cell.key[-1],
            **look_of(number),
        )
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 3, 5, 10]))
    axes.set_title(panel, color=MUTED, fontsize=10)
    axes.set_xlabel("iteration")
    axes.set_ylabel("MSD (dB)")


def _heard(figure: Any, listened: list[Filled]) -> None:
    """First coordinates at agent 1 in the first run: what it sent, the mean of that, its estimate, the optimum."""
    row = figure.subplots(1, len(listened), squeeze=False, sharey=True)[0]
    looks = (
        ("sent", "sent", {"color": PALETTE[5], "linewidth": 0.7, "alpha": 0.7}),
        ("estimate", "its own estimate", {"color": PALETTE[0], "linewidth": 1.6}),
        ("mean", "the listener's sliding mean", {"color": PALETTE[1], "linewidth": 1.2}),
        ("target", "optimum", {"color": INK, "linewidth": 1.2, "linestyle": "--"}),
    )
    for axes, cell in zip(row, listened, strict=True):
        curve = _first(cell)["heard"]
        for name, label, look in looks:
            axes.plot(curve["round"], curve[name], label=label, **look)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 3, 5, 10]))
        axes.set_title(cell.key[-1], color=MUTED, fontsize=10)
        axes.set_xlabel("iteration")
    row[0].set_ylabel("first coordinate at agent 1")
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)


def places_of(
    anchors: Sequence[Sequence[float]], target: tuple[float, float]
) -> Callable[[Axes], None]:
    """Where the anchors stand, and the target."""

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*anchors, strict=True), "s", color=PALETTE[0], label="_anchors")
        axes.plot(*target, "*", color=PALETTE[1], markersize=12, label="_target")
        for number, (x, y) in enumerate(anchors, 1):
            axes.annotate(
                f"anchor {number}", (x, y), textcoords="offset points", xytext=(0, 7), ha="center"
            )
        axes.annotate("target", target, textcoords="offset points", xytext=(0, 8), ha="center")
        axes.margins(0.25)
        axes.set_aspect("equal")
        axes.set_title("places", color=MUTED, fontsize=10)

    return draw
