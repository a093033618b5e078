"""Figures of searches: a row per setting, and the paper's numbers as lines."""

from __future__ import annotations

from matplotlib.figure import Figure

from tacit.report.style import MUTED, plot_style
from tacit_papers.framework.drawing import WIDTH, Draw, colour_and_marker, legend_below
from tacit_papers.framework.results import ArtifactResult

ROW, TITLE = 0.24, 0.45  # inches


def search_figure(label: str) -> Draw:
    """A panel per label of the first axis, a row per setting, a colour per label of the last."""

    def draw(result: ArtifactResult) -> Figure:
        panels, columns = result.labels(0), result.labels(-1)
        settings = {
            panel: list(
                dict.fromkeys(cell.key[1:-1] for cell in result.measured if cell.key[0] == panel)
            )
            for panel in panels
        }
        heights = [TITLE + ROW * len(rows) for rows in settings.values()]
        with plot_style():
            figure = Figure(figsize=(1.6 * WIDTH, sum(heights) + 1), layout="constrained")
            grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
            for axes, (panel, rows) in zip(grid, settings.items(), strict=True):
                for number, column in enumerate(columns):
                    colour, shape = colour_and_marker(number)
                    here = {
                        row: result[panel, *setting, column]
                        for row, setting in enumerate(rows)
                        if (panel, *setting, column) in result
                    }
                    means = [result.mean(cell.key) for cell in here.values()]
                    axes.plot(means, list(here), shape, color=colour, label=column)
                    for paper in {cell.paper.mean for cell in here.values() if cell.paper}:
                        axes.axvline(paper, color=colour, linestyle="--", linewidth=1)
                axes.set_yticks(range(len(rows)), [" · ".join(row) for row in rows], fontsize=8)
                axes.set_ylim(len(rows) - 0.5, -0.5)
                axes.set_title(panel, color=MUTED, fontsize=9)
            grid[-1].set_xlabel(f"{label}; dashed: the paper's")
            legend_below(figure, grid[0])
        return figure

    return draw
