"""Figures with a panel per column of the curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from tacit.report.style import MUTED, PALETTE, plot_style
from tacit_papers.framework.drawing import HEIGHT, Draw, line_style, log_scale
from tacit_papers.framework.results import ArtifactResult, numbers


@dataclass(frozen=True)
class Panel:
    """A column of the curves, the label of its axis, and the limits."""

    column: str
    label: str
    log: bool = False
    limits: tuple[float, float] | None = None


def curve_panels(panels: Sequence[Panel], x: str, each: bool = False) -> Draw:
    """Columns of the curves side by side: means over the repeats, or `each` repeat."""

    def draw(result: ArtifactResult) -> Figure:
        with plot_style():
            figure = Figure(figsize=(3.7 * len(panels), HEIGHT), layout="constrained")
            row = figure.subplots(1, len(panels))
            for axes, panel in zip(row, panels, strict=True):
                for number, cell in enumerate(result.measured):
                    repeats = [one["curve"] for one in cell.values.values()]
                    plain = {"color": PALETTE[number % len(PALETTE)], "linewidth": 1.2}
                    style: dict[str, Any] = plain if each else line_style(number)
                    for curve in repeats if each else [result.curve(cell.key)]:
                        y = numbers(curve[panel.column])
                        axes.plot(curve[x], y, label=" · ".join(cell.key), **style)
                axes.set_xlabel(x)
                axes.set_ylabel(panel.label)
                if panel.log:
                    log_scale(axes, nonpositive="mask")
                if panel.limits:
                    axes.set_ylim(panel.limits)
                if each:
                    axes.set_title(_diverging(result, panel), color=MUTED, fontsize=9)
            named = dict(zip(*reversed(row[0].get_legend_handles_labels()), strict=True))
            title = {"title": "a line per repeat", "title_fontsize": 9} if each else {}
            where = {"loc": "outside lower center", "ncols": min(4, len(named))}
            figure.legend(named.values(), named.keys(), **where, **title)
        return figure

    return draw


def _diverging(result: ArtifactResult, panel: Panel) -> str:
    """Which curves leave the panel, and in how many repeats."""
    top, texts = panel.limits[1] if panel.limits else math.inf, []
    for cell in result.measured:
        repeats = [numbers(one["curve"][panel.column]) for one in cell.values.values()]
        count = sum(not all(value <= top for value in values) for values in repeats)
        if count:
            texts.append(f"{' · '.join(cell.key)}: {count} of {len(repeats)} repeats diverge")
    return "; ".join(texts)
