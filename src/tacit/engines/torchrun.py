"""The processes that `torchrun` started, as one group."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from tacit.core.devices import check_device
from tacit.core.errors import Misuse, RankLost, ReportedElsewhere, TacitError
from tacit.core.workers import WorkerPool
from tacit.engines.group import CountingNetwork, ProcessGroup, SingleProcess, T
from tacit.engines.partition import Division, divide
from tacit.engines.ranks import RanksNetwork, reporting_losses
from tacit.engines.rendezvous import rendezvous_name
from tacit.graph import Graph

PATIENCE = timedelta(minutes=30)  # with a process that neither answers nor closes its connection
SLAB = 1 << 24  # bytes of rows that travel at a time to and from the first process


def ranks_started() -> int:
    """How many processes torchrun started for this run; 1 without torchrun."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return 1
    return int(os.environ["WORLD_SIZE"])


@contextmanager
def joined(device: str) -> Iterator[ProcessGroup]:
    """The group that this process belongs to: all that torchrun started, or itself alone."""
    if ranks_started() == 1:
        yield SingleProcess(again=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0)
        return
    own = local_device(device)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    # Tensors on GPUs travel by NCCL; what processes agree about are numbers on the CPU.
    backend = "cpu:gloo,cuda:nccl" if own.type == "cuda" else "gloo"
    with reporting_losses():
        store, rank, ranks = next(iter(rendezvous("env://", timeout=PATIENCE)))
        store = PrefixStore("tacit", store)
        name, again = rendezvous_name(store, rank, ranks, PATIENCE)
        apart = PrefixStore(name, store)
        dist.init_process_group(backend, store=apart, rank=rank, world_size=ranks, timeout=PATIENCE)
        dist.all_reduce(torch.zeros(1, device=own))  # NCCL wants all of them in its first exchange
    try:
        yield Ranks(rank, ranks, own, again)
    except RankLost:
        raise  # taking leave of somebody who is gone may take forever
    except TacitError:
        dist.destroy_process_group()
        raise
    else:
        dist.destroy_process_group()


def local_device(wish: str) -> torch.device:
    """The device of this process: a GPU of its own where the run is on GPUs."""
    if not wish.startswith("cuda"):
        return check_device(wish, "run.device")
    if wish != "cuda":
        raise Misuse(
            f"run.device = {wish!r}, but each process takes a GPU of its own.",
            'Use "cuda" with torchrun.',
        )
    number = int(os.environ.get("LOCAL_RANK", "0"))
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if number >= present:
        raise Misuse(
            f'run.device = "cuda", but process {number} of this machine finds {present or "no"} CUDA devices.',
            'Start one process per GPU (--nproc-per-node), or use "cpu".',
        )
    return torch.device("cuda", number)


@dataclass(frozen=True)
class Ranks:
    """A process among those of torch.distributed's default group: see Group."""

    rank: int
    ranks: int
    place: torch.device | str = "cpu"
    again: bool = False

    def device(self, wish: torch.device | str) -> torch.device | str:
        """The own one."""
        return self.place

    def divide(self, graph: Graph) -> Division:
        """As the first process divides, so that rounding elsewhere cannot make a difference."""
        places = self.tell(lambda: divide(graph.edges, graph.clients, self.ranks).rank_of.tolist())
        return Division(np.asarray(places, dtype=np.int64), self.ranks, graph.edges)

    def network(
        self,
        graph: Graph,
        division: Division,
        dtype: torch.dtype,
        device: torch.device | str,
        pool: WorkerPool,
    ) -> CountingNetwork:
        """That of the clients hosted here."""
        return RanksNetwork(graph, division, self.rank, dtype, device, pool)

    def tell(self, ask: Callable[[], T]) -> T:
        """Ask in the first process; its answer or refusal goes to all as JSON."""
        answer: Any = None
        refusal: TacitError | None = None
        if self.rank == 0:
            try:
                answer = ask()
            except TacitError as problem:
                refusal = problem
        words = json.dumps([answer, None if refusal is None else refusal.exit_code]).encode()
        letter = torch.frombuffer(bytearray(words), dtype=torch.uint8)
        length = torch.tensor([len(letter)])
        with reporting_losses():
            dist.broadcast(length, 0)
            letter = letter if self.rank == 0 else torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(letter, 0)
        if refusal is not None:
            raise refusal
        answer, exit_code = json.loads(letter.numpy().tobytes())
        if exit_code is not None:
            raise ReportedElsewhere(exit_code)
        return cast(T, answer)

    def total(self, values: Tensor) -> Tensor:
        """Summed on CPUs; the same bits for all."""
        summed = values.detach().to("cpu", torch.float64, copy=True)
        with reporting_losses():
            dist.all_reduce(summed)
        return summed.to(values.device)

    def earliest(self, found: Sequence[int] | None) -> list[int] | None:
        """The smallest in the order of lists."""
        length = torch.tensor([len(found or ())])
        with reporting_losses():
            dist.all_reduce(length, dist.ReduceOp.MAX)
        if not int(length):
            return None
        own = torch.tensor([1, *found] if found else [0] * (int(length) + 1))
        everyone = [torch.empty_like(own) for _ in range(self.ranks)]
        with reporting_losses():
            dist.all_gather(everyone, own)
        return min(rest for there, *rest in (one.tolist() for one in everyone) if there)

    def any(self, wish: bool) -> bool:
        """Asked of all."""
        wishes = torch.tensor([int(wish)])
        with reporting_losses():
            dist.all_reduce(wishes, dist.ReduceOp.MAX)
        return bool(wishes)

    def collect(self, rows: Tensor, counts: Sequence[int]) -> Iterator[tuple[int, slice, Tensor]]:
        """By slabs, rank after rank."""
        for rank, part in self._slabs(rows, counts):
            if self.rank == 0 == rank:
                yield rank, part, rows[part].cpu()
            elif self.rank == 0:
                slab = torch.empty(part.stop - part.start, rows.shape[1], dtype=rows.dtype)
                with reporting_losses(rank):
                    dist.recv(slab, rank)
                yield rank, part, slab
            elif self.rank == rank:
                with reporting_losses(0):
                    dist.send(rows[part].contiguous().cpu(), 0)

    def deal(
        self, take: Callable[[int, slice], Tensor], into: Tensor, counts: Sequence[int]
    ) -> None:
        """By slabs, rank after rank."""
        for rank, part in self._slabs(into, counts):
            if self.rank == 0 == rank:
                into[part] = take(rank, part).to(into.device)
            elif self.rank == 0:
                with reporting_losses(rank):
                    dist.send(take(rank, part).contiguous(), rank)
            elif self.rank == rank:
                slab = torch.empty(part.stop - part.start, into.shape[1], dtype=into.dtype)
                with reporting_losses(0):
                    dist.recv(slab, 0)
                into[part] = slab.to(into.device)

    def _slabs(self, rows: Tensor, counts: Sequence[int]) -> Iterator[tuple[int, slice]]:
        step = max(1, SLAB // max(1, rows.shape[1] * rows.element_size()))
        for rank, count in enumerate(counts):
            for low in range(0, count, step):
                yield rank, slice(low, min(count, low + step))
