"""Directed edges as integer arrays `[E, 2]` with rows (source, target): checks and text files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tacit.core.checks import check_count
from tacit.core.errors import Misuse

Edges = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]
Weights: TypeAlias = "sparse.csr_array[np.float64, tuple[int, int]]"

EXAMPLE = "Write one edge per line, for example: 0 1"


def as_count(name: str, value: Any, at_least: int = 1) -> int:
    """Convert an integer of Python or NumPy, which must be at least `at_least`."""
    number = value.item() if isinstance(value, np.integer) else value
    check_count(name, number, at_least)
    return int(number)


def as_edges(edges: Any) -> Edges:
    """Convert rows of two integers to int64 `[E, 2]`."""
    try:
        pairs = np.asarray(edges)
    except ValueError:
        raise Misuse(
            "edges has rows of different lengths.", "Give rows of two: (source, target)."
        ) from None
    if pairs.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise Misuse(f"edges has the shape {pairs.shape}.", "Give rows of two: (source, target).")
    if not np.issubdtype(pairs.dtype, np.integer):
        raise Misuse(f"edges holds {pairs.dtype}, not integers.", "Number the clients 0, 1, 2, …")
    return pairs.astype(np.int64)


def canonical(edges: Any, n: int, directed: bool) -> Edges:
    """Check the edges of n clients, sort them by (source, target) and drop duplicates.

    Unless `directed`, the result has both directions of every edge.
    """
    pairs = as_edges(edges)
    for row in np.flatnonzero(((pairs < 0) | (pairs >= n)).any(axis=1))[:1]:
        raise Misuse(
            f"edges: row {row} is {tuple(pairs[row].tolist())}, but clients are 0 to {n - 1}.",
            "Correct the row or raise clients.",
        )
    for row in np.flatnonzero(pairs[:, 0] == pairs[:, 1])[:1]:
        raise Misuse(
            f"edges: row {row} is a self loop of client {pairs[row, 0]}.",
            "Leave it out: the mixing rules give every client a weight on itself.",
        )
    keys = pairs[:, 0] * n + pairs[:, 1]
    if not directed:
        keys = np.concatenate([keys, pairs[:, 1] * n + pairs[:, 0]])
    # Not np.unique: its hash table is several times slower on millions of edges.
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return np.stack(np.divmod(keys, n), axis=1)


def missing(sources: Edges, targets: Edges, edges: Edges, n: int) -> npt.NDArray[np.bool_]:
    """Which of the pairs (source, target) are not among the canonical `edges`."""
    wanted, known = sources * n + targets, edges[:, 0] * n + edges[:, 1]
    positions = np.searchsorted(known, wanted)
    return np.asarray(np.append(known, -1)[positions] != wanted)


def read_edges(path: str | Path) -> list[tuple[int, int]]:
    """Read two integers per line, separated by blanks or a comma; `#` starts a comment."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as reason:
        raise Misuse(
            f"edge file {path}: {reason}.", "Give the path of a readable text file."
        ) from reason
    pairs = []
    for number, line in enumerate(lines, start=1):
        fields = line.split("#")[0].replace(",", " ").split()
        if not fields:
            continue
        try:
            source, target = map(int, fields)
        except ValueError:
            problem = f"edge file {path}, line {number}: {line.strip()!r} is not two integers."
            raise Misuse(problem, EXAMPLE) from None
        pairs.append((source, target))
    if not pairs:
        raise Misuse(f"edge file {path} lists no edge.", EXAMPLE)
    return pairs
