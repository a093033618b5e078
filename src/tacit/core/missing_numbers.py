"""Numbers that may be missing: None, which JSON has, and NaN, which arithmetic has."""

from __future__ import annotations

import math
from typing import Any


def finite_or_none(value: Any) -> float | None:
    """A finite number; None for anything else, as a damaged file or a peer may hold."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    # An integer beyond all floats.
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def nan_if_none(value: float | None) -> float:
    """The number; NaN if there is none."""
    return math.nan if value is None else value


def without_nan(value: Any) -> Any:
    """Plain values with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
