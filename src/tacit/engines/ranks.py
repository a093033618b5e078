"""The ranks engine: the clients of one run divided among processes started by `torchrun`.

Each rank hosts some rows. In a `mix`, a row travels once to each other rank where its client has an
out-neighbour, while the product with the rows that are already here is computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist
from torch import Tensor

from tacit.core.errors import RankLost
from tacit.core.fixed_point import WORD_BYTES, IntegerRows, wrapped
from tacit.core.rows import Sent, received, row_bytes, shared
from tacit.core.workers import WorkerPool
from tacit.engines.buffers import Buffers
from tacit.engines.partition import ClientPartition
from tacit.engines.product import Product
from tacit.graph import Graph


class RanksNetwork:
    """The network of the clients of one rank.

    Args:
        graph: The graph of all clients.
        partition: The clients of each rank.
        rank: This rank.
        dtype: Of the rows.
        device: Where the rows live.
        pool: Shares the work of products; default: one thread.

    Attributes:
        bytes_sent: Bytes that all clients of the run have sent, as in a single process.
        boundary_bytes: Bytes that this rank has sent to other ranks in `mix` and `send`.
    """

    def __init__(
        self,
        graph: Graph,
        partition: ClientPartition,
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
        ids = partition.hosted(rank)
        # Each client's row goes once to every other rank where it has an out-neighbour.
        self._row_boundary = _Boundary.of(partition, rank, graph.edges[:, 0], ids, device)
        weights = sp.csr_array(graph.weights)[ids]
        local, remote = weights[:, ids], weights[:, self._row_boundary.incoming]
        self._local = Product(sp.csr_array(local), dtype, device, pool)
        self._remote = Product(sp.csr_array(remote), dtype, device, pool)
        # Each edge's row goes to the rank where the edge ends.
        numbers, out_edges = np.arange(self._edges), partition.out_edges(rank)
        self._edge_boundary = _Boundary.of(partition, rank, numbers, out_edges, device)
        # Edges between two hosted clients: which out-edge each of these in-edges is.
        in_edges = partition.in_edges(rank)
        inner = np.flatnonzero(np.isin(in_edges, out_edges))
        source = np.searchsorted(out_edges, in_edges[inner])
        position = np.searchsorted(np.sort(in_edges), self._edge_boundary.incoming)
        self._inner_in = torch.as_tensor(inner, device=device)
        self._inner_out = torch.as_tensor(source, device=device)
        self._remote_in = torch.as_tensor(np.argsort(in_edges)[position], device=device)
        self._in_edges = len(in_edges)

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        self.bytes_sent += self._edges * sum(map(row_bytes, rows.values()))
        own = [received(sent) for sent in rows.values()]
        transfers = [self._exchange(self._row_boundary, x) for x in own]
        mixed = [self.buffers.take(x) for x in own]
        for out, x in zip(mixed, own, strict=True):
            self._local.write(out, x)
        for out, transfer in zip(mixed, transfers, strict=True):
            arrived = transfer.wait()
            if len(arrived):
                self._remote.write(out, arrived, accumulate=True)
        return tuple(mixed)

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        width = edge_rows.shape[1]
        self.bytes_sent += self._edges * width * edge_rows.element_size()
        transfer = self._exchange(self._edge_boundary, edge_rows)
        out = edge_rows.new_empty(self._in_edges, width)
        out[self._inner_in] = edge_rows[self._inner_out]
        out[self._remote_in] = transfer.wait()
        return out

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        totals = []
        for sent in rows.values():
            clients, width = sent.shape
            self.bytes_sent += 2 * (self._clients - 1) * width * WORD_BYTES
            total = sent.total()
            with raising_rank_lost():
                dist.all_reduce(total)
            totals.append(shared(sent.decode(wrapped(total)), clients))
        return tuple(totals)

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        self.bytes_sent += sum(2 * self._clients * row_bytes(x) for x in rows.values())
        means = []
        for x in rows.values():
            total = x.sum(0, dtype=torch.float64)
            with raising_rank_lost():
                dist.all_reduce(total)
            means.append((total / self._clients).to(x.dtype).repeat(len(x), 1))
        return tuple(means)

    def _exchange(self, boundary: _Boundary, x: Tensor) -> _Transfer:
        self.boundary_bytes += len(boundary.outgoing) * x.shape[1] * x.element_size()
        return boundary.exchange(x)


@contextmanager
def raising_rank_lost(rank: int | None = None) -> Iterator[None]:
    """Turn an error of torch.distributed, raised when a connection ends, into `RankLost`."""
    try:
        yield
    except RuntimeError as problem:
        name = "Another rank" if rank is None else f"Rank {rank}"
        # The first sentence, without the source location that gloo puts before it.
        text = re.sub(r"^\[\S+:\d+\] ", "", str(problem).strip()) or type(problem).__name__
        reason = text.splitlines()[0].split(". ")[0]
        raise RankLost(f"{name} no longer responds ({reason}).") from None


@dataclass(frozen=True, eq=False)
class _Transfer:
    """Rows on their way to this rank."""

    work: dist.Work | None
    into: Tensor
    # Keeps the rows that are being sent alive.
    outgoing: Tensor

    def wait(self) -> Tensor:
        """The rows, once all have arrived."""
        if self.work is not None:
            with raising_rank_lost():
                self.work.wait()
        return self.into


@dataclass(frozen=True, eq=False)
class _Boundary:
    """Which rows go to other ranks, and which arrive from them, in the order of ranks."""

    # Indices of the rows to send.
    outgoing: Tensor
    outgoing_counts: list[int]
    # Numbers of the clients, or edges, whose rows arrive.
    incoming: np.ndarray
    incoming_counts: list[int]

    @classmethod
    def of(
        cls,
        partition: ClientPartition,
        rank: int,
        carried: np.ndarray,
        hosted: np.ndarray,
        device: torch.device | str,
    ) -> _Boundary:
        """The boundary of a rank with the rows `hosted`; `carried` [E] has the row of each edge."""
        source, target = partition.edge_ranks.T
        none = np.empty(0, dtype=np.int64)
        outgoing, incoming = [none] * partition.ranks, [none] * partition.ranks
        for other in set(range(partition.ranks)) - {rank}:
            outgoing[other] = np.unique(carried[(source == rank) & (target == other)])
            incoming[other] = np.unique(carried[(source == other) & (target == rank)])
        return cls(
            torch.as_tensor(np.searchsorted(hosted, np.concatenate(outgoing)), device=device),
            list(map(len, outgoing)),
            np.concatenate(incoming),
            list(map(len, incoming)),
        )

    def exchange(self, x: Tensor) -> _Transfer:
        """Start to send the rows of x [n, P] that other ranks need, and to receive theirs."""
        width = x.shape[1]
        outgoing = x[self.outgoing]
        into = x.new_empty(len(self.incoming), width)
        sent = [count * width for count in self.outgoing_counts]
        arriving = [count * width for count in self.incoming_counts]
        with raising_rank_lost():
            # One exchange of all with all: with gloo, single messages wait several times for their
            # turn on a busy core.
            work = dist.all_to_all_single(
                into.view(-1), outgoing.view(-1), arriving, sent, async_op=True
            )
        return _Transfer(work, into, outgoing)
