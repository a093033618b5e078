"""Rows taken a piece at a time, so that the workspace of a codec stays small however many there are, and how long."""

from __future__ import annotations

from collections.abc import Iterator

BAND = (
    1 << 22
)  # numbers handled at a time; on a CPU, pieces that fit in its cache lose more by calls than they gain


def bands(rows: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Cut `rows` rows of `width` numbers into pieces of at most BAND numbers: slices of rows and of columns."""
    for band in whole_rows(rows, width):
        for left in range(0, width, BAND):
            yield band, slice(left, min(width, left + BAND))


def whole_rows(rows: int, width: int) -> Iterator[slice]:
    """Cut `rows` rows into slices of about BAND numbers, or one row where a row is longer."""
    height = max(1, BAND // max(1, width))
    for top in range(0, rows, height):
        yield slice(top, min(rows, top + height))
