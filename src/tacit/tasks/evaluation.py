"""Evaluation of models: on a held-out test set, on each client's own data, or in expectation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.func import vmap

from tacit.core.errors import Misuse
from tacit.core.rows import is_shared, shared
from tacit.core.workers import WorkerPool, without_onednn
from tacit.gradients import passes
from tacit.tasks.batches import gather
from tacit.tasks.client_gradients import saved_numbers, stacked_losses
from tacit.tasks.criteria import StandardizedLoss
from tacit.tasks.flat import FlatModule, Loss, ModuleLoss
from tacit.tasks.known_layers import is_known
from tacit.tasks.metrics.batch import Kind, kind_of
from tacit.tasks.metrics.class_counts import ClassCounts
from tacit.tasks.metrics.collecting import Collector
from tacit.tasks.metrics.metric import REGRESSION, Metric, check_kind
from tacit.tasks.parts import Part, Parts
from tacit.tasks.stream import Stream

TEST_BATCH = {"cpu": 1_000, "cuda": 5_000}  # samples in one pass
GPU_MODELS = 8  # models in one pass on a GPU
KEPT_OUTPUTS = 1 << 26  # numbers, for metrics that need all outputs of a model at once
# Share and size by which outputs of two samples may differ when models run at once.
SAME = (1e-3, 1e-4)
# Fewer clients of one shape go one by one: passes are checked on one client.
FEW_CLIENTS = 8
WORKSPACE = {"cpu": 1 << 24, "cuda": 1 << 30}  # numbers that one pass may take, roughly


@dataclass(frozen=True)
class ModelScores:
    """What an evaluation says of k models.

    Attributes:
        loss: Of each model, [k].
        accuracy: In percent [k], if the task is a classification.
        metrics: Further metrics by name, [k] each.
        counts: Predictions of each class, if the task is a classification.
    """

    loss: Tensor
    accuracy: Tensor | None
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    counts: ClassCounts | None = None

    def expand(self, count: int) -> ModelScores:
        """The scores of one model, as those of `count` equal ones."""
        return ModelScores(
            self.loss.expand(count),
            None if self.accuracy is None else self.accuracy.expand(count),
            {name: values.expand(count) for name, values in self.metrics.items()},
            None if self.counts is None else self.counts.expand(count),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[ModelScores]) -> ModelScores:
        """The scores of all models of several evaluations on one test set."""
        if len(parts) == 1:
            return parts[0]
        accuracies = [part.accuracy for part in parts if part.accuracy is not None]
        counts = [part.counts for part in parts if part.counts is not None]
        return cls(
            torch.cat([part.loss for part in parts]),
            torch.cat(accuracies) if accuracies else None,
            {name: torch.cat([part.metrics[name] for part in parts]) for name in parts[0].metrics},
            ClassCounts.concatenate(counts) if counts else None,
        )


class Evaluation(Protocol):
    """A way to evaluate models."""

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        """Scores of the models theta [k, P] of these clients."""
        ...

    def average(self, theta: Tensor) -> ModelScores:
        """Scores of the average model [P]."""
        return self.models(theta[None], [])

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> Evaluation:
        """This evaluation with data and constants on `device`, computed by the pool's threads."""
        ...

    def at_batch(self, number: int) -> Evaluation:
        """This evaluation at the time of batch `number`; the same unless it changes with time."""
        return self

    def with_metrics(self, metrics: Sequence[Metric], key: str = "metrics") -> Evaluation:
        """This evaluation with further metrics; raises Misuse if they do not fit.

        `key` is what the argument is called, for messages.
        """
        if any(metric.name != "loss" for metric in metrics):
            raise Misuse(
                f"{key} are set, but there is no test set to compute them on.",
                "Give the task one (`test` or `client_tests`), or leave the metrics out.",
            )
        return self

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The further metrics of `ModelScores.metrics`."""
        return ()

    @property
    def has_accuracy(self) -> bool:
        """Whether models predict classes, and so have an accuracy and a baseline."""
        return False

    @property
    def has_loss(self) -> bool:
        """Whether it gives losses at all."""
        return True

    @property
    def reads_training_data(self) -> bool:
        """Whether scores are computed from the data that clients train on."""
        return False


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
    metrics: tuple[Metric, ...] = ()

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        if is_shared(theta):
            return self.models(theta[:1], clients[:1]).expand(len(theta))
        if not any(metric.needs_outputs for metric in self.metrics):
            return self._pass(theta)
        together = max(1, KEPT_OUTPUTS // (self._output_of_two.numel() * len(self.x)))
        return ModelScores.concatenate([self._pass(rows) for rows in torch.split(theta, together)])

    def with_metrics(self, metrics: Sequence[Metric], key: str = "metrics") -> TestSet:
        if isinstance(self.criterion, StandardizedLoss):
            metrics = tuple(dict.fromkeys((*REGRESSION, *metrics)))
        if metrics:
            check_kind(metrics, self._kind, key)
        return replace(self, metrics=tuple(m for m in metrics if not m.is_standard))

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(metric.name for metric in self.metrics)

    @property
    def has_accuracy(self) -> bool:
        return self._kind in ("classes", "tokens")

    @property
    def _kind(self) -> Kind:
        return kind_of(self.criterion, self._output_of_two, self.y[:2])

    def _pass(self, theta: Tensor) -> ModelScores:
        """Scores of the models theta [k, P], by one pass over the test set."""
        models, samples = self._pass_size
        batches = [slice(low, low + samples) for low in range(0, len(self.x), samples)]
        shape, device = (len(theta), len(batches)), theta.device
        loss, correct, counted = torch.zeros(3, *shape, dtype=torch.float64, device=device)
        collector = Collector(self.criterion, self.metrics, *shape)

        @torch.no_grad()
        def evaluate(item: tuple[int, int]) -> None:
            first, number = item
            x, y, *further = (array[batches[number]] for array in (self.x, self.y, *self.further))
            outputs = self._outputs(theta[first : first + models], x, *further)
            for row, output in enumerate(outputs, first):
                loss[row, number] = self.criterion(output, y) * len(x)
                if (batch := collector.add(row, number, output, y)) is not None:
                    right = (batch.predicted == batch.actual) & batch.counted
                    correct[row, number], counted[row, number] = right.sum(), batch.counted.sum()

        items = product(range(0, len(theta), models), range(len(batches)))
        with self.pool.exclusive(), without_onednn(theta.device):
            self.pool.run(evaluate, items)
        loss, correct, counted = (total.sum(1).cpu() for total in (loss, correct, counted))
        accuracy = 100 * (correct / counted) if bool(counted.any()) else None
        metrics, counts = collector.finish(self.y)
        return ModelScores(loss / len(self.x), accuracy, metrics, counts)

    @cached_property
    def _output_of_two(self) -> Tensor:
        """The output for the first two samples, for its shape."""
        inputs = (array[:2] for array in (self.x, *self.further))
        with torch.no_grad():
            return self.flat(self.flat.weights().to(self.x.device), *inputs)

    def on(self, inputs: Tensor | Sequence[Tensor], targets: Tensor) -> TestSet:
        """This evaluation on other data."""
        arrays = inputs if isinstance(inputs, tuple | list) else (inputs,)
        x, y, *further = (array.to(self.x.device) for array in (arrays[0], targets, *arrays[1:]))
        return replace(self, x=x, y=y, further=tuple(further))

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> TestSet:
        x, y, *further = (array.to(device) for array in (self.x, self.y, *self.further))
        flat, pool = self.flat.to(device), pool or self.pool
        return replace(self, flat=flat, x=x, y=y, further=tuple(further), pool=pool)

    @cached_property
    def _is_stacked(self) -> bool:
        """Whether models of one pass run at once: those of known layers that can.

        Others may take further paths of torch in evaluation, which are left to torch.
        """
        if not is_known(self.flat.module):
            return False
        theta = self.flat.weights().to(self.x.device).expand(2, -1)
        try:
            outputs = self._stacked(theta, *(array[:2] for array in (self.x, *self.further)))
        except Exception:  # rules and torch.func raise many kinds
            return False
        expected = self._output_of_two.expand(2, *self._output_of_two.shape)
        return outputs.shape == expected.shape and torch.allclose(outputs, expected, *SAME)

    def _outputs(self, theta: Tensor, x: Tensor, *further: Tensor) -> Iterable[Tensor]:
        """The output [B, ...] of each of the models [k, P] for inputs [B, ...]."""
        if self._is_stacked:
            return self._stacked(theta, x, *further)
        return (self.flat(row, x, *further) for row in theta)

    def _stacked(self, theta: Tensor, *inputs: Tensor) -> Tensor:
        """The outputs [k, B, ...] of all models at once; raises NotStackable if that cannot be."""
        flat = self.flat
        return passes.outputs(lambda p: flat(tuple(p), *inputs), flat.unflatten_rows(theta))

    @cached_property
    def _pass_size(self) -> tuple[int, int]:
        """Models and samples in one pass, chosen to bound the workspace."""
        kind = self.x.device.type
        models = GPU_MODELS if kind == "cuda" else 1
        if not self._is_stacked:
            return models, TEST_BATCH[kind]
        two = tuple(array[:2] for array in (self.x, *self.further))
        # What two samples save for a backward pass, twice, is what one may take.
        numbers = saved_numbers(self.flat, self.flat.weights().to(self.x.device), two)
        return models, max(1, min(TEST_BATCH[kind], WORKSPACE[kind] // max(1, models * numbers)))


@dataclass(frozen=True, eq=False)
class LocalLoss(Evaluation):
    """Evaluates each model by its client's own loss, the average model by the mean loss.

    Clients whose arrays have the same shapes share passes. N clients with different numbers of
    samples have N²/2 samples or more, so that the number of passes is small beside that of samples;
    and a loss need not be a mean over samples, as it would if parts were cut or filled up.
    """

    loss: Loss
    parts: Parts | Sequence[Part]
    device: torch.device | str = "cpu"
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(1))

    @property
    def reads_training_data(self) -> bool:
        return True

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        losses = torch.empty(len(theta), dtype=torch.float64)
        numbers = torch.as_tensor(clients)

        def evaluate(rows: Tensor) -> None:
            one_model = is_shared(theta) and len(rows) > 1
            models = shared(theta[:1], len(rows)) if one_model else theta[rows]
            losses[rows] = self._losses(models, self._arrays(numbers[rows])).double().cpu()

        with self.pool.exclusive(), without_onednn(theta.device):
            self.pool.run_evenly(evaluate, self._passes(theta, numbers))
        return ModelScores(losses, None)

    def average(self, theta: Tensor) -> ModelScores:
        count = self.parts.clients if isinstance(self.parts, Parts) else len(self.parts)
        each = self.models(theta.expand(count, -1), range(count))
        return ModelScores(each.loss.mean()[None], None)

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> LocalLoss:
        loss = self.loss.to(device) if isinstance(self.loss, ModuleLoss) else self.loss
        return replace(self, loss=loss, device=device, pool=pool or self.pool)

    def _passes(self, theta: Tensor, clients: Tensor) -> Iterator[Tensor]:
        """The rows of each pass: clients with arrays of the same shapes."""
        shapes: Iterable[Any]
        if isinstance(self.parts, Parts):
            shapes = self.parts.sizes[clients].tolist()
        else:
            shapes = (tuple(x.shape for x in self.parts[client]) for client in clients.tolist())
        rows_of: dict[Any, list[int]] = {}
        for row, shape in enumerate(shapes):
            rows_of.setdefault(shape, []).append(row)
        of_model = 0 if is_shared(theta) else theta.shape[1]
        saved = None
        for rows in map(torch.tensor, rows_of.values()):
            if len(rows) < FEW_CLIENTS:
                yield rows
                continue
            arrays = self._arrays(clients[rows[:1]])
            size = max(1, sum(array.numel() for array in arrays))
            if saved is None:
                first = tuple(array[0] for array in arrays)
                saved = saved_numbers(self.loss, theta[0], first) / size
            together = WORKSPACE[theta.device.type] / (of_model + (1 + saved) * size)
            for chunk in self.pool.split(len(rows), max(1, int(together))):
                yield rows[chunk]

    def _arrays(self, clients: Tensor) -> Part:
        """The arrays [k, ...] of clients [k] whose arrays have the same shapes."""
        if isinstance(self.parts, Parts):
            first, size = self.parts.offsets[clients, None], self.parts.sizes[clients[0]]
            arrays = gather(self.parts.arrays, self.parts.order[first + torch.arange(int(size))])
        else:
            own = (self.parts[client] for client in clients.tolist())
            arrays = tuple(torch.stack(column) for column in zip(*own, strict=True))
        return tuple(array.to(self.device) for array in arrays)

    @torch.no_grad()
    def _losses(self, theta: Tensor, arrays: Part) -> Tensor:
        """The losses [k] of models [k, P], in one pass if it gives what a loop gives."""

        def own(k: int) -> Tensor:
            return self.loss(theta[k], *(array[k] for array in arrays))

        last = own(len(theta) - 1)
        if len(theta) >= FEW_CLIENTS:
            with suppress(Exception):  # rules, torch.func and users' losses raise many kinds
                losses = stacked_losses(self.loss, theta, arrays)
                if torch.allclose(losses[-1], last, *SAME, equal_nan=True):
                    return losses
        return torch.stack([*map(own, range(len(theta) - 1)), last])


class NoScores(Evaluation):
    """Gives nothing: where there is no test set, and losses would tell about training data."""

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        return ModelScores(torch.full((len(theta),), torch.nan, dtype=torch.float64), None)

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> NoScores:
        return self

    @property
    def has_loss(self) -> bool:
        return False


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
