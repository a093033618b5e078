"""Which clients each rank hosts: as many on each, and as few rows as possible that travel between them.

Good cuts are found by bisecting again and again. Each bisection takes the first so many clients of an order; orders
that keep neighbours close are tried (as numbered, column by column, reverse Cuthill–McKee, spectral) and improved by
exchanging pairs of clients. Whole orders cut into blocks are tried too, and the best division of all is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from tacit.core.errors import Misuse
from tacit.graph.edges import Edges

DENSE = 0.25  # of all pairs are neighbours
SWEEPS = 300  # of the iteration for the spectral order; long thin graphs, which need more, have other good orders


@dataclass(frozen=True, eq=False)
class Division:
    """Who hosts whom: `rank_of[i]` is the rank that hosts client i."""

    rank_of: np.ndarray  # [N] int64
    ranks: int
    edges: Edges

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return len(self.rank_of)

    def hosted(self, rank: int) -> np.ndarray:
        """The clients of a rank, ascending."""
        return np.flatnonzero(self.rank_of == rank)

    def leaving(self, rank: int) -> np.ndarray:
        """The edges that leave the clients of a rank: their numbers among all edges by (source, target), ascending."""
        return np.flatnonzero(self.ends_in_order[:, 0] == rank)

    def entering(self, rank: int) -> np.ndarray:
        """The edges that enter the clients of a rank: the same numbers, in order of (target, source)."""
        found = np.flatnonzero(self.ends_in_order[:, 1] == rank)
        edges = self._in_order[found]
        return found[np.lexsort((edges[:, 0], edges[:, 1]))]

    @cached_property
    def ends_in_order(self) -> np.ndarray:
        """The ranks at both ends of each edge [E, 2], edges in order of (source, target)."""
        ends: np.ndarray = self.rank_of[self._in_order]
        return ends

    @cached_property
    def cut_edges(self) -> int:
        """Directed edges between two ranks: so many rows travel when each edge has a row of its own."""
        return int((self.ends_in_order[:, 0] != self.ends_in_order[:, 1]).sum())

    @cached_property
    def volume(self) -> int:
        """Pairs of a client and another rank where it has an out-neighbour: so many rows travel in one `mix`."""
        here, there = self.ends_in_order.T
        away = here != there
        return len(np.unique(self._in_order[away, 0] * self.ranks + there[away]))

    def describe(self) -> str:
        """One line for people."""
        sizes = np.bincount(self.rank_of, minlength=self.ranks)
        each = f"{sizes.min()}" if sizes.min() == sizes.max() else f"{sizes.min()} or {sizes.max()}"
        return (
            f"{self.ranks} ranks with {each} clients each: {self.cut_edges} of {len(self.edges)} directed edges "
            f"between ranks, {self.volume} rows travel per mix"
        )

    @cached_property
    def _in_order(self) -> np.ndarray:
        return self.edges[np.lexsort((self.edges[:, 1], self.edges[:, 0]))]


def divide(edges: Edges, clients: int, ranks: int) -> Division:
    """Divide the clients among ranks so that their numbers differ by one at most and few rows travel."""
    if not 1 <= ranks <= clients:
        raise Misuse(
            f"There are {ranks} ranks for {clients} clients.",
            f"Start at most {clients} processes, or give the graph more clients.",
        )
    sizes = _sizes(clients, ranks)
    both_ways = np.concatenate((edges, edges[:, ::-1]))
    ones = np.ones(len(both_ways))
    joined = sparse.csr_array((ones, (both_ways[:, 0], both_ways[:, 1])), shape=(clients, clients))
    joined.sum_duplicates()
    found = [
        Division(_blocks(order, sizes), ranks, edges) for order in _orders(joined, spectral=False)
    ]
    if (
        ranks > 1 and joined.nnz < DENSE * clients**2
    ):  # on a full graph one division is as good as another
        places = np.empty(clients, dtype=np.int64)
        _bisect(joined, np.arange(clients), sizes, 0, places)
        found.append(Division(places, ranks, edges))
    # What travels in one `mix` and in one `send`; the first of equals.
    return min(found, key=lambda division: division.volume + division.cut_edges)


def _sizes(clients: int, ranks: int) -> list[int]:
    return [clients // ranks + (rank < clients % ranks) for rank in range(ranks)]


def _blocks(order: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Ranks of the clients when an order is cut into blocks of these sizes."""
    rank_of = np.empty(len(order), dtype=np.int64)
    rank_of[order] = np.repeat(np.arange(len(sizes)), sizes)
    return rank_of


