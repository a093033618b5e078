"""Edges given by the user: checked arrays and text files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.core.errors import Misuse
from tacit.graph.patterns import Edges

EXAMPLE = "Write one edge per line, for example: 0 1"


def whole_pairs(edges: Any) -> Edges:
    """`edges` as int64 `[E, 2]`, refused when it is anything else."""
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
    """`edges` checked, sorted by (source, target), each once; with both directions unless `directed`."""
    pairs = whole_pairs(edges)
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
    keys.sort()  # not np.unique: its hash table is several times slower on millions of edges
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return np.stack(np.divmod(keys, n), axis=1)


def not_listed(sources: Edges, targets: Edges, edges: Edges, n: int) -> npt.NDArray[np.bool_]:
    """Which of the pairs (source, target) are not among the canonical `edges`."""
    asked, known = sources * n + targets, edges[:, 0] * n + edges[:, 1]
    place = np.searchsorted(known, asked)
    return np.asarray(np.append(known, -1)[place] != asked)


def read(path: str | Path) -> list[tuple[int, int]]:
    """The edges of a text file: two integers per line, apart by blanks or a comma; `#` starts a comment."""
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
