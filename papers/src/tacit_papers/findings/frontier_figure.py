"""The picture of accuracy against leak: numbered points on the left, who they are and their numbers on the right."""

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
from tacit_papers.framework.outcome import ArtifactResult, Filled

Points = npt.NDArray[np.float64]
WIDTH, PLOT, TALL = 12.4, 7.2, 7.4  # inches: of all, of the left side, and the height
TICKS = (10, 50, 70, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99)
ROOM = 15.0  # points of 1/72 inch between two numbers
AWAY = 13.0  # between a number and its point
TRUE, REBUILT, COLUMNS = 0.505, 0.565, (0.76, 0.87, 0.97)  # places in the key
COLOURS = (INK, PALETTE[1], PALETTE[0], PALETTE[2], PALETTE[3], PALETTE[4], PALETTE[5])


def draw(outcome: ArtifactResult) -> Figure:
    """Up and to the left is better."""
    cells = outcome.measured
    colours = dict(zip(outcome.places(0), COLOURS, strict=False))
    with plot_style():
        figure = Figure(figsize=(WIDTH, TALL))
        left = PLOT / WIDTH
        axes = figure.add_axes((0.055, 0.09, left - 0.065, 0.85))
        _prepare(axes, outcome)
        for cell in cells:
            _point(axes, outcome, cell, colours[cell.key[0]])
        figure.canvas.draw()  # places are known after that
        _numbers(axes, outcome, [colours[cell.key[0]] for cell in cells])
        _key(figure.add_axes((left + 0.01, 0.0, 0.99 - left, 1.0)), outcome, colours)
    return figure


def _prepare(axes: Axes, outcome: ArtifactResult) -> None:
    """Accuracy by its error, logarithmic, so that a point at the top is as visible as ten below."""
    accuracies = [outcome.mean(cell.key) for cell in outcome.measured]
    axes.set_yscale(
        "function", functions=(lambda a: -np.log(101.0 - a), lambda y: 101.0 - np.exp(-y))
    )
    low, high = min(accuracies), max(accuracies)
    top = 101.0 - 0.8 * (101.0 - high)
    axes.set_ylim(max(0.0, 101.0 - 1.15 * (101.0 - low)), min(99.9, top))
    shown = [tick for tick in TICKS if axes.get_ylim()[0] <= tick <= axes.get_ylim()[1]]
    axes.yaxis.set_major_locator(FixedLocator(shown))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    floor = statistics.fmean(outcome.mean(cell.key, "class_mean") for cell in outcome.measured)
    start = min(floor - 0.08, 0.2)
    axes.set_xlim(start, 1.05)
    axes.axvspan(start, floor + HIDDEN, color=PALETTE[2], alpha=0.08, linewidth=0)
    axes.axvline(floor, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
    axes.annotate(
        "better", (0.40, 0.70), (0.50, 0.60), xycoords="axes fraction", color=MUTED, fontsize=11,
        arrowprops={"arrowstyle": "-|>", "color": MUTED, "lw": 1.6}, ha="center", va="center",
    )  # fmt: skip
    axes.text(
        start, 1.012, "hidden: less than 0.1 above\nthe mean of the class ┆", transform=axes.get_xaxis_transform(),
        fontsize=8, color=PALETTE[2], va="bottom",
    )  # fmt: skip
    for label, face in (("one neighbour", MUTED), ("all its neighbours together", "white")):
        axes.plot([], [], "o", color=MUTED, markerfacecolor=face, markersize=6.5, label=label)
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=9, handletextpad=0.2
    )
    axes.set_xlabel("leak: SSIM of the samples that are reconstructed from what neighbours know")
    axes.set_ylabel("accuracy (%)")


def _point(axes: Axes, outcome: ArtifactResult, cell: Filled, colour: str) -> None:
    """One neighbour, filled, and all together, hollow, at the end of a line."""
    one, everyone, height = (
        outcome.mean(cell.key, name) for name in ("leak", "leak_together", "accuracy")
    )
    wide, tall = (outcome.deviation(cell.key, name) or 0.0 for name in ("leak", "accuracy"))
    axes.plot([one, everyone], [height] * 2, color=colour, linewidth=0.9, alpha=0.55, zorder=2)
    axes.plot(
        [everyone], [height], "o", color=colour, markerfacecolor="white", markersize=6, zorder=3
    )
    axes.errorbar(
        [one], [height], xerr=[wide], yerr=[tall], fmt="o", color=colour, markersize=7, capsize=2,
        elinewidth=0.9, markeredgecolor="white", markeredgewidth=0.6, zorder=4,
    )  # fmt: skip