def _bisect(
    joined: sparse.csr_array, members: np.ndarray, sizes: list[int], first: int, places: np.ndarray
) -> None:
    """Give the members (rows of `joined`) to the ranks first, first + 1, … of these sizes."""
    if len(sizes) == 1:
        places[members] = first
        return
    half = len(sizes) // 2
    low = sum(sizes[:half])
    best, least = np.empty(0, dtype=bool), np.inf
    for order in _orders(joined, spectral=True):
        side = np.zeros(len(members), dtype=bool)
        side[order[:low]] = True
        cut = _cut(joined, _exchanged(joined, side))
        if cut < least:
            best, least = side, cut
    for side, part, number in ((best, sizes[:half], first), (~best, sizes[half:], first + half)):
        rows = np.flatnonzero(side)
        _bisect(sparse.csr_array(joined[rows][:, rows]), members[rows], part, number, places)


def _orders(joined: sparse.csr_array, spectral: bool) -> Iterator[np.ndarray]:
    """Orders of the clients in which neighbours are close together."""
    count = joined.shape[0]
    natural = np.arange(count)
    yield natural
    entries = joined.tocoo()
    strides = np.bincount(np.abs(entries.row - entries.col))
    for stride in np.argsort(-strides, kind="stable")[
        :2
    ]:  # a grid numbered by rows: here are its columns
        if stride > 1 and strides[stride]:
            yield np.lexsort((natural // stride, natural % stride))
    yield np.asarray(csgraph.reverse_cuthill_mckee(sparse.csr_matrix(joined), symmetric_mode=True))
    if spectral:
        yield np.argsort(_slowest(joined), kind="stable")


def _slowest(joined: sparse.csr_array) -> np.ndarray:
    """Nearly the slowest mode of diffusion on the graph: clients with close values are close in it.

    Chebyshev's iteration, which damps all modes of the lazy walk but those within about 1/SWEEPS² of the constant one.
    """
    degree = np.maximum(np.asarray(joined.sum(axis=1)).ravel(), 1.0)
    root = np.sqrt(degree)
    constant = root / np.linalg.norm(root)
    bound = 1.0 - 4.0 / SWEEPS**2

    def walk(x: np.ndarray) -> np.ndarray:
        # The spectrum [0, bound] of the lazy walk (x + step)/2 becomes [−1, 1].
        step: np.ndarray = (x + (joined @ (x / root)) / root) / bound - x
        return step

    before = np.random.default_rng(0).standard_normal(len(degree))
    before -= constant * (constant @ before)
    now = walk(before)
    for _ in range(SWEEPS):
        before, now = now, 2 * walk(now) - before
        now -= constant * (constant @ now)
        size = np.linalg.norm(now)
        if not size > 0:
            break
        before, now = before / size, now / size
    slowest: np.ndarray = now / root
    return slowest


def _cut(joined: sparse.csr_array, side: np.ndarray) -> float:
    return float(joined[np.flatnonzero(side)][:, np.flatnonzero(~side)].sum())


def _exchanged(joined: sparse.csr_array, side: np.ndarray) -> np.ndarray:
    """Change `side` by exchanging the pair that shortens the cut most, as long as one does."""
    pointers, others, weights = joined.indptr, joined.indices, joined.data
    sign = np.where(side, 1.0, -1.0)
    gain = -sign * (joined @ sign)  # what moving each client alone takes off the cut
    for _ in range(len(side)):
        a = int(np.where(side, gain, -np.inf).argmax())
        b = int(np.where(side, -np.inf, gain).argmax())
        near = slice(pointers[a], pointers[a + 1])
        between = float(weights[near][others[near] == b].sum())
        if gain[a] + gain[b] - 2 * between <= 0:
            break
        for client in (a, b):
            near = slice(pointers[client], pointers[client + 1])
            neighbours = others[near]
            together = side[neighbours] == side[client]
            gain[neighbours] += np.where(together, 2.0, -2.0) * weights[near]
            gain[client] = -gain[client]
            side[client] = not side[client]
    return side
