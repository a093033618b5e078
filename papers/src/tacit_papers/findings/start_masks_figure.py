"""The figure of what a curious neighbour inverts: SSIM, that of the class mean, and pictures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report.style import MARKERS, MUTED, PALETTE, plot_style
from tacit_papers.framework.cells import Key
from tacit_papers.framework.drawing import (
    HEIGHT,
    Draw,
    label_points,
    picture_grid,
    plot_means,
    split,
)
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.framework.stored_values import unpacked

TILE = 0.74  # inches per picture
COLOURS = (*PALETTE, "#332288")


def leak_figure(panels: Mapping[str, str], later: str) -> Draw:
    """SSIM by panel, given labels of their axes; below, pictures of the first and of `later`."""

    def draw(result: ArtifactResult) -> Figure:
        shown = [panel for panel in panels if panel in result.labels(0)]
        first, times = shown[0], result.labels(1, later)
        upper, lower = HEIGHT + 0.6, TILE * 2 * len(result.labels(1, first)[:2]) + 0.9
        with plot_style():
            figure = Figure(figsize=(10.5, upper + lower), layout="constrained")
            above, below = split(figure, 2, 1, height_ratios=[upper, lower])
            line = above.subplots(1, len(shown), squeeze=False, sharey=True)[0]
            for axes, panel in zip(line, shown, strict=True):
                _lines(axes, result, panel)
                axes.set_xlabel(panels[panel])
            line[0].set_ylabel("SSIM")
            named = {
                name: handle
                for axes in line
                for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
            }
            title = "solid: computed exactly; dashed: under the noise of masks"
            where: dict[str, Any] = {"loc": "outside lower center", "ncols": min(4, len(named))}
            above.legend(named.values(), named.keys(), title=title, title_fontsize=9, **where)
            widths = [len(result.labels(2)), max(1, len(times)) + 0.8]
            left, right = split(below, 1, 2, width_ratios=widths)
            if first != later:
                _by_evidence(left, result, first)
            if times:
                _by_time(right, result, later, times)
        return figure

    return draw


def _lines(axes: Axes, result: ArtifactResult, panel: str) -> None:
    labels, every = result.labels(1, panel), result.labels(2)
    for name in result.labels(2, panel):
        number = every.index(name)
        keys = {x: (panel, label, name) for x, label in enumerate(labels)}
        exact = all(result.mean(key, "exact") == 1 for key in keys.values() if key in result)
        plot_means(
            axes,
            result,
            keys,
            "ssim",
            fmt=MARKERS[number % len(MARKERS)],
            linestyle="-" if exact else "--",
            color=COLOURS[number % len(COLOURS)],
            label=name,
        )
    means = [_class_mean(result, panel, label) for label in labels]
    at = [-0.3, *range(len(labels)), len(labels) - 0.7]
    style: dict[str, Any] = {"color": MUTED, "linestyle": ":", "linewidth": 2, "zorder": 1}
    axes.plot(at, [means[0], *means, means[-1]], label="mean of the class", **style)
    label_points(axes, labels)
    axes.set_ylim(-0.1, 1.08)
    axes.set_title(panel, color=MUTED)


def _class_mean(result: ArtifactResult, panel: str, label: str) -> float:
    cells = [cell for cell in result.measured if cell.key[:2] == (panel, label)]
    found = [number for cell in cells for number in cell.numbers("ssim_of_class_mean")]
    return sum(found) / len(found)


def _by_evidence(part: Any, result: ArtifactResult, panel: str) -> None:
    """Truth and reconstruction, a column per evidence, for the first two labels of a panel."""
    labels = result.labels(1, panel)[:2]
    columns = []
    for name in result.labels(2, panel):
        keys = [(panel, label, name) for label in labels]
        pictures = [_picture(result, key, which) for key in keys for which in ("truth", "guess")]
        columns.append((_wrapped(name), pictures))
    rows = [row for label in labels for row in (f"batch {label}\ntruth", "found")]
    picture_grid(part, columns, rows)
    part.suptitle(f"{panel}: one sample of the first victim", fontsize=9, color=MUTED)


def _by_time(part: Any, result: ArtifactResult, panel: str, times: list[str]) -> None:
    """The truth and the reconstructions from each evidence, a column per time."""
    series = result.labels(2, panel)
    columns = []
    for when in times:
        keys = [(panel, when, name) for name in series]
        truths = [_picture(result, key, "truth") for key in keys if key in result]
        guesses = [_picture(result, key, "guess") for key in keys]
        columns.append((f"round {when}", [truths[0], *guesses]))
    picture_grid(part, columns, ["truth", *map(_wrapped, series)])
    part.suptitle(panel, fontsize=9, color=MUTED)


def _wrapped(name: str) -> str:
    unbroken = name.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return "\n".join(textwrap.wrap(unbroken, 11))


def _picture(result: ArtifactResult, key: Key, which: str) -> Any:
    return unpacked(result[key].first["pictures"][which][0]) if key in result else None
