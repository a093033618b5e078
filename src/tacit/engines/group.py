"""The processes that run one simulation together, and the clients that each of them hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from tacit.core.here import Network
from tacit.core.workers import WorkerPool
from tacit.engines.buffers import Buffers
from tacit.engines.partition import ClientPartition
from tacit.engines.ranks import RanksNetwork
from tacit.engines.stacked import StackedNetwork
from tacit.graph import Graph

T = TypeVar("T")


class CountingNetwork(Network, Protocol):
    """A network that counts the bytes sent by all clients of the run, and recycles memory."""

    bytes_sent: int
    buffers: Buffers


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run; this class is one process that hosts all clients.

    All methods are collective: every process calls them, in the same order.

    Attributes:
        rank: The number of this process. Rank 0 also writes files and prints.
        ranks: The number of processes.
        restarted: Whether they replace earlier ones that died, whose run they continue.
    """

    rank: int = 0
    ranks: int = 1
    restarted: bool = False

    def device(self, requested: torch.device | str) -> torch.device | str:
        """Where the rows of this process live."""
        return requested

    def partition_clients(self, graph: Graph) -> ClientPartition:
        """Assign each client to a process."""
        return ClientPartition(np.zeros(graph.clients, dtype=np.int64), 1, graph.edges)

    def run_on_first(self, function: Callable[[], T]) -> T:
        """Call `function` on rank 0 and return its result, a JSON value, on every rank.

        If it raises a `TacitError`, every rank raises: the others raise `ReportedElsewhere`.
        """
        return function()

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, in double precision."""
        return values.double()

    def minimum(self, values: Sequence[int] | None) -> list[int] | None:
        """The smallest `values` of all processes, compared as lists; None if all have None."""
        return None if values is None else list(values)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in at least one process."""
        return bool(self.total(torch.tensor(float(flag))))

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Iterator[tuple[int, slice, Tensor]]:
        """Send all rows to rank 0, a block at a time; rank r has counts[r] of them.

        Yields, on rank 0 only: the rank, which of its rows, and these rows.
        """
        yield 0, slice(0, len(rows)), rows

    def scatter(
        self, read: Callable[[int, slice], Tensor], into: Tensor, counts: Sequence[int]
    ) -> None:
        """The inverse of `gather`: rank 0 reads each rank's rows, which arrive in `into` there."""
        into.copy_(read(0, slice(0, len(into))))


@dataclass(frozen=True, eq=False)
class Hosted:
    """The clients that this process hosts, among all of them."""

    group: ProcessGroup
    partition: ClientPartition

    @classmethod
    def of(cls, group: ProcessGroup, graph: Graph) -> Hosted:
        return cls(group, group.partition_clients(graph))

    def network(
        self, graph: Graph, dtype: torch.dtype, device: torch.device | str, pool: WorkerPool
    ) -> CountingNetwork:
        """The network of the hosted clients."""
        if self.group.ranks == 1:
            return StackedNetwork(graph, dtype, device, pool)
        return RanksNetwork(graph, self.partition, self.group.rank, dtype, device, pool)

    @property
    def clients(self) -> int:
        """Number of all clients N."""
        return self.partition.clients

    @cached_property
    def ids(self) -> np.ndarray:
        """The hosted clients, ascending."""
        return self.partition.hosted(self.group.rank)

    def row_indices(self, total_rows: int, rank: int) -> np.ndarray:
        """Indices of a rank's rows in a tensor of all N clients' rows, or of all edges' rows."""
        if total_rows == self.clients:
            return self.partition.hosted(rank)
        return self.partition.out_edges(rank)

    def total_rows(self, rows: int) -> int:
        """Rows that a tensor has over all processes if it has `rows` here: one per client or edge.

        Collective, because one process can host as many clients as edges.
        """
        per_client = self.group.minimum([int(rows == len(self.ids))]) == [1]
        return self.clients if per_client else len(self.partition.edges)
