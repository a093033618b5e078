"""Curves over rounds, and with them all figures a report is made of; each function returns a new Figure.

svg(accuracy_figure([Series("lppa", (run.history,)), Series("dsgt", (other.history,))]))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator

from tacit.experiment.drawings import can_draw, graph_figure, partition_figure
from tacit.experiment.style import MUTED, look, styled, svg, visible
from tacit.record.history import History

__all__ = [
    "Series", "accuracy_by_bytes_figure", "accuracy_figure", "bytes_figure", "can_draw", "consensus_figure",
    "graph_figure", "loss_figure", "partition_figure", "svg",
]  # fmt: skip

Numbers = npt.NDArray[np.float64]
WIDTH, HEIGHT, LEGEND_ROW = 5.6, 3.1, 0.2  # inches
POINTS = 1_000  # more along one line are not seen, and make the page heavy


@dataclass(frozen=True)
class Series:
    """What is drawn as one line: a run, or several that differ in their seeds only."""

    label: str
    histories: tuple[History, ...]


@dataclass(frozen=True)
class _Line:
    rounds: Numbers
    values: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    average_model: Numbers | None = None


def accuracy_figure(series: Sequence[Series]) -> Figure:
    """Accuracy in percent over rounds: mean and range, and dashed the average model."""
    figure, axes = _canvas(series, "round", "accuracy (%)", spread=True)
    with styled():
        _draw(axes, [_spread(one, "accuracy") for one in series])
        _within(axes, 0, 100)
    return figure


def loss_figure(series: Sequence[Series]) -> Figure:
    """Loss over rounds likewise, on a log scale where it spans more than two decades."""
    lines = [_spread(one, "loss") for one in series]
    figure, axes = _canvas(series, "round", "loss", spread=True)
    with styled():
        _draw(axes, lines)
        values = _finite(*(part for line in lines for part in (line.values, line.low, line.average_model)))
        if len(values) and values.min() > 0 and values.max() > 100 * values.min():
            _log(axes)
        elif len(values) and values.min() >= 0:
            _within(axes, 0, math.inf)
    return figure


def consensus_figure(series: Sequence[Series]) -> Figure:
    """How far the clients' models are apart over rounds, on a log scale; zeros are gaps."""
    lines = [_scalar(one, "consensus_distance") for one in series]
    figure, axes = _canvas(series, "round", "consensus distance")
    with styled():
        _draw(axes, lines)
        if (_finite(*(line.values for line in lines)) > 0).any():
            _log(axes)
    return figure


def bytes_figure(series: Sequence[Series]) -> Figure:
    """Bytes sent by all clients together since the start."""
    figure, axes = _canvas(series, "round", "sent by all clients")
    with styled():
        _draw(axes, [_scalar(one, "bytes_sent") for one in series])
        axes.yaxis.set_major_formatter(EngFormatter(unit="B"))
        _within(axes, 0, math.inf)
    return figure


def accuracy_by_bytes_figure(series: Sequence[Series]) -> Figure:
    """What accuracy costs in communication: accuracy against bytes sent."""
    figure, axes = _canvas(series, "sent by all clients", "accuracy (%)", spread=True)
    lines = []
    for one in series:
        line, sent = _spread(one, "accuracy"), _scalar(one, "bytes_sent").values
        lines.append(_Line(sent, line.values, line.low, line.high, line.average_model))
    with styled():
        _draw(axes, lines)
        _within(axes, 0, 100)
        axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
        axes.xaxis.set_major_locator(MaxNLocator(6))
    return figure


# --- from histories to lines ---------------------------------------------------------------------------


def _spread(series: Series, metric: str) -> _Line:
    rounds, mean = _columns(series, f"{metric}.mean")
    average = _columns(series, f"{metric}.average_model")[1].mean(0)
    if len(series.histories) > 1:
        return _Line(rounds, mean.mean(0), mean.min(0), mean.max(0), average)
    low, high = (_columns(series, f"{metric}.{end}")[1][0] for end in ("min", "max"))
    return _Line(rounds, mean[0], low, high, average)


def _scalar(series: Series, metric: str) -> _Line:
    rounds, values = _columns(series, metric)
    if len(series.histories) > 1:
        return _Line(rounds, values.mean(0), values.min(0), values.max(0))
    return _Line(rounds, values[0])


def _columns(series: Series, metric: str) -> tuple[Numbers, Numbers]:
    """The rounds that all histories have, and the metric there: [R] and [histories, R]."""
    tables = [
        dict(zip((record.round for record in history), history.column(metric), strict=True))
        for history in series.histories
    ]
    rounds = sorted(set.intersection(*(set(table) for table in tables)))
    stride = max(1, math.ceil(len(rounds) / POINTS))
    rounds = rounds[: -1 if stride > 1 else None : stride] + (rounds[-1:] if stride > 1 else [])
    values = np.array([[table[r] for r in rounds] for table in tables], dtype=np.float64)
    return np.array(rounds, dtype=np.float64), np.where(np.isfinite(values), values, np.nan)


def _finite(*parts: Numbers | None) -> Numbers:
    values: Numbers = np.concatenate([np.zeros(0), *(part for part in parts if part is not None)])
    finite: Numbers = values[np.isfinite(values)]
    return finite


# --- from lines to figures -----------------------------------------------------------------------------


def _canvas(series: Sequence[Series], x: str, y: str, *, spread: bool = False) -> tuple[Figure, Any]:
    handles = _legend(series, spread)
    widest = max((len(handle.get_label()) for handle in handles), default=0)
    columns = max(1, min(3, len(handles), 78 // (widest + 7)))
    rows = math.ceil(len(handles) / columns)
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT + LEGEND_ROW * rows), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    return figure, axes


def _legend(series: Sequence[Series], spread: bool) -> list[Any]:
    over_seeds = any(len(one.histories) > 1 for one in series)
    key: list[Any] = []
    colour = look(0)[0] if len(series) == 1 else MUTED
    with styled():
        if spread:
            key.append(Line2D([], [], color=colour, label="mean over clients"))
            key.append(Line2D([], [], color=colour, linestyle="--", linewidth=1.3, label="average model"))
        if spread or over_seeds:
            what = "range over " + ("seeds" if over_seeds else "clients")
            key.append(Patch(facecolor=colour, alpha=0.2, label=what))
        if len(series) == 1:
            return key
        runs: list[Any] = []
        for number, one in enumerate(series):
            colour, shape, _ = look(number)
            runs.append(Line2D([], [], color=colour, marker=shape, label=visible(one.label)))
    return runs + key


def _draw(axes: Any, lines: Sequence[_Line]) -> None:
    for number, line in enumerate(lines):
        colour, shape, _ = look(number)
        if line.low is not None and line.high is not None:
            band = axes.fill_between(
                line.rounds, line.low, line.high, color=colour, alpha=0.2 if len(lines) == 1 else 0.13
            )
            band.set_linewidth(0)
        if line.average_model is not None:
            axes.plot(line.rounds, line.average_model, color=colour, linestyle="--", linewidth=1.3, zorder=2)
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
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.yaxis.set_minor_formatter(FuncFormatter(_power))
    else:
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, place: ""))


def _power(value: float, place: int | None = None) -> str:
    exponent = math.log10(value) if value > 0 else math.nan
    if abs(exponent) <= 3.01 or not math.isclose(exponent, round(exponent), abs_tol=1e-9):
        return f"{value:g}"
    return "10" + str(round(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
