"""Curves over rounds, and with them all figures a report is made of; each function returns a new Figure.

svg(accuracy_figure([Series("lppa", (run.history,)), Series("dsgt", (other.history,))]))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator

from tacit.report.curves import (
    Curve,
    Numbers,
    Series,
    finite,
    in_decibels,
    scalar_line,
    spread_line,
)
from tacit.report.drawings import can_draw, graph_figure, partition_figure
from tacit.report.style import MUTED, series_style, plot_style, svg, legend_label

__all__ = [
    "Series", "accuracy_by_bytes_figure", "accuracy_figure", "bytes_figure", "can_draw", "consensus_figure",
    "graph_figure", "loss_figure", "msd_figure", "partition_figure", "svg",
]  # fmt: skip

WIDTH, HEIGHT, LEGEND_ROW = 5.6, 3.1, 0.2  # inches
CROWD = 6  # of more lines only the means are drawn


def accuracy_figure(series: Sequence[Series]) -> Figure:
    """Accuracy in percent over rounds: mean and range, and dashed the average model."""
    figure, axes = _canvas(series, "round", "accuracy (%)", spread=True)
    with plot_style():
        _draw(axes, [spread_line(one, "accuracy") for one in series])
        _within(axes, 0, 100)
    return figure


def loss_figure(series: Sequence[Series]) -> Figure:
    """Loss over rounds likewise, on a log scale where it spans more than two decades."""
    lines = [spread_line(one, "loss") for one in series]
    figure, axes = _canvas(series, "round", "loss", spread=True)
    with plot_style():
        _draw(axes, lines)
        values = finite(
            *(part for line in lines for part in (line.values, line.low, line.average_model))
        )
        if len(values) and values.min() > 0 and values.max() > 100 * values.min():
            _log(axes)
        elif len(values) and values.min() >= 0:
            _within(axes, 0, math.inf)
    return figure


def msd_figure(series: Sequence[Series]) -> Figure:
    """Mean-square deviation from the optimum over iterations in decibels; of several seeds, that of their mean."""
    figure, axes = _canvas(series, "iteration", "MSD (dB)")
    with plot_style():
        _draw(axes, [in_decibels(scalar_line(one, "msd", over="step")) for one in series])
    return figure


def consensus_figure(series: Sequence[Series]) -> Figure:
    """How far the clients' models are apart over rounds, on a log scale; zeros are gaps."""
    lines = [scalar_line(one, "consensus_distance") for one in series]
    figure, axes = _canvas(series, "round", "consensus distance")
    with plot_style():
        _draw(axes, lines)
        if (finite(*(line.values for line in lines)) > 0).any():
            _log(axes)
    return figure


def bytes_figure(series: Sequence[Series]) -> Figure:
    """Bytes sent by all clients together since the start."""
    figure, axes = _canvas(series, "round", "sent by all clients")
    with plot_style():
        _draw(axes, [scalar_line(one, "bytes_sent") for one in series])
        axes.yaxis.set_major_formatter(EngFormatter(unit="B"))
        _within(axes, 0, math.inf)
    return figure


def accuracy_by_bytes_figure(series: Sequence[Series]) -> Figure:
    """What accuracy costs in communication: accuracy against bytes sent."""
    figure, axes = _canvas(series, "sent by all clients", "accuracy (%)", spread=True)
    lines = []
    for one in series:
        line, sent = spread_line(one, "accuracy"), scalar_line(one, "bytes_sent").values
        lines.append(Curve(sent, line.values, line.low, line.high, line.average_model))
    with plot_style():
        _draw(axes, lines)
        _within(axes, 0, 100)
        axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
        axes.xaxis.set_major_locator(MaxNLocator(6))
    return figure


# --- from lines to figures -----------------------------------------------------------------------------


