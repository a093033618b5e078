"""The edges of the families of graphs, as integer arrays `[E, 2]` of rows (source, target).

Everything here is vectorised: a ring of a hundred thousand clients costs a few arrays, not a Python loop.
An undirected family lists each edge once or twice; `Topology` adds the way back and removes repetitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeAlias

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.spatial import cKDTree

from tacit.core.errors import Misuse

Edges = npt.NDArray[np.int64]
Positions = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]
Weights: TypeAlias = "sparse.csr_array[np.float64, tuple[int, int]]"


def whole_number(name: str, value: object, at_least: int = 1) -> int:
    """`value` as an int, refused when it is not a whole number or is below `at_least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise Misuse(f"{name} = {value!r} is not an integer.", f"Give {name} as a whole number.")
    if value < at_least:
        raise Misuse(f"{name} = {value} is too small.", f"Give {name} of at least {at_least}.")
    return int(value)


def probability(name: str, value: float) -> float:
    """`value` as a float in [0, 1]."""
    if not 0 <= value <= 1:  # also refuses NaN
        raise Misuse(f"{name} = {value} is not a probability.", f"Give {name} between 0 and 1.")
    return float(value)


def circulant(n: int, hops: Iterable[int]) -> Edges:
    """Each client i sends to i + h mod n, for every hop h: rings, complete, exponential."""
    steps = np.array(sorted({hop % n for hop in hops} - {0}), dtype=np.int64)
    sources = np.repeat(np.arange(n), len(steps))
    return np.stack([sources, (sources + np.tile(steps, n)) % n], axis=1)


def star(n: int) -> Edges:
    """Client 0 in the middle, one edge to each of the others."""
    leaves = np.arange(1, n)
    return np.stack([np.zeros_like(leaves), leaves], axis=1)


def lattice(rows: int, columns: int, wrap: bool) -> Edges:
    """Client r·columns + c beside its neighbours right and below; with `wrap` the borders meet."""
    ids = np.arange(rows * columns).reshape(rows, columns)
    pairs = [
        np.stack([here, there], axis=-1).reshape(-1, 2)
        for here, there in (
            [(ids, np.roll(ids, -1, axis=1)), (ids, np.roll(ids, -1, axis=0))]
            if wrap
            else [(ids[:, :-1], ids[:, 1:]), (ids[:-1], ids[1:])]
        )
    ]
    edges: Edges = np.concatenate(pairs)
    loops = edges[:, 0] == edges[:, 1]  # a wrapped side of length one would meet itself
    return np.delete(edges, loops, axis=0)


def independent(n: int, p: float, directed: bool, rng: np.random.Generator) -> Edges:
    """Each pair (ordered when `directed`) with probability p, in time proportional to the edges drawn.

    Pair number k joins i = k mod n to i + 1 + ⌊k/n⌋ mod n: the first n(n−1)/2 numbers name each unordered
    pair once, all n(n−1) each ordered pair once. The chosen numbers are apart by geometric gaps (Batagelj
    and Brandes 2005), so pairs that are not chosen cost nothing.
    """
    total = n * (n - 1) // (1 if directed else 2)
    if p == 0 or total == 0:
        return np.empty((0, 2), dtype=np.int64)
    drawn: list[npt.NDArray[np.int64]] = []
    last = -1
    while last < total:
        enough = int((total - last) * p * 1.05) + 16
        # A gap beyond the end is cut, so that the running sum of unused gaps cannot overflow.
        drawn.append(last + np.cumsum(np.minimum(rng.geometric(p, enough), total + 1)))
        last = int(drawn[-1][-1])
    chosen = np.concatenate(drawn)
    chosen = chosen[chosen < total]
    sources = chosen % n
    return np.stack([sources, (sources + 1 + chosen // n) % n], axis=1)


def regular(n: int, degree: int, rng: random.Random) -> Edges:
    """A random graph where everyone has `degree` neighbours."""
    if (
        degree > n // 2
    ):  # pairing stubs is slow when nearly all pairs are taken: draw what is missing instead
        missing = np.ones((n, n), dtype=bool)
        left_out = regular(n, n - 1 - degree, rng)
        missing[left_out[:, 0], left_out[:, 1]] = missing[left_out[:, 1], left_out[:, 0]] = False
        return np.argwhere(np.triu(missing, k=1)).astype(np.int64)
    graph = nx.random_regular_graph(degree, n, seed=rng)
    return np.array(list(graph.edges), dtype=np.int64).reshape(-1, 2)


def within(positions: Positions, radius: float) -> Edges:
    """Every pair of points at most `radius` apart."""
    pairs = cKDTree(positions).query_pairs(radius, output_type="ndarray")
    return np.asarray(pairs, dtype=np.int64).reshape(-1, 2)


def circle(n: int) -> Positions:
    """Points on the unit circle, the first on the right, counter-clockwise."""
    angle = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def squares(rows: int, columns: int) -> Positions:
    """The points of a lattice, the first row on top."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    return np.stack([column, rows - 1 - row], axis=1).astype(np.float64)
