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
from tacit.engines.group import ProcessGroup, T
from tacit.engines.partition import ClientPartition, partition_clients
from tacit.engines.ranks import raising_rank_lost
from tacit.engines.rendezvous import agree_on_name
from tacit.graph import Graph

# For a process that neither responds nor closes its connection.
TIMEOUT = timedelta(minutes=30)
# Bytes of rows that travel at a time to and from rank 0.
BLOCK_BYTES = 1 << 24


def world_size() -> int:
    """The number of processes that torchrun started for this run; 1 without torchrun."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return 1
    return int(os.environ["WORLD_SIZE"])


@contextmanager
def join_process_group(device: str) -> Iterator[ProcessGroup]:
    """The group of this process: all that torchrun started, or a single process."""
    if world_size() == 1:
        yield ProcessGroup(restarted=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0)
        return
    own_device = local_device(device)
    if own_device.type == "cuda":
        torch.cuda.set_device(own_device)
    # Rows on GPUs travel by NCCL, everything else by gloo.
    backend = "cpu:gloo,cuda:nccl" if own_device.type == "cuda" else "gloo"
    with raising_rank_lost():
        store, rank, ranks = next(iter(rendezvous("env://", timeout=TIMEOUT)))
        store = PrefixStore("tacit", store)
        name, restarted = agree_on_name(store, rank, ranks, TIMEOUT)
        own_store = PrefixStore(name, store)
        dist.init_process_group(
            backend, store=own_store, rank=rank, world_size=ranks, timeout=TIMEOUT
        )
        # NCCL needs all processes in its first exchange.
        dist.all_reduce(torch.zeros(1, device=own_device))
    try:
        yield TorchrunGroup(rank, ranks, restarted, own_device)
    except RankLost:
        # Destroying a group that has lost a rank can hang.
        raise
    except TacitError:
        dist.destroy_process_group()
        raise
    else:
        dist.destroy_process_group()


def local_device(requested: str) -> torch.device:
    """The device of this process: one GPU each if the run is on GPUs."""
    if not requested.startswith("cuda"):
        return check_device(requested, "run.device")
    if requested != "cuda":
        raise Misuse(
            f"run.device = {requested!r}, but each process uses its own GPU.",
            'Use "cuda" with torchrun.',
        )
    number = int(os.environ.get("LOCAL_RANK", "0"))
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if number >= present:
        raise Misuse(
            f'run.device = "cuda", but process {number} of this machine finds '
            f"{present or 'no'} CUDA devices.",
            'Start one process per GPU (--nproc-per-node), or use "cpu".',
        )
    return torch.device("cuda", number)


@dataclass(frozen=True)
class TorchrunGroup(ProcessGroup):
    """The processes of torch.distributed's default group."""

    own_device: torch.device | str = "cpu"

    def device(self, requested: torch.device | str) -> torch.device | str:
        return self.own_device

    def partition_clients(self, graph: Graph) -> ClientPartition:
        """Computed on rank 0, because other machines may round differently."""
        rank_of = self.run_on_first(
            lambda: partition_clients(graph.edges, graph.clients, self.ranks).rank_of.tolist()
        )
        return ClientPartition(np.asarray(rank_of, dtype=np.int64), self.ranks, graph.edges)

    def run_on_first(self, function: Callable[[], T]) -> T:
        result: Any = None
        error: TacitError | None = None
        if self.rank == 0:
            try:
                result = function()
            except TacitError as problem:
                error = problem
        text = json.dumps([result, None if error is None else error.exit_code]).encode()
        message = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        length = torch.tensor([len(message)])
        with raising_rank_lost():
            dist.broadcast(length, 0)
            if self.rank != 0:
                message = torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(message, 0)
        if error is not None:
            raise error
        result, exit_code = json.loads(message.numpy().tobytes())
        if exit_code is not None:
            raise ReportedElsewhere(exit_code)
        return cast(T, result)

    def total(self, values: Tensor) -> Tensor:
        # On CPUs, which gives the same bits on every rank.
        summed = values.detach().to("cpu", torch.float64, copy=True)
        with raising_rank_lost():
            dist.all_reduce(summed)
        return summed.to(values.device)

    def minimum(self, values: Sequence[int] | None) -> list[int] | None:
        length = torch.tensor([len(values or ())])
        with raising_rank_lost():
            dist.all_reduce(length, dist.ReduceOp.MAX)
        if not int(length):
            return None
        own = torch.tensor([1, *values] if values else [0] * (int(length) + 1))
        gathered = [torch.empty_like(own) for _ in range(self.ranks)]
        with raising_rank_lost():
            dist.all_gather(gathered, own)
        return min(rest for given, *rest in (each.tolist() for each in gathered) if given)

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Iterator[tuple[int, slice, Tensor]]:
        for rank, part in self._blocks(rows, counts):
            if self.rank == 0 == rank:
                yield rank, part, rows[part].cpu()
            elif self.rank == 0:
                block = torch.empty(part.stop - part.start, rows.shape[1], dtype=rows.dtype)
                with raising_rank_lost(rank):
                    dist.recv(block, rank)
                yield rank, part, block
            elif self.rank == rank:
                with raising_rank_lost(0):
                    dist.send(rows[part].contiguous().cpu(), 0)

    def scatter(
        self, read: Callable[[int, slice], Tensor], into: Tensor, counts: Sequence[int]
    ) -> None:
        for rank, part in self._blocks(into, counts):
            if self.rank == 0 == rank:
                into[part] = read(rank, part).to(into.device)
            elif self.rank == 0:
                with raising_rank_lost(rank):
                    dist.send(read(rank, part).contiguous(), rank)
            elif self.rank == rank:
                block = torch.empty(part.stop - part.start, into.shape[1], dtype=into.dtype)
                with raising_rank_lost(0):
                    dist.recv(block, 0)
                into[part] = block.to(into.device)

    def _blocks(self, rows: Tensor, counts: Sequence[int]) -> Iterator[tuple[int, slice]]:
        """All ranks' rows in blocks of about `BLOCK_BYTES`: the rank, and which of its rows."""
        step = max(1, BLOCK_BYTES // max(1, rows.shape[1] * rows.element_size()))
        for rank, count in enumerate(counts):
            for low in range(0, count, step):
                yield rank, slice(low, min(count, low + step))