def _canvas(
    series: Sequence[Series], x: str, y: str, *, spread: bool = False
) -> tuple[Figure, Any]:
    runs, key = _legend(series, spread)
    widest = max((len(handle.get_label()) for handle in [*runs, *key]), default=0)
    columns = max(1, min(3, max(len(runs), len(key)), 78 // (widest + 7)))
    blank = [Line2D([], [], alpha=0, label=" ")] * (-len(runs) % columns if key else 0)
    handles = [*runs, *blank, *key]
    rows = math.ceil(len(handles) / columns)
    by_column = [handle for column in range(columns) for handle in handles[column::columns]]
    with plot_style():
        figure = Figure(figsize=(WIDTH, HEIGHT + LEGEND_ROW * rows), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
        if handles:
            figure.legend(handles=by_column, loc="outside lower center", ncols=columns)
    return figure, axes


def _legend(series: Sequence[Series], spread: bool) -> tuple[list[Any], list[Any]]:
    """One entry per run where there are several, and what lines and bands mean."""
    over = [name for name, some in _ranges(series, spread).items() if some]
    averages = spread and len(series) <= CROWD
    key: list[Any] = []
    colour = series_style(0)[0] if len(series) == 1 else MUTED
    with plot_style():
        if spread:
            key.append(Line2D([], [], color=colour, label="mean over clients"))
        if averages:
            key.append(
                Line2D([], [], color=colour, linestyle="--", linewidth=1.3, label="average model")
            )
        if over:
            key.append(Patch(facecolor=colour, alpha=0.2, label=f"range over {' or '.join(over)}"))
        if len(series) == 1:
            return [], key
        runs: list[Any] = []
        for number, one in enumerate(series):
            colour, shape, _ = series_style(number)
            runs.append(Line2D([], [], color=colour, marker=shape, label=legend_label(one.label)))
    return runs, key


def _ranges(series: Sequence[Series], spread: bool) -> dict[str, bool]:
    """Over what the bands range: the seeds of several runs, the clients of one."""
    drawn = len(series) <= CROWD
    return {
        "seeds": drawn and any(len(one.histories) > 1 for one in series),
        "clients": drawn and spread and any(len(one.histories) == 1 for one in series),
    }


def _draw(axes: Any, lines: Sequence[Curve]) -> None:
    for number, line in enumerate(lines):
        colour, shape, _ = series_style(number)
        crowded = len(lines) > CROWD
        if line.low is not None and line.high is not None and not crowded:
            band = axes.fill_between(
                line.rounds,
                line.low,
                line.high,
                color=colour,
                alpha=0.2 if len(lines) == 1 else 0.16,
            )
            band.set_linewidth(0)
        if line.average_model is not None and not crowded:
            axes.plot(
                line.rounds,
                line.average_model,
                color=colour,
                linestyle="--",
                linewidth=1.3,
                zorder=2,
            )
        marked = _alone(line.values)
        if len(lines) > 1:
            step = max(1, len(line.values) // 6)
            marked |= set(range(number * step // len(lines), len(line.values), step))
        axes.plot(
            line.rounds,
            line.values,
            color=colour,
            marker=shape,
            markevery=sorted(marked),
            zorder=3,
            gid="mean",
        )


def _alone(values: Numbers) -> set[int]:
    """Where a value has no neighbour to draw a line to."""
    there = np.pad(np.isfinite(values), 1)
    return {int(k) for k in np.flatnonzero(there[1:-1] & ~there[:-2] & ~there[2:])}


def _within(axes: Any, low: float, high: float) -> None:
    bottom, top = axes.get_ylim()
    axes.set_ylim(
        max(bottom, low) if bottom < low else bottom, min(top, high + 1 if high < math.inf else top)
    )


def _log(axes: Any) -> None:
    axes.set_yscale("log", nonpositive="mask")
    bottom, top = axes.get_ylim()
    axes.yaxis.set_major_formatter(FuncFormatter(_power))
    if top < 30 * bottom:
        axes.yaxis.set_minor_locator(
            LogLocator(subs=(2, 5) if top > 6 * bottom else (1.5, 2, 3, 4, 5, 6, 8))
        )
        axes.yaxis.set_minor_formatter(FuncFormatter(_power))
    else:
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, place: ""))


def _power(value: float, place: int | None = None) -> str:
    exponent = math.log10(value) if value > 0 else math.nan
    if abs(exponent) <= 3.01 or not math.isclose(exponent, round(exponent), abs_tol=1e-9):
        return f"{value:g}"
    return "10" + str(round(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
