"""Figures of artifacts: tables as points beside the paper's, curves, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tacit.report.style import MARKERS, MUTED, PALETTE, plot_style
from tacit_papers.framework.cells import Key
from tacit_papers.framework.results import ArtifactResult, CellResult, numbers

Draw = Callable[[ArtifactResult], Figure]
WIDTH, HEIGHT = 6.4, 3.4  # inches
GROUP_WIDTH = 0.7  # of the points of one group; groups are 1 apart
SLANTED = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}


def colour_and_marker(number: int) -> tuple[str, str]:
    return PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]


def line_style(number: int) -> dict[str, Any]:
    """Colour, dashes and width of a curve: later ones are thinner, so equal ones stay visible."""
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": ("-", "--", "-.", ":")[number % 4],
        "linewidth": max(1.5, 2.7 - 0.4 * number),
    }


def log_scale(axes: Axes, **options: Any) -> None:
    axes.set_yscale("log", **options)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def legend_below(figure: Any, axes: Axes, columns: int = 4) -> None:
    """A legend for the whole figure, with the entries of one of its panels."""
    handles, labels = axes.get_legend_handles_labels()
    count = min(columns, max(1, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=count)


def split(figure: Any, rows: int, columns: int, **ratios: Any) -> Any:
    """Parts of a figure, to draw in separately."""
    return figure.subfigures(rows, columns, **ratios)


def plot_published(axes: Axes, points: Mapping[Any, float], shape: str, colour: str) -> None:
    """The paper's numbers, as hollow points."""
    if points:
        style: dict[str, Any] = {"color": colour, "markerfacecolor": "none", "markersize": 10}
        axes.plot(list(points), list(points.values()), shape, **style)


def show_picture(axes: Axes, picture: Any, cmap: str = "gray", white: float = 1) -> None:
    """A picture without a frame; an empty space if it is None."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    # Also for an empty space, so that labels beside it are aligned.
    axes.set_box_aspect(1)
    if picture is not None:
        axes.imshow(picture, cmap=cmap, vmin=0, vmax=white)


def picture_grid(
    figure: Any, columns: Sequence[tuple[str, Sequence[Any]]], rows: Sequence[str], **options: Any
) -> None:
    """Columns (title, pictures) with a label per row; options are those of `show_picture`."""
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    for column, (title, pictures) in zip(grid.T, columns, strict=True):
        for axes, picture in zip(column, pictures, strict=True):
            show_picture(axes, picture, **options)
        column[0].set_title(title, fontsize=8, color=MUTED)
    for axes, label in zip(grid[:, 0], rows, strict=True):
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)


def plot_means(
    axes: Axes, result: ArtifactResult, points: Mapping[Any, Key], metric: str, **style: Any
) -> None:
    """Means with deviations of the measured cells among points {x: key}."""
    here = {x: key for x, key in points.items() if key in result}
    means = [result.mean(key, metric) for key in here.values()]
    bars = [result.deviation(key, metric) or 0.0 for key in here.values()]
    axes.errorbar(list(here), means, yerr=bars if any(bars) else None, capsize=2, **style)


def label_points(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.3, len(labels) - 0.7)


def beside_paper(label: str, log: bool = False) -> Draw:
    """Our numbers, filled, beside the paper's, hollow: a group per row, a colour per column.

    A bar is the deviation over the repeats. A logarithmic axis has no room for a deviation larger
    than the mean: there it goes from the lowest repeat to the highest.
    """

    def draw(result: ArtifactResult) -> Figure:
        cells = result.measured
        rows = list(dict.fromkeys(" · ".join(cell.key[:-1]) for cell in cells))
        columns = result.labels(-1)
        with plot_style():
            figure = Figure(figsize=(max(WIDTH, 0.9 * len(rows)), HEIGHT), layout="constrained")
            axes = figure.add_subplot()
            for number, column in enumerate(columns):
                colour, shape = colour_and_marker(number)
                shift = GROUP_WIDTH * ((number + 0.5) / len(columns) - 0.5)
                here = {
                    rows.index(" · ".join(cell.key[:-1])) + shift: cell
                    for cell in cells
                    if cell.key[-1] == column
                }
                axes.errorbar(
                    list(here),
                    [result.mean(cell.key) for cell in here.values()],
                    yerr=_error_bars(result, list(here.values()), log),
                    fmt=shape,
                    color=colour,
                    label=column,
                    capsize=2,
                )
                papers = {x: cell.paper.mean for x, cell in here.items() if cell.paper is not None}
                plot_published(axes, papers, shape, colour)
            slant: dict[str, Any] = {} if len(rows) < 7 else SLANTED
            axes.set_xticks(range(len(rows)), rows, **slant)
            axes.set_xlim(-0.5, len(rows) - 0.5)
            axes.set_ylabel(label)
            if log:
                log_scale(axes)
            bars = "from the lowest to the highest repeat" if log else "deviation over repeats"
            title = f"filled: ours; hollow: the paper's; bars: {bars}"
            figure.legend(
                loc="outside lower center", ncols=len(columns), title=title, title_fontsize=9
            )
        return figure

    return draw


def _error_bars(result: ArtifactResult, cells: Sequence[CellResult], log: bool) -> Any:
    if not log:
        return [result.deviation(cell.key) or 0.0 for cell in cells]
    repeats = [cell.numbers(result.metric) for cell in cells]
    means = [result.mean(cell.key) for cell in cells]
    return [
        [mean - min(each) for mean, each in zip(means, repeats, strict=True)],
        [max(each) - mean for mean, each in zip(means, repeats, strict=True)],
    ]


def curves(y: str, label: str, x: str = "round") -> Draw:
    """A curve per cell: the mean over the repeats, and each repeat in a light shade.

    There is a panel per label on the first axis, if there is more than one axis.
    """

    def draw(result: ArtifactResult) -> Figure:
        panels = result.labels(0) if len(result.axes) > 1 else [""]
        names = result.labels(-1)
        with plot_style():
            figure = Figure(figsize=(max(WIDTH, 3.4 * len(panels)), HEIGHT), layout="constrained")
            row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
            for axes, panel in zip(row, panels, strict=True):
                for cell in result.measured:
                    if panel not in ("", cell.key[0]):
                        continue
                    number = names.index(cell.key[-1])
                    faint = {"color": PALETTE[number % len(PALETTE)], "alpha": 0.25, "lw": 0.8}
                    for one in cell.values.values():
                        axes.plot(one["curve"][x], numbers(one["curve"][y]), **faint)
                    mean = result.curve(cell.key)
                    name = " · ".join(cell.key[1:]) or cell.key[0]
                    axes.plot(mean[x], mean[y], label=name, **line_style(number))
                axes.set_title(panel, color=MUTED)
                axes.set_xlabel(x)
            row[0].set_ylabel(label)
            legend_below(figure, row[0])
        return figure

    return draw


def write_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write figure.svg and figure.png, on white; equal figures give equal files."""
    written = []
    for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        path = folder / f"figure.{kind}"
        with plot_style():
            figure.savefig(path, dpi=150, facecolor="white", metadata=metadata)
        written.append(path)
    return written
