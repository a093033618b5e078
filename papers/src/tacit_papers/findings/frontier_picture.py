"""The picture of the report: accuracy against reconstruction, and accuracy against ε.

Left, from findings/frontier: what one neighbour reconstructs at best (filled), joined to what all
neighbours reconstruct together (hollow). Right, from findings/private-training: the same ε for the
whole run, and beside it algorithms that have none. Colour says whether there is a guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
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
LOWEST = 80.0  # accuracy; what is below is named at the edge
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
    "dsgt": ("dsgt, no protection", (0, -13, "right")),
    "lppa, β = 0.1": ("lppa", (-6, 7, "center")),
    "lppa, fresh masks, β = 0.05": ("lppa, fresh masks", (6, -12, "left")),
    "dsg-rms, σ = 0.1": ("dsg-rms", (0, 7, "center")),
    "defl-vp, ε = 4": ("defl-vp", (0, 7, "center")),
    "defl-vp, private variates, ε = 4": ("defl-vp, private variates", (7, -3, "left")),
    "pdmm, σ = 0.3": ("pdmm", (-5, -12, "right")),
    "mdsg, σ = 0.02": ("mdsg", (-7, -2, "right")),
    "private-sgd, ε = 8": ("private-sgd, ε = 8, same batches of 2", (9, -3, "left")),
    "private-sgd, ε = 8, batches of 256": ("private-sgd, ε = 8", (9, -3, "left")),
    "decor, ε = 8, batches of 256": ("decor, ε = 8", (9, -4, "left")),
}
CURVES = (PRIVATE, CENTRAL, DECOR, LOCAL)


def write_pictures(results: Path, folder: Path) -> list[Path]:
    """Write the picture for light and dark pages."""
    stored = [
        ResultsFile.read(results / name, find_artifact(name), Scale()).result
        for name in (FRONTIER, TRAINING)
    ]
    paths = []
    for name, theme in THEMES.items():
        paths.append(folder / f"{name}.png")
        with plot_style():
            options: dict[str, Any] = {"dpi": DOTS, "metadata": {"Software": None}}
            draw(*stored, theme).savefig(paths[-1], facecolor=theme.paper, **options)
    return paths


def draw(frontier: ArtifactResult, training: ArtifactResult, theme: Theme = LIGHT) -> Figure:
    with plot_style():
        figure = Figure(figsize=SIZE)
        left, right = figure.subplots(1, 2, width_ratios=(1.12, 1))
        figure.subplots_adjust(left=0.055, right=0.985, bottom=0.115, top=0.83, wspace=0.13)
        for axes in (left, right):
            axes.grid(color=theme.grid)
            axes.tick_params(colors=theme.muted, labelcolor=theme.ink, length=0, labelsize=10)
            axes.spines[:].set_color(theme.grid)
        _reconstruction(left, frontier, theme)
        _guarantee(right, training, theme)
        question = {"fontsize": 13.5, "fontweight": "bold", "color": theme.ink}
        under = {"fontsize": 10, "color": theme.muted}
        for axes, title, text in (
            (left, "What can others reconstruct?", "8 clients with 4 neighbours each, MNIST"),
            (right, "What does a guarantee cost?", "10 clients, MNIST, ε for the whole run"),
        ):
            axes.text(0, 1.135, title, transform=axes.transAxes, **question)
            axes.text(0, 1.075, text, transform=axes.transAxes, **under)
        note = "accuracy in %; bars: standard deviation over three seeds"
        figure.text(0.985, 0.965, note, ha="right", fontsize=9, color=theme.muted)
    return figure


def _scale(axes: Axes, low: float, high: float, ticks: tuple[float, ...]) -> None:
    """Accuracy by the logarithm of the error, so that small differences at the top show."""
    import numpy as np

    functions = (lambda a: -np.log(TOP - a), lambda y: TOP - np.exp(-y))
    axes.set_yscale("function", functions=functions)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _reconstruction(axes: Axes, result: ArtifactResult, theme: Theme) -> None:
    measured = [cell.key for cell in result.measured]
    floor = sum(result.mean(key, "class_mean") for key in measured) / len(measured)
    _scale(axes, LOWEST, 98.2, (80, 85, 90, 92, 94, 96, 97, 98))
    axes.set_xlim(0.16, 1.06)
    axes.set_xticks([0.2, 0.4, 0.6, 0.8, 1.0])
    axes.axvspan(0.16, floor + HIDDEN, color=theme.safe, linewidth=0, zorder=0)
    axes.text(
        0.17, 80.35, "no more than\nthe class", fontsize=9, color=theme.guarantee, va="bottom"
    )
    axes.set_xlabel("similarity of the best reconstruction (SSIM)", color=theme.ink)
    for key in measured:
        if result.mean(key) >= LOWEST:
            _point(axes, result, key, theme)
    hidden = [key for key in measured if result.mean(key) < LOWEST]
    if hidden:
        names = ", ".join(dict.fromkeys(key[1].split(",")[0] for key in hidden))
        low, high = min(map(result.mean, hidden)), max(map(result.mean, hidden))
        text = f"↓ {names}: {low:.0f} to {high:.0f} %"
        axes.text(1.05, 80.35, text, ha="right", va="bottom", fontsize=9, color=theme.muted)
    for face, x, text in ((theme.muted, 0.60, "one neighbour"), ("none", 0.60, "all together")):
        y = 86.4 if face == theme.muted else 85.0
        axes.plot([x], [y], "o", color=theme.muted, markerfacecolor=face, markersize=6.5)
        axes.text(x + 0.025, y, text, va="center", fontsize=9.5, color=theme.muted)


def _point(axes: Axes, result: ArtifactResult, key: Key, theme: Theme) -> None:
    """One neighbour, filled, joined to all together, hollow; faint without a label."""
    guaranteed = key[0] == KEYS["private-sgd, ε = 8"][0]
    shown = key[1] in LABELS
    colour = theme.guarantee if guaranteed else theme.none
    one, together, height = (
        result.mean(key, name) for name in ("leak", "leak_together", "accuracy")
    )
    wide, tall = (result.deviation(key, name) or 0.0 for name in ("leak", "accuracy"))
    strength = 1.0 if shown else 0.28
    line: dict[str, Any] = {"color": colour, "alpha": 0.45 * strength, "linewidth": 1.6}
    axes.plot([one, together], [height] * 2, zorder=2, **line)
    ring: dict[str, Any] = {"color": colour, "markerfacecolor": theme.paper, "alpha": strength}
    axes.plot([together], [height], "o", markersize=7, zorder=3, **ring)
    dot: dict[str, Any] = {"markersize": 9.5 if guaranteed else 7.5, "alpha": strength}
    dot |= {"elinewidth": 1.1, "zorder": 5 if guaranteed else 4, "color": colour}
    axes.errorbar([one], [height], xerr=[wide], yerr=[tall], fmt="o", **dot)
    if shown:
        text, (x, y, side) = LABELS[key[1]]
        weight = "bold" if guaranteed else "normal"
        axes.annotate(
            text,
            (one, height),
            (x, y),
            textcoords="offset points",
            ha=side,
            fontsize=10,
            fontweight=weight,
            color=colour,
            zorder=6,
        )


def _guarantee(axes: Axes, result: ArtifactResult, theme: Theme) -> None:
    """Curves over ε, and points without one in a column of their own."""
    _scale(axes, 92.0, 99.25, (92, 94, 95, 96, 97, 98, 98.5, 99))
    positions = {epsilon: float(number) for number, epsilon in enumerate(EPSILONS)}
    beyond = len(EPSILONS) + 0.45
    axes.set_xlim(-0.3, beyond + 0.75)
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
        above = {"zorder": 6 if name == CENTRAL else 5 if name == PRIVATE else 4}
        axes.errorbar(list(here), means, yerr=bars, elinewidth=1.1, **styles[name], **above)
    texts: dict[str, tuple[float, float, str, str]] = {
        PRIVATE: (0.95, 97.62, "right", "private-sgd"),
        CENTRAL: (2.0, 98.45, "center", "central DP-SGD"),
        DECOR: (1.1, 96.72, "left", "decor"),
        LOCAL: (1.1, 95.05, "left", "local noise"),
    }
    for name, (x, y, side, text) in texts.items():
        style: dict[str, Any] = {"color": styles[name]["color"], "ha": side, "fontsize": 10.5}
        axes.text(x, y, text, fontweight="bold" if name == PRIVATE else "normal", **style)
    column: dict[str, Any] = {"fontsize": 9, "color": theme.none, "ha": "center"}
    axes.text(beyond, 92.12, "no\nguarantee", va="bottom", **column)
    for label in PLAIN:
        key = (DATA, NO_GUARANTEE, label)
        if key in result:
            height, bar = result.mean(key), result.deviation(key) or 0.0
            axes.errorbar([beyond], [height], yerr=[bar], fmt="o", color=theme.none, markersize=7.5)
            above_text = 5 if label == "dsgt" else -13
            where: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 9.5}
            name = label.replace(", ", ",\n") if above_text < 0 else label
            offset = (0, above_text - 11 if above_text < 0 else above_text)
            axes.annotate(name, (beyond, height), offset, color=theme.none, **where)
