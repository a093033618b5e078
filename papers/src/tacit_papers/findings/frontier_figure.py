"""The figure of accuracy against leak: numbered points on the left, their key on the right."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tacit.report.style import GRID, INK, MUTED, PALETTE, plot_style
from tacit_papers.findings.frontier_claims import HIDDEN
from tacit_papers.framework.results import ArtifactResult, CellResult
from tacit_papers.framework.stored_values import unpacked

Points = npt.NDArray[np.float64]
WIDTH, PLOT, TALL = 12.4, 7.2, 7.4  # inches: the figure, its left side, its height
TICKS = (10, 50, 70, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99)
LABEL_DISTANCE = 15.0  # points (1/72 inch) between two labels
POINT_DISTANCE = 13.0  # between a label and the points
TRUE, REBUILT, COLUMNS = 0.505, 0.565, (0.76, 0.87, 0.97)  # positions in the key
COLOURS = (INK, PALETTE[1], PALETTE[0], *PALETTE[2:6])


def draw(result: ArtifactResult) -> Figure:
    """Up and to the left is better."""
    colours = dict(zip(result.labels(0), COLOURS, strict=False))
    with plot_style():
        figure = Figure(figsize=(WIDTH, TALL))
        left = PLOT / WIDTH
        axes = figure.add_axes((0.055, 0.09, left - 0.065, 0.85))
        _prepare(axes, result)
        for cell in result.measured:
            _point(axes, result, cell, colours[cell.key[0]])
        # Positions on the canvas are known only after a first drawing.
        figure.canvas.draw()
        _label_points(axes, result, colours)
        _key(figure.add_axes((left + 0.01, 0.0, 0.99 - left, 1.0)), result, colours)
    return figure


def _prepare(axes: Axes, result: ArtifactResult) -> None:
    """Scale accuracy by the logarithm of its error, so that small differences at the top show."""
    accuracies = [result.mean(cell.key) for cell in result.measured]
    axes.set_yscale(
        "function", functions=(lambda a: -np.log(101.0 - a), lambda y: 101.0 - np.exp(-y))
    )
    low, high = min(accuracies), max(accuracies)
    top = 101.0 - 0.8 * (101.0 - high)
    axes.set_ylim(max(0.0, 101.0 - 1.15 * (101.0 - low)), min(99.9, top))
    bottom, top = axes.get_ylim()
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in TICKS if bottom <= tick <= top]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    floor = statistics.fmean(result.mean(cell.key, "class_mean") for cell in result.measured)
    start = min(floor - 0.08, 0.2)
    axes.set_xlim(start, 1.05)
    axes.axvspan(start, floor + HIDDEN, color=PALETTE[2], alpha=0.08, linewidth=0)
    axes.axvline(floor, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
    arrow = {"arrowstyle": "-|>", "color": MUTED, "lw": 1.6}
    where: dict[str, Any] = {"xycoords": "axes fraction", "ha": "center", "va": "center"}
    where |= {"color": MUTED, "fontsize": 11}
    axes.annotate("better", (0.40, 0.70), (0.50, 0.60), arrowprops=arrow, **where)
    note = "hidden: less than 0.1 above\nthe mean of the class ┆"
    style: dict[str, Any] = {"fontsize": 8, "color": PALETTE[2], "va": "bottom"}
    axes.text(start, 1.012, note, transform=axes.get_xaxis_transform(), **style)
    for label, face in (("one neighbour", MUTED), ("all its neighbours together", "white")):
        axes.plot([], [], "o", color=MUTED, markerfacecolor=face, markersize=6.5, label=label)
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=9, handletextpad=0.2
    )
    axes.set_xlabel("leak: SSIM of the samples that are reconstructed from what neighbours know")
    axes.set_ylabel("accuracy (%)")


def _point(axes: Axes, result: ArtifactResult, cell: CellResult, colour: str) -> None:
    """One neighbour, filled, joined by a line to all together, hollow."""
    one, together, height = (
        result.mean(cell.key, name) for name in ("leak", "leak_together", "accuracy")
    )
    wide, tall = (result.deviation(cell.key, name) or 0.0 for name in ("leak", "accuracy"))
    axes.plot([one, together], [height] * 2, color=colour, linewidth=0.9, alpha=0.55, zorder=2)
    hollow: dict[str, Any] = {"markerfacecolor": "white", "markersize": 6, "zorder": 3}
    axes.plot([together], [height], "o", color=colour, **hollow)
    filled: dict[str, Any] = {"markersize": 7, "markeredgecolor": "white", "markeredgewidth": 0.6}
    filled |= {"capsize": 2, "elinewidth": 0.9, "zorder": 4}
    axes.errorbar([one], [height], xerr=[wide], yerr=[tall], fmt="o", color=colour, **filled)


def _label_points(axes: Axes, result: ArtifactResult, colours: dict[str, str]) -> None:
    """A number near each point, with a line to it."""
    cells = result.measured
    points, ends = (
        np.array([[result.mean(cell.key, name), result.mean(cell.key)] for cell in cells])
        for name in ("leak", "leak_together")
    )
    scale = 72.0 / axes.figure.dpi
    anchors, hollow = (axes.transData.transform(each) * scale for each in (points, ends))
    box = axes.get_window_extent()
    low, high = np.array([box.p0, box.p1]) * scale
    moved = spread_apart(anchors, np.concatenate((anchors, hollow)), low + 8, high - 8)
    outline = [withStroke(linewidth=2.5, foreground="white")]
    for number, cell in enumerate(cells):
        colour = colours[cell.key[0]]
        line = {"arrowstyle": "-", "color": colour, "lw": 0.6, "alpha": 0.7}
        line |= {"shrinkA": 0, "shrinkB": 3}
        text: dict[str, Any] = {"fontsize": 8.5, "fontweight": "bold", "color": colour}
        text |= {"ha": "center", "va": "center", "zorder": 6, "path_effects": outline}
        offset = tuple(moved[number] - anchors[number])
        where: dict[str, Any] = {"textcoords": "offset points", "arrowprops": line}
        axes.annotate(str(number + 1), points[number], offset, **where, **text)


def spread_apart(anchors: Points, obstacles: Points, low: Points, high: Points) -> Points:
    """Positions [n, 2] near the anchors that keep their distances, within a box."""
    count = len(anchors)
    # Multiples of the golden angle: no two labels start in the same direction.
    turns = 2 * math.pi * np.arange(count) * 0.381966
    at: Points = anchors + POINT_DISTANCE * np.stack((np.cos(turns), np.sin(turns)), axis=1)
    for _ in range(600):
        push = 0.03 * (anchors - at)
        push += _repulsion(at, at, LABEL_DISTANCE) + _repulsion(at, obstacles, POINT_DISTANCE)
        at = np.clip(at + push, low, high)
    return at


def _repulsion(at: Points, others: Points, distance: float) -> Points:
    """How far each moves away from the others that are too near."""
    apart = at[:, None] - others[None]
    norms = np.linalg.norm(apart, axis=2)
    near = (norms < distance) & (norms > 1e-9)
    strength = np.where(near, 0.5 * (distance - norms) / np.maximum(norms, 1e-9), 0.0)
    moved: Points = (strength[:, :, None] * apart).sum(axis=1)
    return moved


def _key(axes: Axes, result: ArtifactResult, colours: dict[str, str]) -> None:
    """The numbers with their names, a sample, one neighbour's reconstruction, accuracy and leak."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(max(len(result.measured) + 1.6 * len(colours) + 3.5, 26), 0)
    small: dict[str, Any] = {"va": "center", "fontsize": 7.5, "color": MUTED}
    heads = ("true", "rebuilt", "accuracy", "leak: one", "all")
    for x, text in zip((TRUE + 0.02, REBUILT + 0.032, *COLUMNS), heads, strict=True):
        axes.text(x, 1.3, text, ha="center" if x < COLUMNS[0] else "right", **small)
    y, family = 1.3, ""
    for number, cell in enumerate(result.measured, start=1):
        colour = colours[cell.key[0]]
        if cell.key[0] != family:
            family = cell.key[0]
            y += 1.45
            axes.text(0.0, y, family, va="center", fontsize=9, color=colour, fontweight="bold")
            axes.plot([0.0, 0.98], [y + 0.6] * 2, color=GRID, linewidth=0.6)
            y += 0.15
        y += 1
        _key_row(axes, result, cell, number, y, colour)
    axes.text(0.0, y + 1.4, "fedavg: another client, and the server", **small)


