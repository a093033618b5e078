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
    label_points,
    legend_below,
    line_style,
    picture_grid,
    plot_means,
    split,
)
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.framework.stored_values import unpacked

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
        shown = [cell.first["pictures_over_time"] for cell in cells]
        columns = []
        for number, time in enumerate(times):
            guesses = [unpacked(pictures[number]["guess"][0]) for pictures in shown]
            columns.append((f"t = {time}", [unpacked(shown[0][number]["truth"][0]), *guesses]))
        picture_grid(below, columns, ["truth", *names])
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
        # A series that does not depend on what is varied is measured once.
        if len(keys) == 1 < len(labels):
            (key,), dashes = keys.values(), (0, (4, 2 + 2 * number))
            axes.axhline(result.mean(key, metric), color=colour, linestyle=dashes, label=name)
            continue
        # Equal lines must not hide each other.
        shift = 0.05 * (number - (len(series) - 1) / 2)
        points = {labels.index(label) + shift: key for label, key in keys.items()}
        plot_means(axes, result, points, metric, fmt=shape + "-", color=colour, label=name)
    label_points(axes, labels)


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
    columns = []
    for label in labels:
        cells = [result[key] for name in series if (key := (panel, label, name)) in result]
        truth = unpacked(cells[0].first["pictures"]["truth"][0])
        guesses = {cell.key[2]: unpacked(cell.first["pictures"]["guess"][0]) for cell in cells}
        columns.append((label, [truth, *(guesses.get(name) for name in series)]))
    here = result.labels(2, panel)
    picture_grid(grid, columns, ["truth", *(name if name in here else "" for name in series)])
