"""The plots of a report: metrics over rounds, one figure per function.

Example:
    figure = accuracy_figure([Series("lppa", (run.history,)), Series("dsgt", (other.history,))])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator

from tacit.record.history import History
from tacit.report.style import (
    FIGURE_WIDTH,
    MUTED,
    label_series,
    legend_label,
    new_figure,
    plot_style,
    series_style,
)

Numbers = npt.NDArray[np.float64]

WIDTH, HEIGHT, LEGEND_ROW = FIGURE_WIDTH, 2.6, 0.2  # in inches
# What curves are drawn over, and how the axis is called.
PLACES = {"round": "round", "step": "iteration"}
MAX_RANGES = 6  # with more curves, only the means are drawn
MAX_POINTS = 1_000  # more on one curve are not visible, and make the page large


@dataclass(frozen=True)
class Series:
    """What is drawn as one curve: a run, or several that differ in their seeds only."""

    label: str
    histories: tuple[History, ...]


@dataclass(frozen=True)
class Curve:
    """Values [R] at the places x [R], NaN for gaps; optionally their range, and another curve."""

    x: Numbers
    values: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    average_model: Numbers | None = None


@plot_style()
def accuracy_figure(series: Sequence[Series]) -> Figure:
    """Accuracy in percent over rounds: mean, range, and the average model as a dashed line."""
    over = places([h for entry in series for h in entry.histories])
    curves = [_spread_curve(entry, "accuracy", over) for entry in series]
    figure, axes = _draw(series, curves, PLACES[over], "accuracy (%)", spread=True)
    _draw_baseline(axes, series)
    _limit_y(axes, 0, 100)
    return figure


@plot_style()
def metric_figure(series: Sequence[Series], metric: str, label: str) -> Figure:
    """A further metric over rounds, such as "auc"; runs without it leave a gap."""
    over = places([h for entry in series for h in entry.histories])
    curves = [_spread_curve(entry, metric, over) for entry in series]
    return _draw(series, curves, PLACES[over], label, spread=True)[0]


def _draw_baseline(axes: Any, series: Sequence[Series]) -> None:
    """A dotted line at the majority baseline, if it is the same for all runs."""
    known = {h[-1].baseline for entry in series for h in entry.histories if h} - {None}
    if len(known) == 1:
        level = known.pop()
        dotted = {"color": MUTED, "linestyle": ":", "linewidth": 1.3, "zorder": 1}
        axes.axhline(level, **dotted)
        place = {"xytext": (0, 3), "textcoords": "offset points", "fontsize": 9, "color": MUTED}
        text = f"majority baseline {level:.1f} %"
        axes.annotate(text, (1, level), xycoords=("axes fraction", "data"), ha="right", **place)


@plot_style()
def loss_figure(series: Sequence[Series]) -> Figure:
    """Loss over rounds, on a log scale if it spans more than two decades."""
    over = places([h for entry in series for h in entry.histories])
    curves = [_spread_curve(entry, "loss", over) for entry in series]
    figure, axes = _draw(series, curves, PLACES[over], "loss", spread=True)
    parts: list[Any] = [part for c in curves for part in (c.values, c.low, c.average_model)]
    shown = np.concatenate(parts)
    shown = shown[np.isfinite(shown)]
    if len(shown) and shown.min() > 0 and shown.max() > 100 * shown.min():
        _use_log_scale(axes)
    elif len(shown) and shown.min() >= 0:
        _limit_y(axes, 0, math.inf)
    return figure


@plot_style()
def msd_figure(series: Sequence[Series]) -> Figure:
    """Mean-square deviation from the optimum in decibels over iterations; seeds are averaged."""

    def decibels(values: Numbers) -> Numbers:
        return 10 * np.log10(np.where(values > 0, values, np.nan))

    curves = []
    for entry in series:
        curve = _scalar_curve(entry, "msd", over="step")
        low, high = (None if end is None else decibels(end) for end in (curve.low, curve.high))
        curves.append(Curve(curve.x, decibels(curve.values), low, high))
    return _draw(series, curves, "iteration", "MSD (dB)")[0]


@plot_style()
def consensus_figure(series: Sequence[Series]) -> Figure:
    """Distance of the clients' models from their average over rounds; zeros are gaps."""
    over = places([h for entry in series for h in entry.histories])
    curves = [_scalar_curve(entry, "consensus_distance", over) for entry in series]
    figure, axes = _draw(series, curves, PLACES[over], "consensus distance")
    if any((curve.values > 0).any() for curve in curves):
        _use_log_scale(axes)
    return figure


