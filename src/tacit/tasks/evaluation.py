"""Evaluation of models: on a held-out test set, on each client's own data, or in expectation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Protocol

import torch
from torch import Tensor
from torch.func import vmap

from tacit.core.rows import is_shared
from tacit.core.workers import WorkerPool, without_onednn
from tacit.tasks.criteria import count_correct
from tacit.tasks.flat import FlatModule, Loss, ModuleLoss
from tacit.tasks.layers import Chain
from tacit.tasks.parts import Part, Parts
from tacit.tasks.stream import Stream

TEST_BATCH = {"cpu": 1_000, "cuda": 5_000}  # samples in one pass
GPU_MODELS = 8  # models in one pass on a GPU
WORKSPACE = {"cpu": 1 << 24, "cuda": 1 << 30}  # numbers that one pass may take, roughly


@dataclass(frozen=True)
class ModelScores:
    """Loss of each model [k], and its accuracy in percent if the task is a classification."""

    loss: Tensor
    accuracy: Tensor | None


class Evaluation(Protocol):
    """A way to evaluate models."""

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        """Scores of the models theta [k, P] of these clients."""
        ...

    def average(self, theta: Tensor) -> ModelScores:
        """Scores of the average model [P]."""
        ...

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> Evaluation:
        """This evaluation with data and constants on `device`, computed by the pool's threads."""
        ...

    def at_batch(self, number: int) -> Evaluation:
        """This evaluation at the time of batch `number`; the same unless it changes with time."""
        return self


@dataclass(frozen=True, eq=False)
class TestSet(Evaluation):
    """Evaluates all models on the same held-out data."""

    __test__ = False  # not a test for pytest

    flat: FlatModule
    criterion: Callable[..., Tensor]
    x: Tensor
    y: Tensor
    further: Part = ()  # inputs after x
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(1))

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        if is_shared(theta):
            once, count = self.models(theta[:1], clients[:1]), len(theta)
            accuracy = None if once.accuracy is None else once.accuracy.expand(count)
            return ModelScores(once.loss.expand(count), accuracy)
        models, samples = self._pass_size
        batches = [slice(low, low + samples) for low in range(0, len(self.x), samples)]
        loss, correct, counted = torch.zeros(
            3, len(theta), len(batches), dtype=torch.float64, device=theta.device
        )

        @torch.no_grad()
        def evaluate(item: tuple[int, int]) -> None:
            first, number = item
            x, y, *further = (array[batches[number]] for array in (self.x, self.y, *self.further))
            outputs = self._outputs(theta[first : first + models], x, *further)
            for row, output in enumerate(outputs, first):
                loss[row, number] = self.criterion(output, y) * len(x)
                if (scored := count_correct(self.criterion, output, y)) is not None:
                    correct[row, number], counted[row, number] = scored

        items = product(range(0, len(theta), models), range(len(batches)))
        with self.pool.exclusive(), without_onednn(theta.device):
            self.pool.run(evaluate, items)
        loss, correct, counted = (total.sum(1).cpu() for total in (loss, correct, counted))
        accuracy = 100 * (correct / counted) if bool(counted.any()) else None
        return ModelScores(loss / len(self.x), accuracy)

    def average(self, theta: Tensor) -> ModelScores:
        return self.models(theta[None], [])

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> TestSet:
        x, y, *further = (array.to(device) for array in (self.x, self.y, *self.further))
        flat, pool = self.flat.to(device), pool or self.pool
        return replace(self, flat=flat, x=x, y=y, further=tuple(further), pool=pool)

    @cached_property
    def _chain(self) -> Chain | str:
        return Chain.from_module(self.flat, self.x)

    def _outputs(self, theta: Tensor, x: Tensor, *further: Tensor) -> Iterable[Tensor]:
        """The output [B, ...] of each of the models [k, P] for inputs [B, ...]."""
        if isinstance(self._chain, str):
            return (self.flat(row, x, *further) for row in theta)
        return self._chain.output(theta, x.expand(len(theta), *x.shape))

    @cached_property
    def _pass_size(self) -> tuple[int, int]:
        """Models and samples in one pass, chosen to bound the workspace."""
        kind = self.x.device.type
        models = GPU_MODELS if kind == "cuda" else 1
        if isinstance(self._chain, str):
            return models, TEST_BATCH[kind]
        numbers, _ = self._chain.sizes((*self.x.shape[1:], 1))
        return models, max(1, min(TEST_BATCH[kind], WORKSPACE[kind] // (models * numbers)))


@dataclass(frozen=True, eq=False)
class LocalLoss(Evaluation):
    """Evaluates each model by its client's own loss, the average model by the mean loss."""

    loss: Loss
    parts: Parts | Sequence[Part]
    device: torch.device | str = "cpu"

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        losses = [self._own(row, client) for row, client in zip(theta, clients, strict=True)]
        return ModelScores(torch.tensor(losses, dtype=torch.float64), None)

    def average(self, theta: Tensor) -> ModelScores:
        count = self.parts.clients if isinstance(self.parts, Parts) else len(self.parts)
        each = self.models(theta.expand(count, -1), range(count))
        return ModelScores(each.loss.mean()[None], None)

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> LocalLoss:
        loss = self.loss.to(device) if isinstance(self.loss, ModuleLoss) else self.loss
        return replace(self, loss=loss, device=device)

    @torch.no_grad()
    def _own(self, theta: Tensor, client: int) -> float:
        part = self.parts.of(client) if isinstance(self.parts, Parts) else self.parts[client]
        return float(self.loss(theta, *(array.to(self.device) for array in part)))


@dataclass(frozen=True, eq=False)
class ExpectedLoss(Evaluation):
    """Evaluates each model by its client's expected loss, the average model by the mean of all.

    `stream` gives the arguments of the expected loss at the time of each batch. It draws nothing.
    """

    loss: Loss
    stream: Stream
    number: int = 0
    device: torch.device | str = "cpu"

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        own = (array[torch.tensor(clients)].to(self.device) for array in self.stream.constants)
        nothing = torch.empty(len(theta), 0)
        loss: Tensor = vmap(self.loss)(theta, *self.stream.make(self.number, nothing, *own))
        return ModelScores(loss.double().cpu(), None)

    def average(self, theta: Tensor) -> ModelScores:
        count = self.stream.clients
        each = self.models(theta.expand(count, -1), range(count))
        return ModelScores(each.loss.mean()[None], None)

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> ExpectedLoss:
        return replace(self, device=device)

    def at_batch(self, number: int) -> ExpectedLoss:
        return replace(self, number=number)
