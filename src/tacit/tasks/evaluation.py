"""Judging models: on a held-out test set, or each client's on its own data or by its expected loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.func import vmap

from tacit.tasks.feed import together
from tacit.tasks.flat import FlatModule, Loss, ModuleLoss
from tacit.tasks.parts import Part, Parts
from tacit.tasks.stream import Stream

TEST_BATCH = 1_000


@dataclass(frozen=True)
class Scores:
    """Loss of each model [k], and its accuracy in percent where the task is a classification."""

    loss: Tensor
    accuracy: Tensor | None


class Evaluation(Protocol):
    """How models are judged."""

    def models(self, theta: Tensor, clients: Sequence[int]) -> Scores:
        """Scores of the models theta [k, P] of these clients."""
        ...

    def average(self, theta: Tensor) -> Scores:
        """Scores of one model [P] for all: the average model."""
        ...

    def on(self, device: torch.device | str) -> Evaluation:
        """The same with data and constants on `device`."""
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

    def models(self, theta: Tensor, clients: Sequence[int]) -> Scores:
        """Scores on the test set, the same for all clients."""
        scores = [self._score(row) for row in theta]
        accuracies = [accuracy for _, accuracy in scores if accuracy is not None]
        loss = torch.tensor([loss for loss, _ in scores], dtype=torch.float64)
        if len(accuracies) < len(scores):
            return Scores(loss, None)
        return Scores(loss, torch.tensor(accuracies, dtype=torch.float64))

    def average(self, theta: Tensor) -> Scores:
        """Scores of one model on the test set."""
        return self.models(theta[None], [])

    def on(self, device: torch.device | str) -> TestSet:
        """The same on `device`."""
        return replace(self, flat=self.flat.to(device), x=self.x.to(device), y=self.y.to(device))

    def at(self, number: int) -> TestSet:
        """Itself."""
        return self

    @torch.no_grad()
    def _score(self, theta: Tensor) -> tuple[float, float | None]:
        loss, right, classified = 0.0, 0, False
        for x, y in zip(torch.split(self.x, TEST_BATCH), torch.split(self.y, TEST_BATCH), strict=True):
            output = self.flat(theta, x)
            loss += float(self.criterion(output, y)) * len(x)
            if output.ndim == 2 and output.shape[1] > 1 and y.ndim == 1 and not y.is_floating_point():
                classified = True
                right += int((output.argmax(1) == y).sum())
        return loss / len(self.x), 100 * right / len(self.x) if classified else None


@dataclass(frozen=True, eq=False)
class OwnParts:
    """Each model is judged by its client's own loss; the average model by the mean of all losses."""

    loss: Loss
    parts: Parts | Sequence[Part]
    device: torch.device | str = "cpu"

    def models(self, theta: Tensor, clients: Sequence[int]) -> Scores:
        """Each client's loss at its own model."""
        rows = zip(theta, clients, strict=True)
        losses = [self._own(row, client) for row, client in rows]
        return Scores(torch.tensor(losses, dtype=torch.float64), None)

    def average(self, theta: Tensor) -> Scores:
        """The mean over clients of the loss of one model."""
        count = self.parts.clients if isinstance(self.parts, Parts) else len(self.parts)
        losses = torch.tensor([self._own(theta, client) for client in range(count)], dtype=torch.float64)
        return Scores(losses.mean()[None], None)

    def on(self, device: torch.device | str) -> OwnParts:
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

    def models(self, theta: Tensor, clients: Sequence[int]) -> Scores:
        """Each client's expected loss at its own model."""
        ids = torch.tensor(clients)
        feed = self.stream.feed(ids, ids, seed=0, device=self.device)
        ((_, load),) = feed.pieces(self.number, together)
        loss: Tensor = vmap(self.loss)(theta, *load())
        return Scores(loss.double().cpu(), None)

    def average(self, theta: Tensor) -> Scores:
        """The mean over clients of the expected loss of one model."""
        count = self.stream.clients
        each = self.models(theta.expand(count, -1), range(count))
        return Scores(each.loss.mean()[None], None)

    def on(self, device: torch.device | str) -> ExpectedLoss:
        """The same with constants taken to `device` as they are used."""
        return replace(self, device=device)

    def at(self, number: int) -> ExpectedLoss:
        """The same at the time of batch `number`."""
        return replace(self, number=number)
