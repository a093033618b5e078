"""The figure of what a curious neighbour inverts: SSIM beside that of the class mean, and pictures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report.style import MUTED, PALETTE, MARKERS, plot_style
from tacit_papers.framework.artifact import Key
from tacit_papers.framework.drawing import HEIGHT
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.framework.picture_drawing import show_picture

TILE = 0.74  # inches that a picture takes
COLOURS = (*PALETTE, "#332288")
BASE = "ssim_of_class_mean"


def leak_figure(outcome: ArtifactResult, panels: Mapping[str, str], later: str) -> Figure:
    """SSIM by panels, each with the label of its axis; below, pictures of the first panel and of `later`."""
    shown = [panel for panel in panels if panel in outcome.places(0)]
    everyone = outcome.places(2)
    first = shown[0]
    rows = 2 * len(_places(outcome, first)[:2])
    with plot_style():
        tall = TILE * rows + 0.9
        figure = Figure(figsize=(10.5, HEIGHT + 0.6 + tall), layout="constrained")
        (above,), (below,) = figure.subfigures(
            2, 1, squeeze=False, height_ratios=[HEIGHT + 0.6, tall]
        )
        line = above.subplots(1, len(shown), squeeze=False, sharey=True)[0]
        for axes, panel in zip(line, shown, strict=True):
            _lines(axes, outcome, panel, everyone)
            axes.set_xlabel(panels[panel])
        line[0].set_ylabel("SSIM")
        named = {
            name: handle
            for axes in line
            for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        above.legend(
            named.values(),
            named.keys(),
            loc="outside lower center",
            ncols=min(4, len(named)),
            title="solid: computed exactly; dashed: under the noise of masks",
            title_fontsize=9,
        )
        times = _places(outcome, later)
        left, right = below.subfigures(1, 2, width_ratios=[len(everyone), max(1, len(times)) + 0.8])
        if first != later:
            _by_evidence(left, outcome, first)
        if times:
            _by_time(right, outcome, later, times)
    return figure


def _places(outcome: ArtifactResult, panel: str) -> list[str]:
    return list(dict.fromkeys(cell.key[1] for cell in outcome.measured if cell.key[0] == panel))


def _series(outcome: ArtifactResult, panel: str) -> list[str]:
    return list(dict.fromkeys(cell.key[2] for cell in outcome.measured if cell.key[0] == panel))


def _lines(axes: Axes, outcome: ArtifactResult, panel: str, everyone: list[str]) -> None:
    places = _places(outcome, panel)
    for name in _series(outcome, panel):
        number = everyone.index(name)
        colour = COLOURS[number % len(COLOURS)]
        here = [place for place in places if (panel, place, name) in outcome]
        keys: list[Key] = [(panel, place, name) for place in here]
        axes.errorbar(
            [places.index(place) for place in here],
            [outcome.mean(key) for key in keys],
            yerr=[outcome.deviation(key) or 0.0 for key in keys],
            fmt=MARKERS[number % len(MARKERS)],
            linestyle="-" if all(outcome.mean(key, "exact") == 1 for key in keys) else "--",
            color=colour, label=name, capsize=2,
        )  # fmt: skip
    found = [
        [
            n
            for cell in outcome.measured
            if cell.key[:2] == (panel, place)
            for n in cell.numbers(BASE)
        ]
        for place in places
    ]
    means = [sum(numbers) / len(numbers) for numbers in found]
    axes.plot(
        [-0.3, *range(len(places)), len(places) - 0.7],
        [means[0], *means, means[-1]],
        color=MUTED, linestyle=":", linewidth=2, label="mean of the class", zorder=1,
    )  # fmt: skip
    axes.set_xticks(range(len(places)), places)
    axes.set_xlim(-0.3, len(places) - 0.7)
    axes.set_ylim(-0.1, 1.08)
    axes.set_title(panel, color=MUTED)


def _by_evidence(part: Any, outcome: ArtifactResult, panel: str) -> None:
    """Truth and guess of a column's evidence, for the first two places of a panel."""
    series, places = _series(outcome, panel), _places(outcome, panel)[:2]
    grid = part.subplots(2 * len(places), len(series), squeeze=False)
    for row, place in enumerate(places):
        for column, name in enumerate(series):
            told = _pictures(outcome, (panel, place, name))
            for line, which in enumerate(("truth", "guess")):
                show_picture(grid[2 * row + line][column], told[which][0] if told else None)
        grid[2 * row][0].set_ylabel(
            f"batch {place}\ntruth", rotation=0, ha="right", va="center", fontsize=8
        )
        grid[2 * row + 1][0].set_ylabel("found", rotation=0, ha="right", va="center", fontsize=8)
    for column, name in enumerate(series):
        grid[0][column].set_title(_wrapped(name), fontsize=8, color=MUTED)
    part.suptitle(f"{panel}: one sample of the first victim", fontsize=9, color=MUTED)


def _by_time(part: Any, outcome: ArtifactResult, panel: str, times: list[str]) -> None:
    """The truth, and what is found of it with each evidence, by time."""
    series = _series(outcome, panel)
    grid = part.subplots(len(series) + 1, len(times), squeeze=False)
    for column, when in enumerate(times):
        found = [_pictures(outcome, (panel, when, name)) for name in series]
        truth = next((told["truth"][0] for told in found if told), None)
        shown = [truth, *(told["guess"][0] if told else None for told in found)]
        for line, picture in enumerate(shown):
            show_picture(grid[line][column], picture)
        grid[0][column].set_title(f"round {when}", fontsize=8, color=MUTED)
    for line, name in enumerate(["truth", *series]):
        words = _wrapped(name)
        grid[line][0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=8)
    part.suptitle(panel, fontsize=9, color=MUTED)


def _wrapped(name: str) -> str:
    return "\n".join(
        textwrap.wrap(name.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"), 11)
    )


def _pictures(outcome: ArtifactResult, key: Key) -> dict[str, Any] | None:
    if key not in outcome:
        return None
    values = outcome[key].values
    found: dict[str, Any] = values[min(values)]["pictures"]
    return found
