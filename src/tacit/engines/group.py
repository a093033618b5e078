"""The processes that run one experiment together, and which clients are hosted where."""

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
from tacit.engines.partition import Division
from tacit.engines.stacked import StackedNetwork
from tacit.graph import Graph

T = TypeVar("T")


class CountingNetwork(Network, Protocol):
    """A network that counts the bytes that all clients of the run have sent, and uses memory again."""

    bytes_sent: int
    buffers: Buffers


class ProcessGroup(Protocol):
    """The processes of a run. All verbs are collective: all processes take part, in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process; the first, 0, also writes and prints."""
        ...

    @property
    def ranks(self) -> int:
        """How many processes there are."""
        ...

    @property
    def again(self) -> bool:
        """Whether these processes were started because earlier ones had died: they go on where those were."""
        ...

    def device(self, wish: torch.device | str) -> torch.device | str:
        """Where the rows of this process live."""
        ...

    def divide(self, graph: Graph) -> Division:
        """Who hosts which clients."""
        ...

    def network(
        self,
        graph: Graph,
        division: Division,
        dtype: torch.dtype,
        device: torch.device | str,
        pool: WorkerPool,
    ) -> CountingNetwork:
        """The network of the clients hosted here."""
        ...

    def tell(self, ask: Callable[[], T]) -> T:
        """What the first process finds out, told to all; a plain JSON value. A refusal there ends all."""
        ...

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, in double precision."""
        ...

    def earliest(self, found: Sequence[int] | None) -> list[int] | None:
        """The smallest of what the processes found; None if nobody found anything."""
        ...

    def any(self, wish: bool) -> bool:
        """Whether one process wishes it."""
        ...

    def collect(self, rows: Tensor, counts: Sequence[int]) -> Iterator[tuple[int, slice, Tensor]]:
        """All rows (counts[r] of them from rank r) to the first process: rank, which of its rows, and these rows.

        They come some at a time. The others give theirs away and get nothing.
        """
        ...

    def deal(
        self, take: Callable[[int, slice], Tensor], into: Tensor, counts: Sequence[int]
    ) -> None:
        """The inverse: the first process takes the rows of each rank, which arrive in `into` there."""
        ...


@dataclass(frozen=True)
class SingleProcess:
    """One process that hosts all clients."""

    rank: int = 0
    ranks: int = 1
    again: bool = False

    def device(self, wish: torch.device | str) -> torch.device | str:
        """As wished."""
        return wish

    def divide(self, graph: Graph) -> Division:
        """All are here."""
        return Division(np.zeros(graph.clients, dtype=np.int64), 1, graph.edges)

    def network(
        self,
        graph: Graph,
        division: Division,
        dtype: torch.dtype,
        device: torch.device | str,
        pool: WorkerPool,
    ) -> CountingNetwork:
        """Products with the whole of W."""
        return StackedNetwork(graph, dtype, device, pool)

    def tell(self, ask: Callable[[], T]) -> T:
        """Just ask."""
        return ask()

    def total(self, values: Tensor) -> Tensor:
        """The values themselves."""
        return values.double()

    def earliest(self, found: Sequence[int] | None) -> list[int] | None:
        """What was found."""
        return None if found is None else list(found)

    def any(self, wish: bool) -> bool:
        """The own wish."""
        return wish

    def collect(self, rows: Tensor, counts: Sequence[int]) -> Iterator[tuple[int, slice, Tensor]]:
        """The rows."""
        yield 0, slice(0, len(rows)), rows

    def deal(
        self, take: Callable[[int, slice], Tensor], into: Tensor, counts: Sequence[int]
    ) -> None:
        """Take all."""
        into.copy_(take(0, slice(0, len(into))))


@dataclass(frozen=True, eq=False)
class Hosted:
    """The clients that this process hosts, among all of them."""

    group: ProcessGroup
    division: Division

    @classmethod
    def of(cls, group: ProcessGroup, graph: Graph) -> Hosted:
        """Those that fall to this process of a group."""
        return cls(group, group.divide(graph))

    @property
    def clients(self) -> int:
        """Number of all clients N."""
        return self.division.clients

    @cached_property
    def ids(self) -> np.ndarray:
        """The clients here, ascending."""
        return self.division.hosted(self.group.rank)

    def places(self, rows: int, rank: int) -> np.ndarray:
        """Where the rows of a rank are in a tensor of all `rows`, of which there is one per client or one per edge."""
        return self.division.hosted(rank) if rows == self.clients else self.division.leaving(rank)

    def whole(self, rows: int) -> int:
        """How many rows a tensor of all clients has that has so many here: one per client, or per edge."""
        of_clients = self.group.earliest([int(rows == len(self.ids))]) == [1]  # here and everywhere
        return self.clients if of_clients else len(self.division.edges)
