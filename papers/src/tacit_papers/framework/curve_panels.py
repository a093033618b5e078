"""Figures with a panel per column of the curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from tacit.report.style import MUTED, PALETTE, plot_style
from tacit_papers.framework.drawing import HEIGHT, Draw, line_style, log_scale
from tacit_papers.framework.results import ArtifactResult, CellResult, numbers


@dataclass(frozen=True)
class Panel:
    """A column of the curves, the label of its axis, and the limits."""

    column: str
    label: str
    log: bool = False
    limits: tuple[float, float] | None = None


def curve_panels(panels: Sequence[Panel], x: str, each: bool = False, rows: bool = False) -> Draw:
    """Columns of the curves side by side: means over the repeats, or `each` repeat.

    With `rows`, the first labels of the cells have a row each.
    """

    def draw(result: ArtifactResult) -> Figure:
        titles = list(dict.fromkeys(cell.key[0] for cell in result.measured)) if rows else [""]
        names = list(dict.fromkeys(cell.key[rows:] for cell in result.measured))
        with plot_style():
            size = (3.7 * len(panels), HEIGHT * (1 + 0.7 * (len(titles) - 1)))
            figure = Figure(figsize=size, layout="constrained")
            grid = figure.subplots(len(titles), len(panels), squeeze=False)
            named: dict[str, Any] = {}
            for title, row in zip(titles, grid, strict=True):
                for axes, panel in zip(row, panels, strict=True):
                    cells = [one for one in result.measured if not rows or one.key[0] == title]
                    for cell in cells:
                        number, label = names.index(cell.key[rows:]), " · ".join(cell.key[rows:])
                        repeats = [one["curve"] for one in cell.values.values()]
                        plain = {"color": PALETTE[number % len(PALETTE)], "linewidth": 1.2}
                        style: dict[str, Any] = plain if each else line_style(number)
                        for curve in repeats if each else [result.curve(cell.key)]:
                            y = numbers(curve[panel.column])
                            (named[label],) = axes.plot(curve[x], y, label=label, **style)
                    axes.set_xlabel(x if title == titles[-1] else "")
                    axes.set_ylabel(panel.label)
                    axes.set_title(title, fontsize=10)
                    if panel.log:
                        log_scale(axes, nonpositive="mask")
                    if panel.limits:
                        axes.set_ylim(panel.limits)
                    if each and (text := _diverging(cells, panel, rows)):
                        axes.set_title(
                            "\n".join(filter(None, (title, text))), color=MUTED, fontsize=9
                        )
            heading = {"title": "a line per repeat", "title_fontsize": 9} if each else {}
            where = {"loc": "outside lower center", "ncols": min(4, len(named))}
            figure.legend(named.values(), named.keys(), **where, **heading)
        return figure

    return draw


def _diverging(cells: Sequence[CellResult], panel: Panel, rows: bool) -> str:
    """Which curves leave the panel, and in how many repeats."""
    top, texts = panel.limits[1] if panel.limits else math.inf, []
    for cell in cells:
        repeats = [numbers(one["curve"][panel.column]) for one in cell.values.values()]
        count = sum(not all(value <= top for value in values) for values in repeats)
        if count:
            texts.append(
                f"{' · '.join(cell.key[rows:])}: {count} of {len(repeats)} repeats diverge"
            )
    return "; ".join(texts)
