"""Judging models: on a held-out test set, or each client's on its own data or by its expected loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.func import vmap

from tacit.core.workers import WorkerPool, separate_products
from tacit.tasks.feed import together
from tacit.tasks.flat import FlatModule, Loss, ModuleLoss
from tacit.tasks.layers import Chain
from tacit.tasks.parts import Part, Parts
from tacit.tasks.stream import Stream

TEST_BATCH = {"cpu": 1_000, "cuda": 5_000}  # samples judged at a time
MODELS = 8  # judged at a time on a GPU
WORKSPACE = {"cpu": 1 << 24, "cuda": 1 << 30}  # numbers that judging may take at a time, roughly


@dataclass(frozen=True)
class ModelScores:
    """Loss of each model [k], and its accuracy in percent where the task is a classification."""

    loss: Tensor
    accuracy: Tensor | None


class Evaluation(Protocol):
    """How models are judged."""

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        """Scores of the models theta [k, P] of these clients."""
        ...

    def average(self, theta: Tensor) -> ModelScores:
        """Scores of one model [P] for all: the average model."""
        ...

    def on(self, device: torch.device | str, pool: WorkerPool | None = None) -> Evaluation:
        """The same with data and constants on `device`, judged by a crew's threads."""
        ...

    def at(self, number: int) -> Evaluation:
        """The same at the time of batch `number`: itself unless what is judged by changes."""
        ...


@dataclass(frozen=True, eq=False)
class TestSet:
    """All models are judged on the same held-out data."""

    __test__ = False  # its name is not meant for pytest

    flat: FlatModule
    criterion: Callable[..., Tensor]
    x: Tensor
    y: Tensor
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(1))

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        """Scores on the test set, the same for all clients."""
        models, samples = self._at_a_time
        pieces = [slice(low, low + samples) for low in range(0, len(self.x), samples)]
        loss, right = torch.zeros(
            2, len(theta), len(pieces), dtype=torch.float64, device=theta.device
        )
        classified: list[bool] = []

        @torch.no_grad()
        def work(place: tuple[int, int]) -> None:
            first, number = place
            x, y = self.x[pieces[number]], self.y[pieces[number]]
            for row, output in enumerate(self._outputs(theta[first : first + models], x), first):
                loss[row, number] = self.criterion(output, y) * len(x)
                if (
                    output.ndim == 2
                    and output.shape[1] > 1
                    and y.ndim == 1
                    and not y.is_floating_point()
                ):
                    right[row, number] = (output.argmax(1) == y).sum()
                    classified.append(True)

        places = [
            (first, number)
            for first in range(0, len(theta), models)
            for number in range(len(pieces))
        ]
        with self.pool.alone(), separate_products(theta.device):
            self.pool.each(work, places)
        loss, right = (total.sum(1).cpu() / len(self.x) for total in (loss, right))
        return ModelScores(loss, 100 * right if classified else None)

    def average(self, theta: Tensor) -> ModelScores:
        """Scores of one model on the test set."""
        return self.models(theta[None], [])

    def on(self, device: torch.device | str, pool: WorkerPool | None = None) -> TestSet:
        """The same on `device`."""
        x, y = self.x.to(device), self.y.to(device)
        return replace(self, flat=self.flat.to(device), x=x, y=y, pool=pool or self.pool)

    def at(self, number: int) -> TestSet:
        """Itself."""
        return self

    @cached_property
    def _chain(self) -> Chain | str:
        return Chain.of(self.flat, self.x)

    def _outputs(self, theta: Tensor, x: Tensor) -> Iterable[Tensor]:
        """What models [k, P] give for inputs [B, ...], one after the other."""
        if isinstance(self._chain, str):
            return (self.flat(row, x) for row in theta)
        return self._chain.output(theta, x.expand(len(theta), *x.shape))

    @cached_property
    def _at_a_time(self) -> tuple[int, int]:
        """Models and samples judged at a time, so that the workspace stays bounded; on a GPU several models."""
        kind = self.x.device.type
        models = MODELS if kind == "cuda" else 1
        if isinstance(self._chain, str):
            return models, TEST_BATCH[kind]
        numbers, _ = self._chain.sizes((*self.x.shape[1:], 1))
        return models, max(1, min(TEST_BATCH[kind], WORKSPACE[kind] // (models * numbers)))


@dataclass(frozen=True, eq=False)
class OwnParts:
    """Each model is judged by its client's own loss; the average model by the mean of all losses."""

    loss: Loss
    parts: Parts | Sequence[Part]
    device: torch.device | str = "cpu"

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        """Each client's loss at its own model."""
        rows = zip(theta, clients, strict=True)
        losses = [self._own(row, client) for row, client in rows]
        return ModelScores(torch.tensor(losses, dtype=torch.float64), None)

    def average(self, theta: Tensor) -> ModelScores:
        """The mean over clients of the loss of one model."""
        count = self.parts.clients if isinstance(self.parts, Parts) else len(self.parts)
        losses = torch.tensor(
            [self._own(theta, client) for client in range(count)], dtype=torch.float64
        )
        return ModelScores(losses.mean()[None], None)

    def on(self, device: torch.device | str, pool: WorkerPool | None = None) -> OwnParts:
        """The same with data taken to `device` as it is used."""
        loss = self.loss.to(device) if isinstance(self.loss, ModuleLoss) else self.loss
        return replace(self, loss=loss, device=device)

    def at(self, number: int) -> OwnParts:
        """Itself."""
        return self

    @torch.no_grad()
    def _own(self, theta: Tensor, client: int) -> float:
        part = self.parts.of(client) if isinstance(self.parts, Parts) else self.parts[client]
        return float(self.loss(theta, *(array.to(self.device) for array in part)))


@dataclass(frozen=True, eq=False)
class ExpectedLoss:
    """Each model is judged by its client's expected loss at one time; the average model by the mean of them all.

    `stream` gives what the expectation depends on at each time, and draws nothing.
    """

    loss: Loss
    stream: Stream
    number: int = 0
    device: torch.device | str = "cpu"

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        """Each client's expected loss at its own model."""
        ids = torch.tensor(clients)
        feed = self.stream.feed(ids, ids, seed=0, device=self.device)
        ((_, load),) = feed.pieces(self.number, together)
        loss: Tensor = vmap(self.loss)(theta, *load())
        return ModelScores(loss.double().cpu(), None)

    def average(self, theta: Tensor) -> ModelScores:
        """The mean over clients of the expected loss of one model."""
        count = self.stream.clients
        each = self.models(theta.expand(count, -1), range(count))
        return ModelScores(each.loss.mean()[None], None)

    def on(self, device: torch.device | str, pool: WorkerPool | None = None) -> ExpectedLoss:
        """The same with constants taken to `device` as they are used."""
        return replace(self, device=device)

    def at(self, number: int) -> ExpectedLoss:
        """The same at the time of batch `number`."""
        return replace(self, number=number)
