"""The figure of accuracy against ε: a panel per dataset, a curve per algorithm."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from tacit.report.style import MUTED, plot_style
from tacit_papers.findings.private_training_settings import (
    ALGORITHMS,
    CENTRAL,
    NO_GUARANTEE,
    Study,
    studies,
)
from tacit_papers.framework.drawing import HEIGHT, colour_and_marker, legend_below, plot_means
from tacit_papers.framework.results import ArtifactResult

PANEL = 4.2  # inches


def draw(result: ArtifactResult) -> Figure:
    """Means over the seeds with deviations, for datasets with several ε."""
    panels = {name: study for name, study in studies(result.scale).items() if len(study.decor) > 1}
    with plot_style():
        figure = Figure(figsize=(PANEL * max(2, len(panels)), HEIGHT + 0.6), layout="constrained")
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (name, study) in zip(row, panels.items(), strict=True):
            _draw_panel(axes, result, name, study)
        row[0].set_ylabel("test accuracy (%)")
        legend_below(figure, row[0], columns=3)
    return figure


def _draw_panel(axes: Axes, result: ArtifactResult, name: str, study: Study) -> None:
    for number, algorithm in enumerate(ALGORITHMS):
        colour, marker = colour_and_marker(number)
        points = {float(epsilon): (name, epsilon, algorithm) for epsilon in study.private}
        style: dict[str, Any] = {"color": colour, "marker": marker, "label": algorithm}
        if algorithm == CENTRAL:
            # Hollow and dashed, so that private-sgd stays visible below it.
            style |= {"linestyle": "--", "markerfacecolor": "none", "markersize": 8}
        plot_means(axes, result, points, result.metric, **style)
    plain = (name, NO_GUARANTEE, "dsgt")
    if plain in result:
        style = {"color": MUTED, "linestyle": ":", "linewidth": 1.2}
        axes.axhline(result.mean(plain), label="dsgt, no guarantee", **style)
    axes.margins(x=0.05, y=0.08)
    axes.set_xscale("log")
    axes.set_xticks([float(epsilon) for epsilon in study.private], list(study.private))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("ε of the whole run, δ = 10⁻⁵")
    axes.set_title(name, color=MUTED)
