"""Rows taken a few at a time, so that the workspace of a codec stays small however many rows there are."""

from __future__ import annotations

from collections.abc import Iterator

BAND = 1 << 22  # numbers handled at a time, or one row where a row is longer


def bands(rows: int, width: int) -> Iterator[slice]:
    """Cut `rows` rows of `width` numbers into slices of about BAND numbers."""
    height = max(1, BAND // max(1, width))
    for top in range(0, rows, height):
        yield slice(top, min(rows, top + height))