@plot_style()
def bytes_figure(series: Sequence[Series]) -> Figure:
    """Bytes sent by all clients together since the start."""
    over = places([h for entry in series for h in entry.histories])
    curves = [_scalar_curve(entry, "bytes_sent", over) for entry in series]
    figure, axes = _draw(series, curves, PLACES[over], "sent by all clients")
    axes.yaxis.set_major_formatter(EngFormatter(unit="B"))
    _limit_y(axes, 0, math.inf)
    return figure


@plot_style()
def accuracy_by_bytes_figure(series: Sequence[Series]) -> Figure:
    over = places([h for entry in series for h in entry.histories])
    curves = [
        replace(
            _spread_curve(entry, "accuracy", over),
            x=_scalar_curve(entry, "bytes_sent", over).values,
        )
        for entry in series
    ]
    figure, axes = _draw(series, curves, "sent by all clients", "accuracy (%)", spread=True)
    _limit_y(axes, 0, 100)
    axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    return figure


def places(histories: Sequence[History]) -> str:
    """What records are drawn over: their rounds, or their steps if a round has several records."""
    once = all(len({record.round for record in each}) == len(each) for each in histories)
    return "round" if once else "step"


def _spread_curve(series: Series, metric: str, over: str) -> Curve:
    """A metric of each client over rounds: its mean, and the range over clients or seeds."""
    average = _scalar_curve(series, f"{metric}.average_model", over).values
    curve = replace(_scalar_curve(series, f"{metric}.mean", over), average_model=average)
    if len(series.histories) > 1:
        return curve
    low, high = (_scalar_curve(series, f"{metric}.{end}", over).values for end in ("min", "max"))
    return replace(curve, low=low, high=high)


def _scalar_curve(series: Series, metric: str, over: str) -> Curve:
    """A metric over the rounds (or steps) that all histories have; of several, mean and range."""
    tables = []
    for history in series.histories:
        x = (getattr(record, over) for record in history)
        measured = (record.numbers.get(metric) for record in history)
        numbers = (math.nan if value is None else value for value in measured)
        tables.append(dict(zip(x, numbers, strict=True)))
    shared = sorted(set.intersection(*map(set, tables)))
    stride = math.ceil(len(shared) / MAX_POINTS)
    if stride > 1:
        shared = [*shared[:-1:stride], shared[-1]]
    values = np.array([[table[x] for x in shared] for table in tables], dtype=np.float64)
    values = np.where(np.isfinite(values), values, np.nan)
    curve = Curve(np.array(shared, dtype=np.float64), values.mean(0))
    return curve if len(tables) == 1 else replace(curve, low=values.min(0), high=values.max(0))


