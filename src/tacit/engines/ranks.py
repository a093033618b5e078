"""The ranks engine: the clients of one run divided among processes that `torchrun` started (torch.distributed).

Each rank hosts some rows; in a `mix` only rows that a neighbour elsewhere needs travel, each once to each rank that
needs it, while the product with the rows that are here is under way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist
from torch import Tensor

from tacit.core.errors import RankLost
from tacit.core.rows import Sent, received, row_bytes
from tacit.core.workers import WorkerPool
from tacit.engines.buffers import Buffers
from tacit.engines.partition import Division
from tacit.engines.product import Product
from tacit.graph import Graph


class RanksNetwork:
    """The network of the clients of one rank: see tacit.core.here.Network.

    `bytes_sent` is what all clients of the run have sent, as in one process; `boundary_bytes` is what really went
    from this rank to others in `mix` and `send`.
    """

    def __init__(
        self,
        graph: Graph,
        division: Division,
        rank: int,
        dtype: torch.dtype,
        device: torch.device | str,
        pool: WorkerPool | None = None,
    ) -> None:
        self.bytes_sent = 0
        self.buffers = Buffers()
        self.boundary_bytes = 0
        self._edges = len(graph.edges)
        self._clients = graph.clients
        ids = division.hosted(rank)
        self._rows = _Boundary.of_rows(division, rank, ids, device)
        weights = sp.csr_array(graph.weights)[ids]
        self._here = Product(sp.csr_array(weights[:, ids]), dtype, device, pool)
        self._elsewhere = Product(
            sp.csr_array(weights[:, self._rows.arriving]), dtype, device, pool
        )
        self._letters = _Boundary.of_edges(division, rank, device)
        # Edges between two clients that are both here: which out-edge each of these in-edges is.
        out, into = division.leaving(rank), division.entering(rank)
        stays = np.flatnonzero(np.isin(into, out))
        self._stays = torch.as_tensor(stays, device=device)
        self._from = torch.as_tensor(np.searchsorted(out, into[stays]), device=device)
        places = np.argsort(into)[np.searchsorted(np.sort(into), self._letters.arriving)]
        self._arrives = torch.as_tensor(places, device=device)
        self._entering = len(into)

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """Σⱼ wᵢⱼ xⱼ for every client here: what came from elsewhere is added to the sum over those that are here."""
        self.bytes_sent += self._edges * sum(map(row_bytes, rows.values()))
        travelling = [self._sent(self._rows, received(sent)) for sent in rows.values()]
        mixed = [self._mixed_here(sent) for sent in rows.values()]
        for out, coming in zip(mixed, travelling, strict=True):
            arrived = coming.rows()
            if len(arrived):
                self._elsewhere.write(out, arrived, onto=True)
        return tuple(mixed)

    def _mixed_here(self, sent: Sent) -> Tensor:
        """The sum over the rows that are here; what travels of them has been copied already."""
        x = received(sent)
        out = self.buffers.take(x)
        self._here.write(out, x)
        return out

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        """Rows in the order of out-edges arrive in the order of in-edges."""
        width = edge_rows.shape[1]
        self.bytes_sent += self._edges * width * edge_rows.element_size()
        coming = self._sent(self._letters, edge_rows)
        out = edge_rows.new_empty(self._entering, width)
        out[self._stays] = edge_rows[self._from]
        out[self._arrives] = coming.rows()
        return out

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """The mean over all clients of the run, for every client here."""
        self.bytes_sent += sum(2 * self._clients * row_bytes(x) for x in rows.values())
        means = []
        for x in rows.values():
            total = x.sum(0, dtype=torch.float64)
            with reporting_losses():
                dist.all_reduce(total)
            means.append((total / self._clients).to(x.dtype).repeat(len(x), 1))
        return tuple(means)

    def _sent(self, boundary: _Boundary, x: Tensor) -> _Travelling:
        self.boundary_bytes += len(boundary.leaving) * x.shape[1] * x.element_size()
        return boundary.exchange(x)


@contextmanager
def reporting_losses(rank: int | None = None) -> Iterator[None]:
    """Say in our words that another process does not answer any more."""
    try:
        yield
    except RuntimeError as problem:  # what torch.distributed raises when a connection ends
        who = "Another rank" if rank is None else f"Rank {rank}"
        raise RankLost(f"{who} does not answer any more ({_reason(problem)}).") from None


def _reason(problem: RuntimeError) -> str:
    """The first sentence of an error, without the place in a source file that gloo puts before it."""
    lines = re.sub(r"^\[\S+:\d+\] ", "", str(problem).strip()).splitlines() or [
        type(problem).__name__
    ]
    return lines[0].split(". ")[0]


@dataclass(frozen=True, eq=False)
class _Travelling:
    """Rows under way to this rank."""

    work: dist.Work | None
    into: Tensor
    kept: Tensor  # what others are being sent must stay until it is gone

    def rows(self) -> Tensor:
        """All of them, once they are here."""
        if self.work is not None:
            with reporting_losses():
                self.work.wait()
        return self.into


@dataclass(frozen=True, eq=False)
class _Boundary:
    """Which rows go from here to other ranks, and which come from there."""

    leaving: Tensor  # rows of ours that others need: those of the first rank first
    counts: tuple[list[int], list[int]]  # how many go to each rank, and how many come from each
    arriving: np.ndarray  # the clients (or edges, by number) whose rows arrive, in this order

    @classmethod
    def of_rows(
        cls, division: Division, rank: int, ids: np.ndarray, device: torch.device | str
    ) -> _Boundary:
        """Each client's row goes once to every other rank where it has an out-neighbour."""
        source, target = division.edges[:, 0], division.edges[:, 1]
        there, here = division.rank_of[target], division.rank_of[source]
        away = {s: np.unique(source[(here == rank) & (there == s)]) for s in range(division.ranks)}
        back = {s: np.unique(source[(here == s) & (there == rank)]) for s in range(division.ranks)}
        return cls._of({s: np.searchsorted(ids, away[s]) for s in away}, back, rank, device)

    @classmethod
    def of_edges(cls, division: Division, rank: int, device: torch.device | str) -> _Boundary:
        """Each edge's row goes to the rank where the edge ends."""
        out = division.leaving(rank)
        ends = division.ends_in_order
        away = {s: np.flatnonzero(ends[out, 1] == s) for s in range(division.ranks)}
        back = {
            s: np.flatnonzero((ends[:, 0] == s) & (ends[:, 1] == rank))
            for s in range(division.ranks)
        }
        return cls._of(away, back, rank, device)

    @classmethod
    def _of(
        cls,
        away: Mapping[int, np.ndarray],
        back: Mapping[int, np.ndarray],
        rank: int,
        device: torch.device | str,
    ) -> _Boundary:
        nothing = np.empty(0, dtype=np.int64)
        ranks = range(len(away))
        out, into = ([nothing if s == rank else rows[s] for s in ranks] for rows in (away, back))
        leaving = torch.as_tensor(np.concatenate([*out, nothing]), device=device)
        counts = ([len(rows) for rows in out], [len(rows) for rows in into])
        return cls(leaving, counts, np.concatenate([*into, nothing]))

    def exchange(self, x: Tensor) -> _Travelling:
        """Set the rows of x [n, P] under way that others need, and get ready for theirs."""
        kept = x[self.leaving]
        into = x.new_empty(len(self.arriving), x.shape[1])
        away, back = ([count * x.shape[1] for count in counts] for counts in self.counts)
        with reporting_losses():
            # One exchange of all with all: with gloo, single letters wait several times for their turn on a busy core.
            work = dist.all_to_all_single(into.view(-1), kept.view(-1), back, away, async_op=True)
        return _Travelling(work, into, kept)
