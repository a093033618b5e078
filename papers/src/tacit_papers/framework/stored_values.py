"""What of a measurement is kept in result.json: pictures as bytes, curves with few points."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit_papers.framework.cells import Values

# Points of a curve that are kept.
MOST_POINTS = 101
# Figures show these of one repeat, the first.
SHOWN_ONCE = ("pictures", "pictures_together", "pictures_over_time", "heard")
CURVES = ("curve", "curves", "heard")


def packed(pictures: Tensor) -> list[str]:
    """Grey pictures [n, height, width] of numbers from 0 to 1: size, then bytes in base64."""
    _, height, width = pictures.shape
    shades = (pictures.detach().cpu().clamp(0, 1) * 255).round().numpy().astype(np.uint8)
    return [f"{height}x{width}:{base64.b64encode(shade.tobytes()).decode()}" for shade in shades]


def unpacked(picture: str) -> NDArray[np.float64]:
    """A packed picture [height, width] as numbers from 0 to 1."""
    size, _, shades = picture.partition(":")
    height, width = map(int, size.split("x"))
    levels = np.frombuffer(base64.b64decode(shades), np.uint8).reshape(height, width)
    return levels / 255


def thinned(values: Values) -> Values:
    """The values of a repeat, with at most MOST_POINTS points in each curve."""
    return {
        name: _thinned_curve(value) if name in CURVES and isinstance(value, dict) else value
        for name, value in values.items()
    }


def _thinned_curve(columns: dict[str, Any]) -> dict[str, Any]:
    """The same points of all columns, the first and the last among them."""
    lengths = {len(column) for column in columns.values() if isinstance(column, list)}
    # Columns of different lengths have no points in common.
    if len(lengths) != 1 or (length := lengths.pop()) <= MOST_POINTS:
        return columns
    kept = np.linspace(0, length - 1, MOST_POINTS).round().astype(int)
    return {
        name: [column[index] for index in kept] if isinstance(column, list) else column
        for name, column in columns.items()
    }


def without_repeated_pictures(repeats: dict[int, Values]) -> dict[int, Values]:
    """The repeats by seed, in order; what figures show once is left to the first that has it."""
    kept: dict[int, Values] = {}
    seen: set[str] = set()
    for seed, values in sorted(repeats.items()):
        dropped = seen & values.keys()
        seen |= values.keys() & set(SHOWN_ONCE)
        kept[seed] = {name: value for name, value in values.items() if name not in dropped}
    return kept
