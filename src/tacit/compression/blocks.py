"""Work on large matrices block by block, so that the memory a codec needs stays small."""

from __future__ import annotations

from collections.abc import Iterator

# Numbers at a time. On a CPU, blocks that fit in its cache lose more by calls than they gain.
BLOCK = 1 << 22


def blocks(rows: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Cut `rows` rows of `width` numbers into blocks of at most BLOCK numbers."""
    for band in row_blocks(rows, width):
        for left in range(0, width, BLOCK):
            yield band, slice(left, min(width, left + BLOCK))


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Cut `rows` rows into slices of at most BLOCK numbers, but at least one row each."""
    height = max(1, BLOCK // max(1, width))
    for top in range(0, rows, height):
        yield slice(top, min(rows, top + height))
