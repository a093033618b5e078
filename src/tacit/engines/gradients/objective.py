"""Gradients of all hosted clients: layer by layer for all at once, in one batched pass, or client by client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.core.errors import Misuse
from tacit.core.workers import WorkerPool, without_onednn
from tacit.engines.capture.graphs import Pass, captured_pass
from tacit.tasks.batches import BatchLoader, Chunk, FullBatchLoader, MiniBatchLoader, gather
from tacit.tasks.flat import Loss
from tacit.tasks.layers import layered_loss
from tacit.tasks.parts import Part
from tacit.tasks.task import Task

Strategy = Literal["layered", "batched", "looped"]
Writer = Callable[
    [Tensor, Part, Tensor], None
]  # models [k, P], arrays [k, ...], where gradients go [k, P]
WORKSPACE = {
    "cpu": 1 << 25,
    "cuda": 1 << 30,
}  # numbers that one pass of one worker may take, roughly


def batched(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """Gradients [k, P] in one pass over a client dimension."""
    gradients: Tensor = vmap(grad(loss))(theta, *arrays)
    return gradients


def looped(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """Gradients [k, P] client by client: slow and obviously right."""
    out = torch.empty_like(theta)
    for row, own in enumerate(zip(*arrays, strict=True)):
        point = theta[row].detach().requires_grad_()
        (out[row],) = torch.autograd.grad(loss(point, *own), point)
    return out


PASSES: dict[str, Callable[[Loss, Tensor, Part], Tensor]] = {"batched": batched, "looped": looped}


@dataclass(frozen=True, eq=False)
class GradientBackend:
    """A way to take gradients of one task: what writes those of k clients, and how many at a time."""

    strategy: Strategy
    write: Writer
    numbers: int  # that one client takes in a pass

    @classmethod
    def of(cls, task: Task, strategy: Strategy) -> GradientBackend:
        """That of a task; refused where its loss is no chain of layers and should be taken as one."""
        if strategy == "layered":
            net = layered_loss(task.loss, task.parts, task.batch_size)
            if isinstance(net, str):
                raise Misuse(
                    f'gradients is "layered", but {net}.', 'Use "batched", "looped" or "auto".'
                )
            return cls(strategy, net.write_gradients, net.workspace)
        compute = PASSES[strategy]

        def write(theta: Tensor, arrays: Part, out: Tensor) -> None:
            out.copy_(compute(task.loss, theta, arrays))

        return cls(strategy, write, 4 * task.parameters + 16 * task.source.batch_numel)

    def clients_per_pass(self, device: torch.device | str) -> int:
        """So many that the workspace of a pass stays bounded."""
        return max(1, WORKSPACE[torch.device(device).type] // self.numbers)

    def products(self, device: torch.device | str) -> AbstractContextManager[None]:
        """What a pass is to be in: products of layers are done by workers of a crew, each on its own."""
        return without_onednn(device) if self.strategy == "layered" else nullcontext()


@dataclass(frozen=True, eq=False)
class HostedObjective:
    """The objective of hosted clients (see clients.Objective), bound to data, seed and device."""

    task: Task
    clients: Sequence[int]
    loader: BatchLoader
    strategy: Strategy
    seed: int
    device: torch.device | str
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(1))
    _captured: dict[int, Pass] = field(
        default_factory=dict
    )  # passes of so many clients, as a GPU plays them

    @cached_property
    def _backend(self) -> GradientBackend:
        return GradientBackend.of(self.task, self.strategy)

    def theta0(self) -> Tensor:
        """Initial models [n, P]."""
        return self.task.initial(self.seed, self.clients).to(self.device)

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        out = torch.empty_like(theta) if out is None else out
        if isinstance(self.loader, MiniBatchLoader) and theta.is_cuda:
            self._replay(theta, self.loader.indices(number), out)
        else:
            self._write(theta, self.loader.chunks(number, self._cut), out)
        return self._clipped(out)

    def samples(self, number: int) -> Tensor | None:
        """Which samples are in batch `number` [n, batch]; None if all are in every batch, refused of other data."""
        if isinstance(self.loader, FullBatchLoader):
            return None
        if not isinstance(self.loader, MiniBatchLoader):
            raise TypeError("data that are drawn anew have no places")
        return self.loader.indices(number)

    def grad_on(self, theta: Tensor, samples: Tensor | None, out: Tensor) -> Tensor:
        """Gradients [n, P] on these samples, written into `out` by work that is the same for all samples."""
        if samples is None:
            self._write(theta, self.loader.chunks(0, self._cut), out)
        else:
            for rows in self._cut(len(samples)):
                self._write_batches(theta[rows], samples[rows], out[rows])
        return self._clipped(out)

    def forget_captures(self) -> None:
        """Free the memory of captured passes."""
        self._captured.clear()

    def _clipped(self, gradients: Tensor) -> Tensor:
        return gradients if self.task.clip is None else self.task.clip.clip_(gradients)

    def _replay(self, theta: Tensor, index: Tensor, out: Tensor) -> None:
        """Write gradients on the samples at `index` [n, batch], on a GPU: by passes recorded once for each size."""
        for rows in self._cut(len(index)):
            size = rows.stop - rows.start
            if size not in self._captured:
                self._captured[size] = captured_pass(self._write_batches, theta[rows], index[rows])
            self._captured[size](theta[rows], index[rows], out[rows])

    def _write_batches(self, theta: Tensor, index: Tensor, out: Tensor) -> None:
        assert isinstance(self.loader, MiniBatchLoader)
        with self._backend.products(self.device):
            self._backend.write(theta, gather(self.loader.arrays, index), out)

    def _write(self, theta: Tensor, chunks: Iterable[Chunk], out: Tensor) -> None:
        """Write the gradients of all pieces."""
        backend = self._backend

        def work(piece: Chunk) -> None:
            rows, load = piece
            if isinstance(rows, slice):
                backend.write(theta[rows], load(), out[rows])
            else:
                own = theta[rows]
                there = torch.empty_like(own)
                backend.write(own, load(), there)
                out[rows] = there

        with backend.products(self.device):
            self.pool.run(work, chunks)

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        """The argmin of fᵢ(w) + linearᵢᵀw + curvatureᵢ/2 ‖w‖² [n, P], for b [n, P] and c [n, 1]."""
        proximal = self.task.require_proximal()
        out = torch.empty_like(linear)
        for rows, load in self.loader.chunks(number, self._cut):
            out[rows] = vmap(proximal)(linear[rows], curvature[rows, 0], *load())
        return out

    def _cut(self, count: int) -> list[slice]:
        return self.pool.split(count, self._backend.clients_per_pass(self.device))