def _numbers(axes: Axes, outcome: ArtifactResult, colours: list[str]) -> None:
    """A number beside each point, with a line to it where it had to go away."""
    cells = outcome.measured
    places = np.array([[outcome.mean(cell.key, "leak"), outcome.mean(cell.key)] for cell in cells])
    ends = np.array(
        [
            [outcome.mean(cell.key, "leak_together"), y]
            for cell, (_, y) in zip(cells, places, strict=True)
        ]
    )
    anchors, hollow = (
        axes.transData.transform(each) * 72.0 / axes.figure.dpi for each in (places, ends)
    )
    box = axes.get_window_extent()
    low, high = np.array([box.p0, box.p1]) * 72.0 / axes.figure.dpi
    moved = spread_apart(anchors, np.concatenate((anchors, hollow)), low + 8, high - 8)
    for number, (at, to) in enumerate(zip(anchors, moved, strict=True)):
        axes.annotate(
            str(number + 1), places[number], tuple(to - at), textcoords="offset points", ha="center", va="center",
            fontsize=8.5, fontweight="bold", color=colours[number], zorder=6,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            arrowprops={"arrowstyle": "-", "color": colours[number], "lw": 0.6, "shrinkA": 0, "shrinkB": 3,
                        "alpha": 0.7},
        )  # fmt: skip


def spread_apart(anchors: Points, obstacles: Points, low: Points, high: Points) -> Points:
    """Places [n, 2] near the anchors, `ROOM` apart from each other and `AWAY` from all obstacles, within a box."""
    count = len(anchors)
    turns = 2 * math.pi * np.arange(count) * 0.381966  # the golden angle: no two go the same way
    at: Points = anchors + AWAY * np.stack((np.cos(turns), np.sin(turns)), axis=1)
    for _ in range(600):
        push = 0.03 * (anchors - at)
        push += _repelled(at, at, ROOM) + _repelled(at, obstacles, AWAY)
        at = np.clip(at + push, low, high)
    return at


def _repelled(at: Points, others: Points, room: float) -> Points:
    """How far each goes away from those that are too near."""
    apart = at[:, None] - others[None]
    distance = np.linalg.norm(apart, axis=2)
    near = (distance < room) & (distance > 1e-9)
    strength = np.where(near, 0.5 * (room - distance) / np.maximum(distance, 1e-9), 0.0)
    moved: Points = (strength[:, :, None] * apart).sum(axis=1)
    return moved


def _key(axes: Axes, outcome: ArtifactResult, colours: dict[str, str]) -> None:
    """Who the numbers are, with a sample, what one neighbour made of it, accuracy and leak."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(max(len(outcome.measured) + 1.6 * len(colours) + 3.5, 26), 0)
    heads = ("true", "rebuilt", "accuracy", "leak: one", "all")
    for x, text in zip((TRUE + 0.02, REBUILT + 0.032, *COLUMNS), heads, strict=True):
        axes.text(
            x,
            1.3,
            text,
            va="center",
            fontsize=7.5,
            color=MUTED,
            ha="center" if x < COLUMNS[0] else "right",
        )
    y, family = 1.3, ""
    for number, cell in enumerate(outcome.measured, start=1):
        colour = colours[cell.key[0]]
        if cell.key[0] != family:
            family = cell.key[0]
            y += 1.45
            axes.text(0.0, y, family, va="center", fontsize=9, color=colour, fontweight="bold")
            axes.plot([0.0, 0.98], [y + 0.6] * 2, color=GRID, linewidth=0.6)
            y += 0.15
        y += 1
        _row(axes, outcome, cell, number, y, colour)
    axes.text(
        0.0,
        y + 1.4,
        "fedavg: another client, and the server",
        va="center",
        fontsize=7.5,
        color=MUTED,
    )


def _row(
    axes: Axes, outcome: ArtifactResult, cell: Filled, number: int, y: float, colour: str
) -> None:
    style: dict[str, Any] = {"va": "center", "fontsize": 8.5}
    axes.text(0.035, y, str(number), ha="right", color=colour, fontweight="bold", **style)
    axes.text(0.05, y, cell.key[1], **style)
    shown = (
        f"{outcome.mean(cell.key):.1f}",
        f"{outcome.mean(cell.key, 'leak'):.2f}",
        f"{outcome.mean(cell.key, 'leak_together'):.2f}",
    )
    for x, text in zip(COLUMNS, shown, strict=True):
        axes.text(x, y, text, ha="right", **style)
    pictures: dict[str, Any] = cell.values[min(cell.values)].get("pictures") or {}
    box = axes.get_position()
    inches = box.width * WIDTH, box.height * TALL / abs(axes.get_ylim()[0] - axes.get_ylim()[1])
    wide = 0.92 * inches[1] / inches[0]  # as wide as a line is high
    for x, name in ((TRUE, "truth"), (REBUILT, "guess")) if pictures else ():
        extent = (x, x + wide, y + 0.46, y - 0.46)
        axes.imshow(pictures[name][0], cmap="gray_r", vmin=0, vmax=1, extent=extent, aspect="auto")
    axes.set_xlim(0, 1)
