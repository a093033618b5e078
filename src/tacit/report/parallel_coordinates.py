"""A picture of a sweep: an axis per key, a line per combination, coloured by how good it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from tacit.report.numbers import format_number
from tacit.report.style import INK, MUTED, new_figure, plot_style

Numbers = npt.NDArray[np.float64]
Places = tuple[float, ...]
Ticks = tuple[tuple[float, str], ...]

AXIS_WIDTH, HEIGHT = 1.75, 3.9  # in inches
MAX_TICKS, CLOSEST_TICKS = 12, 0.05


@dataclass(frozen=True)
class Line:
    """The values of one combination as text, one per key, and its score; NaN if it failed."""

    values: tuple[str, ...]
    score: float


@dataclass(frozen=True)
class _Scale:
    """Where values lie on an axis from 0 to 1, and the ticks there."""

    places: Places
    ticks: Ticks


@plot_style()
def parallel_figure(
    keys: Sequence[str], lines: Sequence[Line], metric: str, *, less_is_better: bool
) -> Figure:
    """Draw a sweep. The best combination is the thick line; failed ones are grey and dashed."""
    scales = [_scale([line.values[key] for line in lines]) for key in range(len(keys))]
    scores = np.array([line.score for line in lines], dtype=np.float64)
    ended = np.isfinite(scores)
    last = _score_scale(scores)
    figure, axes = new_figure(max(7.0, AXIS_WIDTH * (len(keys) + 1)), HEIGHT)
    colours = matplotlib.colormaps["viridis_r" if less_is_better else "viridis"]
    best = None
    if ended.any():
        best = int(np.nanargmin(scores) if less_is_better else np.nanargmax(scores))
    for number, line in enumerate(lines):
        heights = [scale.places[number] for scale in scales]
        if not math.isfinite(line.score):
            axes.plot(range(len(keys)), heights, color=MUTED, linestyle=":", linewidth=0.9)
            continue
        heights.append(last.places[number])
        # Neither the palest yellow nor the darkest violet, which light or dark pages swallow.
        colour = colours(0.2 + 0.63 * last.places[number])
        is_best = number == best
        axes.plot(
            range(len(heights)),
            heights,
            color=matplotlib.colors.to_hex(colour),
            linewidth=3.2 if is_best else 1.2,
            alpha=1.0 if is_best else 0.75,
            zorder=3 if is_best else 2,
        )
    for position, scale in enumerate([*scales, last]):
        axes.axvline(position, color=INK, linewidth=0.9, zorder=1)
        for height, text in scale.ticks:
            axes.annotate(
                text,
                (position, height),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                bbox={"facecolor": "#fefefe", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
                zorder=4,
            )
    axes.set_xticks(range(len(keys) + 1), [*keys, metric])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.15, len(keys) + 0.45)
    axes.set_ylim(-0.05, 1.05)
    return figure


def _score_scale(scores: Numbers) -> _Scale:
    """The metric's axis; places of failed lines are NaN."""
    ended = scores[np.isfinite(scores)]
    if not len(ended):
        return _Scale(tuple(scores.tolist()), ())
    places, ticks = _in_proportion(scores, 100, ".4g")
    return _Scale(places, ticks[:1] if ended.min() == ended.max() else ticks)


def _scale(texts: Sequence[str]) -> _Scale:
    """Numbers in proportion, anything else evenly."""
    distinct = list(dict.fromkeys(texts))
    numbers = np.array([_number(text) for text in texts])
    if np.isfinite(numbers).all() and numbers.min() < numbers.max():
        places, ticks = _in_proportion(numbers, 20, ".3g")
        if len(distinct) <= MAX_TICKS:
            ticks = _apart(list(dict(zip(texts, places, strict=True)).items()))
        return _Scale(places, ticks)
    step = 1 / max(1, len(distinct) - 1)
    at = {text: 0.5 if len(distinct) == 1 else step * rank for rank, text in enumerate(distinct)}
    every = math.ceil(len(distinct) / MAX_TICKS)
    ticks = tuple((place, _shortened(text)) for text, place in list(at.items())[::every])
    return _Scale(tuple(at[text] for text in texts), ticks)


def _in_proportion(numbers: Numbers, factor: float, form: str) -> tuple[Places, Ticks]:
    """Places and five ticks of numbers, by their logarithms if they span more than a factor."""
    ended = numbers[np.isfinite(numbers)]
    low, high = float(ended.min()), float(ended.max())
    norm = (LogNorm if low > 0 and high >= factor * low else Normalize)(low, high)
    places = np.where(np.isfinite(numbers), np.ma.filled(norm(numbers), 0), np.nan)
    marks = (0.0, 0.25, 0.5, 0.75, 1.0)
    ticks = tuple((mark, format_number(float(norm.inverse(mark)), form)) for mark in marks)
    return tuple(places.tolist()), ticks


def _apart(places: Sequence[tuple[str, float]]) -> Ticks:
    """Ticks at the places of texts, without those that would cover others."""
    kept: list[tuple[float, str]] = []
    for place, text in sorted((place, text) for text, place in places):
        if not kept or place - kept[-1][0] >= CLOSEST_TICKS:
            kept.append((place, text))
    return tuple(kept)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _shortened(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:19]}…"
