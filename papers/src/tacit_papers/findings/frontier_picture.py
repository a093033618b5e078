"""The picture of the report: accuracy against reconstruction, and accuracy against ε.

Left, from findings/frontier: what one neighbour reconstructs at best (filled), joined to what all
neighbours reconstruct together (hollow). Right, from findings/private-training: the same ε for the
whole run, and beside it algorithms that have none. Colour says whether there is a guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tacit.report.style import plot_style
from tacit_papers.findings.frontier import KEYS
from tacit_papers.findings.frontier_claims import HIDDEN
from tacit_papers.findings.private_training_settings import (
    CENTRAL,
    DECOR,
    EPSILONS,
    LOCAL,
    NO_GUARANTEE,
    PLAIN,
    PRIVATE,
)
from tacit_papers.framework.cells import Key, Scale
from tacit_papers.framework.registry import find_artifact
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.framework.results_file import ResultsFile

FRONTIER, TRAINING = "findings/frontier", "findings/private-training"
SIZE, DOTS = (10.0, 5.3), 160  # inches, dots per inch: 1,600 pixels, shown as 800
DATA = "MNIST"
LOWEST = 83.2  # accuracy; what is below is named at the edge
START = 0.0  # of the axis of SSIM
TOP = 101.0  # accuracy is scaled by the logarithm of its distance to this


@dataclass(frozen=True)
class Theme:
    """Colours on a light or a dark page."""

    paper: str
    ink: str
    muted: str
    grid: str
    guarantee: str
    faint: str  # guarantees that cost more
    none: str  # no guarantee
    safe: str  # where pictures are hidden


LIGHT = Theme(
    "#ffffff", "#1b1f24", "#59626d", "#e4e8ec", "#0060a8", "#5aa6dc", "#c2410c", "#e8f3fb"
)
DARK = Theme("#0d1117", "#e6edf3", "#9aa4af", "#262c34", "#58b0ff", "#3d7fb8", "#ff9153", "#10243a")
THEMES = {"frontier": LIGHT, "frontier-dark": DARK}

Place = tuple[float, float, str]  # offset of a label in points, and its alignment
# The settings that are labelled in the picture; all are in the figure of findings/frontier.
LABELS: dict[str, tuple[str, Place]] = {
    "dsgt": ("dsgt", (5, 7, "left")),
    "lppa, β = 0.1": ("lppa", (-6, 4, "right")),
    "lppa, fresh masks, β = 0.05": ("lppa, fresh masks", (9, -11.5, "left")),
    "dsg-rms, σ = 1": ("dsg-rms", (5, 7, "left")),
    "defl-vp, ε = 4": ("defl-vp", (-5, 6, "right")),
    "defl-vp, private variates, ε = 4": ("defl-vp, private variates", (2, -14, "left")),
    "pdmm, σ = 0.3": ("pdmm", (9, -13, "left")),
    "mdsg, σ = 0.02": ("mdsg", (-2, 16, "center")),
    "private-sgd, ε = 8": ("private-sgd, batches of 2", (14, -3.5, "left")),
    "private-sgd, ε = 8, batches of 256": ("private-sgd", (-14, -3.5, "right")),
    "decor, ε = 8, batches of 256": ("decor", (-14, -6, "right")),
}
MAIN = ("private-sgd, ε = 8, batches of 256", "decor, ε = 8, batches of 256")
CURVES = (PRIVATE, CENTRAL, DECOR, LOCAL)


def write_pictures(results: Path, folder: Path) -> list[Path]:
    """Write the picture for light and dark pages."""
    frontier, training = (
        ResultsFile.read(results / name, find_artifact(name), Scale()).result
        for name in (FRONTIER, TRAINING)
    )
    paths = []
    for name, theme in THEMES.items():
        paths.append(folder / f"{name}.png")
        with plot_style():
            options: dict[str, Any] = {"dpi": DOTS, "metadata": {"Software": None}}
            draw(frontier, training, theme).savefig(paths[-1], facecolor=theme.paper, **options)
    return paths


def draw(frontier: ArtifactResult, training: ArtifactResult, theme: Theme = LIGHT) -> Figure:
    with plot_style():
        figure = Figure(figsize=SIZE)
        left, right = figure.subplots(1, 2, width_ratios=(1.12, 1))
        figure.subplots_adjust(left=0.05, right=0.99, bottom=0.155, top=0.85, wspace=0.12)
        for axes in (left, right):
            axes.grid(color=theme.grid)
            axes.tick_params(colors=theme.muted, labelcolor=theme.ink, length=0, labelsize=10)
            axes.spines[:].set_color(theme.grid)
        _reconstruction(left, frontier, theme)
        _guarantee(right, training, theme)
        _texts(figure, left, right, theme)
    return figure


def _texts(figure: Figure, left: Axes, right: Axes, theme: Theme) -> None:
    """Titles, the meaning of the colours, and what the bars are."""
    question: dict[str, Any] = {"fontsize": 13.5, "fontweight": "bold", "color": theme.ink}
    under: dict[str, Any] = {"fontsize": 10, "color": theme.muted}
    for axes, title, text in (
        (
            left,
            "What can others reconstruct?",
            "8 clients, 4 neighbours each; batches of 2; blue: ε = 8, batches of 256",
        ),
        (right, "What does a guarantee cost?", "10 clients, batches of 205 each"),
    ):
        axes.text(0, 1.115, title, transform=axes.transAxes, **question)
        axes.text(0, 1.05, text, transform=axes.transAxes, **under)
    small: dict[str, Any] = {"fontsize": 9.5, "ha": "left"}
    parts = (
        (0.05, "● with a guarantee for every training sample", theme.guarantee),
        (0.385, "● without", theme.none),
        (0.99, "MNIST, test accuracy in %; bars: standard deviation over 3 seeds", theme.muted),
    )
    for x, text, colour in parts:
        figure.text(x, 0.02, text, color=colour, **small | ({"ha": "right"} if x > 0.9 else {}))


def _scale(axes: Axes, low: float, high: float, ticks: tuple[float, ...]) -> None:
    """Accuracy by the logarithm of the error, so that small differences at the top show."""
    functions = (lambda a: -np.log(TOP - a), lambda y: TOP - np.exp(-y))
    axes.set_yscale("function", functions=functions)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _reconstruction(axes: Axes, result: ArtifactResult, theme: Theme) -> None:
    measured = [cell.key for cell in result.measured]
    floor = sum(result.mean(key, "class_mean") for key in measured) / len(measured)
    top = max(map(result.mean, measured))
    ticks = (85, 90, 92, 93, 94, 95, 96, 97, 98)
    _scale(axes, LOWEST, TOP - 0.82 * (TOP - top), ticks)
    axes.set_xlim(START, 1.06)
    axes.set_xticks([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.axvspan(START, floor + HIDDEN, color=theme.safe, linewidth=0, zorder=0)
    axes.set_xlabel("similarity of the best reconstruction to the image (SSIM)", color=theme.ink)
    low: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "fontsize": 9, "va": "bottom"}
    axes.text(START + 0.01, 0.015, "hidden: no more\nthan the class", color=theme.muted, **low)
    for key in measured:
        if result.mean(key) >= LOWEST:
            _point(axes, result, key, theme)
    hidden = [key for key in measured if result.mean(key) < LOWEST]
    if hidden:
        names = ", ".join(dict.fromkeys(_short(key[1]) for key in hidden))
        low_end, high_end = (pick(map(result.mean, hidden)) for pick in (min, max))
        text = f"below: {names}\n({low_end:.0f} to {high_end:.0f} %)"
        axes.text(1.05, 0.015, text, ha="right", color=theme.muted, **low)
    _explain_markers(axes, theme)


def _short(label: str) -> str:
    """The algorithm, and its ε if it has one."""
    name, *options = label.split(", ")
    return " at ".join([name, *(one for one in options if one.startswith("ε"))])


def _explain_markers(axes: Axes, theme: Theme) -> None:
    place: dict[str, Any] = {"transform": axes.transAxes, "color": theme.muted}
    y, ends = 0.3, ((0.73, theme.muted, "one\nneighbour"), (0.86, theme.paper, "all\nfour"))
    axes.plot([x for x, _, _ in ends], [y, y], linewidth=1.6, alpha=0.5, **place)
    for number, (x, face, text) in enumerate(ends):
        axes.plot([x], [y], "o", markersize=7.5, markerfacecolor=face, **place)
        style: dict[str, Any] = {"fontsize": 9.5, "va": "center", "color": theme.muted}
        style |= {"ha": ("right", "left")[number], "xycoords": "axes fraction"}
        axes.annotate(text, (x, y), ((-9, 9)[number], 0), textcoords="offset points", **style)


def _point(axes: Axes, result: ArtifactResult, key: Key, theme: Theme) -> None:
    """One neighbour, filled, joined to all together, hollow; faint without a label."""
    guaranteed = key[0] == KEYS["private-sgd, ε = 8"][0]
    shown = key[1] in LABELS
    colour = theme.guarantee if guaranteed else theme.none
    one, together, height = (
        result.mean(key, name) for name in ("leak", "leak_together", "accuracy")
    )
    wide, tall = (result.deviation(key, name) or 0.0 for name in ("leak", "accuracy"))
    if not shown:
        axes.plot([one], [height], "o", color=colour, alpha=0.22, markersize=6, zorder=2)
        return
    line: dict[str, Any] = {"color": colour, "alpha": 0.4, "linewidth": 1.6}
    axes.plot([one, together], [height] * 2, zorder=2, **line)
    ring: dict[str, Any] = {"color": colour, "markerfacecolor": theme.paper}
    axes.plot([together], [height], "o", markersize=7.5, zorder=3, **ring)
    main = key[1] in MAIN
    dot: dict[str, Any] = {"markersize": 10 if main else 7.5, "elinewidth": 1.1, "color": colour}
    dot["zorder"] = 5 if guaranteed else 4
    axes.errorbar([one], [height], xerr=[wide], yerr=[tall], fmt="o", **dot)
    text, (x, y, side) = LABELS[key[1]]
    style: dict[str, Any] = {"fontsize": 10, "fontweight": "bold" if main else "normal"}
    style |= {"color": colour, "zorder": 6, "ha": side, "textcoords": "offset points"}
    if text == "lppa":
        # It is written over the line of another point.
        style["path_effects"] = [withStroke(linewidth=3, foreground=theme.paper)]
    axes.annotate(text, (one, height), (x, y), **style)


def _guarantee(axes: Axes, result: ArtifactResult, theme: Theme) -> None:
    """Curves over ε, and points without one in a column of their own."""
    _scale(axes, 92.0, 99.25, (92, 94, 95, 96, 97, 98, 98.5, 99))
    positions = {epsilon: float(number) for number, epsilon in enumerate(EPSILONS)}
    beyond = len(EPSILONS) + 0.45
    axes.set_xlim(-0.5, beyond + 0.8)
    axes.set_xticks([*positions.values(), beyond], [*positions, NO_GUARANTEE])
    axes.axvline(beyond - 0.8, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlabel("ε of the whole run: smaller is safer", color=theme.ink)
    styles: dict[str, dict[str, Any]] = {
        PRIVATE: {"color": theme.guarantee, "linewidth": 3.0, "marker": "o", "markersize": 8},
        CENTRAL: {"color": theme.ink, "linewidth": 1.3, "linestyle": (0, (4, 2)), "marker": ""},
        DECOR: {"color": theme.faint, "linewidth": 2.0, "marker": "o", "markersize": 6},
        LOCAL: {"color": theme.faint, "linewidth": 2.0, "marker": "s", "markersize": 5.5},
    }
    for name in CURVES:
        points = {x: (DATA, epsilon, name) for epsilon, x in positions.items()}
        here = {x: key for x, key in points.items() if key in result}
        means = [result.mean(key) for key in here.values()]
        bars = [result.deviation(key) or 0.0 for key in here.values()]
        above: dict[str, Any] = {"zorder": 6 if name == CENTRAL else 5 if name == PRIVATE else 4}
        axes.errorbar(list(here), means, yerr=bars, elinewidth=1.1, **styles[name], **above)
    texts: dict[str, tuple[float, float, str, str]] = {
        PRIVATE: (0.97, 97.55, "right", "private-sgd"),
        CENTRAL: (2.0, 98.42, "center", "central DP-SGD"),
        DECOR: (1.1, 96.72, "left", "decor"),
        LOCAL: (1.1, 95.05, "left", "local noise"),
    }
    for name, (x, y, side, text) in texts.items():
        word: dict[str, Any] = {"color": styles[name]["color"], "ha": side, "fontsize": 10.5}
        axes.text(x, y, text, fontweight="bold" if name == PRIVATE else "normal", **word)
    column: dict[str, Any] = {"fontsize": 9, "color": theme.none, "ha": "center"}
    axes.text(beyond, 92.12, "no\nguarantee", va="bottom", **column)
    for label in PLAIN:
        key = (DATA, NO_GUARANTEE, label)
        if key in result:
            height, bar = result.mean(key), result.deviation(key) or 0.0
            first = label == "dsgt"
            x = beyond + (-0.13 if first else 0.13)
            axes.errorbar([x], [height], yerr=[bar], fmt="o", color=theme.none, markersize=7.5)
            style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 9.5}
            text, offset = (label, 8) if first else (label.replace(", ", ",\n"), -30)
            axes.annotate(text, (x, height), (0, offset), color=theme.none, **style)