def _key_row(
    axes: Axes, result: ArtifactResult, cell: CellResult, number: int, y: float, colour: str
) -> None:
    style: dict[str, Any] = {"va": "center", "fontsize": 8.5}
    axes.text(0.035, y, str(number), ha="right", color=colour, fontweight="bold", **style)
    axes.text(0.05, y, cell.key[1], **style)
    forms = (("accuracy", ".1f"), ("leak", ".2f"), ("leak_together", ".2f"))
    for x, (metric, form) in zip(COLUMNS, forms, strict=True):
        axes.text(x, y, f"{result.mean(cell.key, metric):{form}}", ha="right", **style)
    pictures: dict[str, Any] = cell.first.get("pictures") or {}
    box = axes.get_position()
    inches = box.width * WIDTH, box.height * TALL / abs(axes.get_ylim()[0] - axes.get_ylim()[1])
    # As wide as a line is high.
    wide = 0.92 * inches[1] / inches[0]
    for x, name in ((TRUE, "truth"), (REBUILT, "guess")) if pictures else ():
        extent = (x, x + wide, y + 0.46, y - 0.46)
        axes.imshow(
            unpacked(pictures[name][0]), cmap="gray_r", vmin=0, vmax=1, extent=extent, aspect="auto"
        )
    axes.set_xlim(0, 1)