def _draw(
    series: Sequence[Series], curves: Sequence[Curve], x: str, y: str, *, spread: bool = False
) -> tuple[Figure, Any]:
    """A figure with one curve per series and its axes; `spread` curves are means over clients."""
    runs, key = _legend(series, spread)
    widest = max((len(handle.get_label()) for handle in [*runs, *key]), default=0)
    columns = max(1, min(3, max(len(runs), len(key)), 56 // (widest + 7)))
    blank = [Line2D([], [], alpha=0, label=" ")] * (-len(runs) % columns if key else 0)
    handles = [*runs, *blank, *key]
    rows = math.ceil(len(handles) / columns)
    # matplotlib fills a legend column by column.
    ordered = [handle for column in range(columns) for handle in handles[column::columns]]
    figure, axes = new_figure(WIDTH, HEIGHT + LEGEND_ROW * rows)
    axes.set(xlabel=x, ylabel=y)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
    if handles:
        legend = figure.legend(handles=ordered, loc="outside lower center", ncols=columns)
        label_series(legend, {handle.get_label(): place for place, handle in enumerate(runs)})
    for number, curve in enumerate(curves):
        _draw_curve(axes, curve, legend_label(series[number].label), number, len(curves))
    return figure, axes


def _draw_curve(axes: Any, curve: Curve, label: str, number: int, count: int) -> None:
    colour, marker, _ = series_style(number)
    if curve.low is not None and count <= MAX_RANGES:
        alpha = 0.2 if count == 1 else 0.16
        band = {"color": colour, "alpha": alpha, "linewidth": 0, "gid": f"band-{number}"}
        axes.fill_between(curve.x, curve.low, curve.high, label=label, **band)
    if curve.average_model is not None and count <= MAX_RANGES:
        dashed = {"color": colour, "linestyle": "--", "linewidth": 1.3, "zorder": 2}
        name = f"{label}, average model"
        axes.plot(curve.x, curve.average_model, label=name, gid=f"average-{number}", **dashed)
    # A value between two gaps is visible by its marker only.
    there = np.pad(np.isfinite(curve.values), 1)
    marked = set(np.flatnonzero(there[1:-1] & ~there[:-2] & ~there[2:]).tolist())
    if count > 1:
        step = max(1, len(curve.values) // 6)
        marked |= set(range(number * step // count, len(curve.values), step))
    solid = {"color": colour, "marker": marker, "markevery": sorted(marked), "zorder": 3}
    axes.plot(curve.x, curve.values, label=label, gid=f"mean-{number}", **solid)


def _legend(series: Sequence[Series], spread: bool) -> tuple[list[Any], list[Any]]:
    """Entries for the runs, if there are several, and for what lines and bands mean."""
    ranges = []
    if any(len(entry.histories) > 1 for entry in series):
        ranges.append("seeds")
    if spread and any(len(entry.histories) == 1 for entry in series):
        ranges.append("clients")
    colour = series_style(0)[0] if len(series) == 1 else MUTED
    key: list[Any] = []
    if spread:
        key.append(Line2D([], [], color=colour, label="mean over clients"))
    if spread and len(series) <= MAX_RANGES:
        dashed = Line2D([], [], color=colour, linestyle="--", linewidth=1.3, label="average model")
        key.append(dashed)
    if ranges and len(series) <= MAX_RANGES:
        key.append(Patch(facecolor=colour, alpha=0.2, label=f"range over {' or '.join(ranges)}"))
    runs: list[Any] = []
    for number, entry in enumerate(series if len(series) > 1 else ()):
        colour, marker, _ = series_style(number)
        runs.append(Line2D([], [], color=colour, marker=marker, label=legend_label(entry.label)))
    return runs, key


def _limit_y(axes: Any, low: float, high: float) -> None:
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, low), min(top, high + 1))


def _use_log_scale(axes: Any) -> None:
    axes.set_yscale("log", nonpositive="mask")
    bottom, top = axes.get_ylim()
    axes.yaxis.set_major_formatter(FuncFormatter(_format_power))
    if top < 30 * bottom:
        subdivisions = (2, 5) if top > 6 * bottom else (1.5, 2, 3, 4, 5, 6, 8)
        axes.yaxis.set_minor_locator(LogLocator(subs=subdivisions))
        axes.yaxis.set_minor_formatter(FuncFormatter(_format_power))
    else:
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, position: ""))


def _format_power(value: float, position: int | None = None) -> str:
    exponent = math.log10(value) if value > 0 else math.nan
    if abs(exponent) <= 3.01 or not math.isclose(exponent, round(exponent), abs_tol=1e-9):
        return f"{value:g}"
    return "10" + str(round(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
