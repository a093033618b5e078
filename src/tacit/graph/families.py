"""Edges and positions of the families of graphs.

Everything is vectorised: a ring of a hundred thousand clients needs a few arrays, not a Python
loop. An undirected family lists each edge once or twice; `Topology` adds the other direction and
drops duplicates.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import networkx as nx
import numpy as np
import numpy.typing as npt

from tacit.graph.edges import Edges

Positions = npt.NDArray[np.float64]


def circulant(n: int, hops: Iterable[int]) -> Edges:
    """Each client i sends to i + h mod n for every hop h: rings, complete, exponential."""
    steps = np.array(sorted({hop % n for hop in hops} - {0}), dtype=np.int64)
    sources = np.repeat(np.arange(n), len(steps))
    return np.stack([sources, (sources + np.tile(steps, n)) % n], axis=1)


def lattice(rows: int, columns: int, wrap: bool) -> Edges:
    """Client r·columns + c sends to the right and down; with `wrap`, across the border."""
    ids = np.arange(rows * columns).reshape(rows, columns)
    if wrap:
        ends = [(ids, np.roll(ids, -1, axis=1)), (ids, np.roll(ids, -1, axis=0))]
    else:
        ends = [(ids[:, :-1], ids[:, 1:]), (ids[:-1], ids[1:])]
    edges: Edges = np.concatenate([np.stack(pair, axis=-1).reshape(-1, 2) for pair in ends])
    # A wrapped side of length one connects each client to itself.
    return np.delete(edges, edges[:, 0] == edges[:, 1], axis=0)


def random_pairs(n: int, p: float, directed: bool, rng: np.random.Generator) -> Edges:
    """Each pair (ordered when `directed`) with probability p, in time proportional to the result.

    Pair number k joins i = k mod n to i + 1 + ⌊k/n⌋ mod n: the first n(n−1)/2 numbers name each
    unordered pair once, all n(n−1) each ordered pair once. The gaps between chosen numbers are
    geometric (Batagelj and Brandes 2005), so pairs that are not chosen cost nothing.
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
    """A random graph in which every client has `degree` neighbours."""
    # Pairing stubs is slow when nearly all pairs are edges: draw the complement instead.
    if degree > n // 2:
        kept = np.ones((n, n), dtype=bool)
        dropped = regular(n, n - 1 - degree, rng)
        kept[dropped[:, 0], dropped[:, 1]] = kept[dropped[:, 1], dropped[:, 0]] = False
        return np.argwhere(np.triu(kept, k=1)).astype(np.int64)
    graph = nx.random_regular_graph(degree, n, seed=rng)
    return np.array(list(graph.edges), dtype=np.int64).reshape(-1, 2)


def within_radius(positions: Positions, radius: float) -> Edges:
    """Every pair of points at most `radius` apart."""
    # Imported here because it takes long, and few graphs have positions.
    from scipy.spatial import cKDTree

    pairs = cKDTree(positions).query_pairs(radius, output_type="ndarray")
    return np.asarray(pairs, dtype=np.int64).reshape(-1, 2)


def circle(n: int) -> Positions:
    """Points on the unit circle, the first on the right, counter-clockwise."""
    angle = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def lattice_positions(rows: int, columns: int) -> Positions:
    """Points of a lattice, the first row on top."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    return np.stack([column, rows - 1 - row], axis=1).astype(np.float64)
