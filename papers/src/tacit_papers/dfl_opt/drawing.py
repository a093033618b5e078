"""Figures of attacks on images: SSIM over what is varied, with reconstructed pictures below."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report.style import MARKERS, MUTED, PALETTE, plot_style
from tacit_papers.framework.cells import Key
from tacit_papers.framework.drawing import (
    HEIGHT,
    WIDTH,
    Draw,
    colour_and_marker,
    legend_below,
    line_style,
    row_label,
    show_picture,
    split,
)
from tacit_papers.framework.results import ArtifactResult

TILE = 0.62  # inches per picture
SSIM_LIMITS = (-0.1, 1.08)


def similarity(x_label: str, right: tuple[str, str] | None = None) -> Draw:
    """A panel per label of the first axis, with the SSIM of each series over the second axis.

    `right` is a second metric and its label, drawn on the right-hand axis.
    """

    def draw(result: ArtifactResult) -> Figure:
        panels, series = result.labels(0), result.labels(2)
        columns = {panel: result.labels(1, panel) for panel in panels}
        tall = TILE * (len(series) + 1)
        wide = max(WIDTH, sum(1.2 + 1.15 * TILE * len(labels) for labels in columns.values()))
        with plot_style():
            figure = Figure(figsize=(wide, HEIGHT + tall), layout="constrained")
            above, below = split(figure, 2, 1, height_ratios=[HEIGHT, tall])
            row = above.subplots(1, len(panels), squeeze=False, sharey=True)[0]
            grids = below.subfigures(1, len(panels), squeeze=False)[0]
            for axes, grid, panel in zip(row, grids, panels, strict=True):
                _lines(axes, result, (panel,), columns[panel], series, "ssim")
                axes.set_ylim(SSIM_LIMITS)
                axes.set_title(panel, color=MUTED)
                axes.set_xlabel(x_label)
                if right is not None:
                    _second_metric(axes, result, panel, columns[panel], *right)
                _pictures(grid, result, panel, columns[panel], series)
            row[0].set_ylabel("SSIM")
            if len(series) > 1:
                legend_below(above, row[0])
        return figure

    return draw


def lines_over(x_label: str, y_label: str) -> Draw:
    """The metric of each series (last axis) over the first axis."""

    def draw(result: ArtifactResult) -> Figure:
        with plot_style():
            figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
            axes = figure.add_subplot()
            _lines(axes, result, (), result.labels(0), result.labels(-1), result.metric)
            axes.set_xlabel(x_label)
            axes.set_ylabel(y_label)
            legend_below(figure, axes)
        return figure

    return draw


def over_time(result: ArtifactResult) -> Figure:
    """SSIM over the iterations, its deviation over victims as a shade, and pictures per series."""
    cells = result.measured
    names = [cell.key[-1] for cell in cells]
    times = [int(t) for t in result.curve(cells[0].key)["iteration"]]
    tall = TILE * (len(cells) + 1)
    wide = max(WIDTH, 2.2 + 1.15 * TILE * len(times))
    with plot_style():
        figure = Figure(figsize=(wide, HEIGHT + tall), layout="constrained")
        above, below = split(figure, 2, 1, height_ratios=[HEIGHT, tall])
        axes = above.subplots()
        for number, cell in enumerate(cells):
            mean = result.curve(cell.key)
            t, colour = mean["iteration"], PALETTE[number % len(PALETTE)]
            marker = {"marker": MARKERS[number % len(MARKERS)], "markersize": max(4, 8 - number)}
            axes.plot(t, mean["ssim"], label=names[number], **marker, **line_style(number))
            low, high = (
                [m + sign * d for m, d in zip(mean["ssim"], mean["deviation"], strict=True)]
                for sign in (-1, 1)
            )
            axes.fill_between(t, low, high, color=colour, alpha=0.12, linewidth=0)
        axes.set_xlabel("iteration t")
        axes.set_ylabel("SSIM")
        axes.set_ylim(SSIM_LIMITS)
        legend_below(above, axes)
        table = below.subplots(len(cells) + 1, len(times), squeeze=False)
        shown = [cell.first["pictures_over_time"] for cell in cells]
        for column, time in enumerate(times):
            show_picture(table[0][column], shown[0][column]["truth"][0])
            table[0][column].set_title(f"t = {time}", fontsize=8, color=MUTED)
            for number, pictures in enumerate(shown, start=1):
                show_picture(table[number][column], pictures[column]["guess"][0])
        for number, name in enumerate(["truth", *names]):
            row_label(table[number][0], name)
    return figure


def _lines(
    axes: Axes,
    result: ArtifactResult,
    before: Key,
    labels: list[str],
    series: list[str],
    metric: str,
) -> None:
    """A line per series, over the cells with keys (*before, label, series)."""
    for number, name in enumerate(series):
        colour, shape = colour_and_marker(number)
        keys = {label: (*before, label, name) for label in labels}
        keys = {label: key for label, key in keys.items() if key in result}
        means = [result.mean(key, metric) for key in keys.values()]
        # A series that does not depend on what is varied is measured once.
        if len(keys) == 1 < len(labels):
            axes.axhline(means[0], color=colour, linestyle=(0, (4, 2 + 2 * number)), label=name)
            continue
        # Equal lines must not hide each other.
        shift = 0.05 * (number - (len(series) - 1) / 2)
        at = [labels.index(label) + shift for label in keys]
        bars = [result.deviation(key, metric) or 0.0 for key in keys.values()]
        style: dict[str, Any] = {"fmt": shape + "-", "color": colour, "capsize": 2}
        axes.errorbar(at, means, yerr=bars if any(bars) else None, label=name, **style)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.3, len(labels) - 0.7)


def _second_metric(
    axes: Axes, result: ArtifactResult, panel: str, labels: list[str], metric: str, y_label: str
) -> None:
    cells = [cell for cell in result.measured if cell.key[0] == panel and cell.numbers(metric)]
    if not cells:
        return
    at = [labels.index(cell.key[1]) for cell in cells]
    other = axes.twinx()
    means = [result.mean(cell.key, metric) for cell in cells]
    other.plot(at, means, ":", color=PALETTE[4], marker="x")
    other.set_ylabel(y_label, color=PALETTE[4])
    other.set_ylim(0, 108)
    other.grid(False)


def _pictures(
    grid: Any, result: ArtifactResult, panel: str, labels: list[str], series: list[str]
) -> None:
    table = grid.subplots(len(series) + 1, len(labels), squeeze=False)
    for column, label in enumerate(labels):
        truth = None
        for number, name in enumerate(series, start=1):
            guess = None
            if (panel, label, name) in result:
                pictures = result[panel, label, name].first["pictures"]
                truth, guess = truth or pictures["truth"][0], pictures["guess"][0]
            show_picture(table[number][column], guess)
        show_picture(table[0][column], truth)
        table[0][column].set_title(label, fontsize=8, color=MUTED)
    here = ("truth", *result.labels(2, panel))
    for number, name in enumerate(["truth", *series]):
        row_label(table[number][0], name if name in here else "")
