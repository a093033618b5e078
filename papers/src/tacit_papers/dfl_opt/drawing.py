"""Figures of attacks on images: SSIM over what is varied, and reconstructed pictures below."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report.style import MUTED, PALETTE, MARKERS, plot_style
from tacit_papers.framework.artifact import Key
from tacit_papers.framework.drawing import HEIGHT, WIDTH, look_of, plain
from tacit_papers.framework.outcome import ArtifactResult, Filled

TILE = 0.62  # inches that a picture takes
Picture = list[list[float]]


def similarity(
    x_label: str, right: tuple[str, str] | None = None
) -> Callable[[ArtifactResult], Figure]:
    """A panel per first place, SSIM of each series over the second; `right`: a metric with an axis of its own."""

    def draw(outcome: ArtifactResult) -> Figure:
        panels, series = outcome.places(0), outcome.places(2)
        columns = {panel: _places(outcome, panel) for panel in panels}
        tall = TILE * (len(series) + 1)
        wide = max(WIDTH, sum(1.2 + 1.15 * TILE * len(places) for places in columns.values()))
        with plot_style():
            figure = Figure(figsize=(wide, HEIGHT + tall), layout="constrained")
            (above,), (below,) = figure.subfigures(
                2, 1, squeeze=False, height_ratios=[HEIGHT, tall]
            )
            row = above.subplots(1, len(panels), squeeze=False, sharey=True)[0]
            grids = below.subfigures(1, len(panels), squeeze=False)[0]
            for axes, grid, panel in zip(row, grids, panels, strict=True):
                _lines(axes, outcome, (panel,), columns[panel], series, "ssim")
                axes.set_ylim(-0.1, 1.08)
                axes.set_title(panel, color=MUTED)
                axes.set_xlabel(x_label)
                if right is not None:
                    _beside(axes, outcome, panel, columns[panel], *right)
                _pictures(grid, outcome, panel, columns[panel], series)
            row[0].set_ylabel("SSIM")
            handles, labels = row[0].get_legend_handles_labels()
            if len(labels) > 1:
                above.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
        return figure

    return draw


def lines_over(x_label: str, y_label: str) -> Callable[[ArtifactResult], Figure]:
    """The metric of each series, the last place of a key, over the first."""

    def draw(outcome: ArtifactResult) -> Figure:
        with plot_style():
            figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
            axes = figure.add_subplot()
            series = outcome.places(-1)
            _lines(axes, outcome, (), outcome.places(0), series, outcome.artifact.metric)
            axes.set_xlabel(x_label)
            axes.set_ylabel(y_label)
            figure.legend(loc="outside lower center", ncols=len(series))
        return figure

    return draw


def over_time(outcome: ArtifactResult) -> Figure:
    """SSIM over the iterations with its deviation over victims as a shade, and a row of pictures per series."""
    cells = outcome.measured
    times = [int(t) for t in outcome.curve(cells[0].key)["iteration"]]
    with plot_style():
        tall = TILE * (len(cells) + 1)
        figure = Figure(
            figsize=(max(WIDTH, 2.2 + 1.15 * TILE * len(times)), HEIGHT + tall),
            layout="constrained",
        )
        (above,), (below,) = figure.subfigures(2, 1, squeeze=False, height_ratios=[HEIGHT, tall])
        axes = above.subplots()
        for number, cell in enumerate(cells):
            mean = outcome.curve(cell.key)
            colour, shape = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
            axes.plot(
                mean["iteration"], mean["ssim"], marker=shape, label=cell.key[-1],
                markersize=max(4, 8 - number), **look_of(number),
            )  # fmt: skip
            low, high = (
                [m + sign * d for m, d in zip(mean["ssim"], mean["deviation"], strict=True)]
                for sign in (-1, 1)
            )
            axes.fill_between(mean["iteration"], low, high, color=colour, alpha=0.12, linewidth=0)
        axes.set_xlabel("iteration t")
        axes.set_ylabel("SSIM")
        axes.set_ylim(-0.1, 1.08)
        above.legend(loc="outside lower center", ncols=min(4, len(cells)))
        table = below.subplots(len(cells) + 1, len(times), squeeze=False)
        shown = [_first_of(cell)["pictures_over_time"] for cell in cells]
        for column in range(len(times)):
            show_picture(table[0][column], shown[0][column]["truth"][0])
            table[0][column].set_title(f"t = {times[column]}", fontsize=8, color=MUTED)
            for number, pictures in enumerate(shown, start=1):
                show_picture(table[number][column], pictures[column]["guess"][0])
        for number, name in enumerate(["truth", *(cell.key[-1] for cell in cells)]):
            _name(table[number][0], name)
    return figure


@dataclass(frozen=True)
class Panel:
    """A column of curves: the label of its axis, and where that begins and ends."""

    column: str
    label: str
    log: bool = False
    within: tuple[float, float] | None = None


def two_panels(
    panels: Sequence[Panel], x: str, each: bool = False
) -> Callable[[ArtifactResult], Figure]:
    """Columns of curves side by side: means over the repeats, or each of them where a mean says nothing."""

    def draw(outcome: ArtifactResult) -> Figure:
        with plot_style():
            figure = Figure(figsize=(WIDTH + 1, HEIGHT), layout="constrained")
            row = figure.subplots(1, len(panels))
            for axes, panel in zip(row, panels, strict=True):
                for number, cell in enumerate(outcome.measured):
                    every = [one["curve"] for one in cell.values.values()]
                    for curve in every if each else [outcome.curve(cell.key)]:
                        axes.plot(
                            curve[x], plain(curve[panel.column]), "-" if each or number % 2 == 0 else "--",
                            color=PALETTE[number % len(PALETTE)], linewidth=1.2 if each else None,
                            label=" · ".join(cell.key),
                        )  # fmt: skip
                axes.set_xlabel(x)
                axes.set_ylabel(panel.label)
                if panel.log:
                    axes.set_yscale("log", nonpositive="mask")
                    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
                if panel.within:
                    axes.set_ylim(panel.within)
                if each:
                    axes.set_title(_leaving(outcome, panel), color=MUTED, fontsize=9)
            named = dict(zip(*reversed(row[0].get_legend_handles_labels()), strict=True))
            figure.legend(
                named.values(), named.keys(), loc="outside lower center", ncols=min(4, len(named)),
                title="a line per repeat" if each else None, title_fontsize=9,
            )  # fmt: skip
        return figure

    return draw


def _leaving(outcome: ArtifactResult, panel: Panel) -> str:
    """Which curves go beyond all bounds, in how many of their repeats."""
    top, words = panel.within[1] if panel.within else math.inf, []
    for cell in outcome.measured:
        every = [plain(one["curve"][panel.column]) for one in cell.values.values()]
        gone = sum(not all(value <= top for value in values) for values in every)
        words += [f"{' · '.join(cell.key)}: {gone} of {len(every)} repeats diverge"] if gone else []
    return "; ".join(words)


def _places(outcome: ArtifactResult, panel: str) -> list[str]:
    return list(dict.fromkeys(cell.key[1] for cell in outcome.measured if cell.key[0] == panel))


def _lines(
    axes: Axes,
    outcome: ArtifactResult,
    before: Key,
    places: list[str],
    series: list[str],
    metric: str,
) -> None:
    """A line per series over the places of keys (*before, place, series)."""
    for number, name in enumerate(series):
        colour, shape = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
        here = [place for place in places if (*before, place, name) in outcome]
        keys = [(*before, place, name) for place in here]
        means = [outcome.mean(key, metric) for key in keys]
        if len(here) == 1 < len(places):  # it does not depend on what is varied
            axes.axhline(means[0], color=colour, linestyle=(0, (4, 2 + 2 * number)), label=name)
            continue
        shift = 0.05 * (number - (len(series) - 1) / 2)  # so that equal ones do not hide each other
        at = [places.index(place) + shift for place in here]
        wide = [outcome.deviation(key, metric) or 0.0 for key in keys]
        axes.errorbar(
            at,
            means,
            yerr=wide if any(wide) else None,
            fmt=shape + "-",
            color=colour,
            label=name,
            capsize=2,
        )
    axes.set_xticks(range(len(places)), places)
    axes.set_xlim(-0.3, len(places) - 0.7)


def _beside(
    axes: Axes, outcome: ArtifactResult, panel: str, places: list[str], metric: str, label: str
) -> None:
    found = [
        (cell.key[1], cell.numbers(metric)) for cell in outcome.measured if cell.key[0] == panel
    ]
    known = [
        (places.index(place), sum(numbers) / len(numbers)) for place, numbers in found if numbers
    ]
    if not known:
        return
    other = axes.twinx()
    other.plot(*zip(*known, strict=True), ":", color=PALETTE[4], marker="x")
    other.set_ylabel(label, color=PALETTE[4])
    other.set_ylim(0, 108)
    other.grid(False)


def _pictures(
    grid: Any, outcome: ArtifactResult, panel: str, places: list[str], series: list[str]
) -> None:
    table = grid.subplots(len(series) + 1, len(places), squeeze=False)
    for column, place in enumerate(places):
        true = None
        for number, name in enumerate(series, start=1):
            if (panel, place, name) not in outcome:
                show_picture(table[number][column], None)
                continue
            pictures = _first_of(outcome[panel, place, name])["pictures"]
            true = true or pictures["truth"][0]
            show_picture(table[number][column], pictures["guess"][0])
        show_picture(table[0][column], true)
        table[0][column].set_title(place, fontsize=8, color=MUTED)
    here = [name for name in series if any((panel, place, name) in outcome for place in places)]
    for number, name in enumerate(["truth", *series]):
        _name(table[number][0], name if name in ("truth", *here) else "")


def _first_of(cell: Filled) -> dict[str, Any]:
    return cell.values[min(cell.values)]


def show_picture(axes: Axes, picture: Picture | None) -> None:
    """A picture without a frame; an empty place where there is none."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_box_aspect(1)  # of an empty place too, so that what is written beside it is in line
    if picture is not None:
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1)


def _name(axes: Axes, name: str) -> None:
    axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
