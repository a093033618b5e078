"""What the clients minimise together, with their data, first models and how models are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.notebooks import html_table
from tacit.core.workers import WorkerPool
from tacit.privacy.clipping import Clip
from tacit.tasks.batches import BatchLoader, FullBatchSource, MiniBatchSource
from tacit.tasks.evaluation import Evaluation, TestSet
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.local_parameters import LocalParameters
from tacit.tasks.metrics.metric import Metrics, find_metrics
from tacit.tasks.parts import Part, Parts
from tacit.tasks.sample_draws import NO_DRAWS, SampleDraws
from tacit.tasks.stream import Stream


@dataclass(frozen=True, eq=False)
class Objective:
    """The problem that the clients solve together: client i minimises `loss(θ, *its arrays)`.

    θ is a vector of `parameters` numbers. `tacit.Task` makes an objective of a model and the
    clients' data; `quadratic`, `least_squares`, `adaptive_filtering` and `localization` make those
    of standard problems.

    Attributes:
        loss: `loss(theta, *arrays)`, a scalar tensor.
        parts: `Parts` for mini-batches, one tuple of arrays per client for full gradients, or a
            stream.
        batch_size: Samples per gradient; None for full gradients.
        initial: `(seed, clients)` → the initial models [n, P].
        parameters: Length P of a model.
        dtype: float32 or float64.
        evaluation: How models are evaluated.
        optimum: The minimiser [P] of the sum of all losses if known; a function of the batch
            number if it moves.
        proximal: `(b, c, *arrays)` → argmin_w loss(w, *arrays) + bᵀw + c/2 ‖w‖², if known.
        clip: Bound on the norm of every gradient.
        draws: What is drawn for each sample of a gradient.
        names: The clients' names; empty if they have none.
        client_tests: Inputs and targets of each client, held out; None if all have the same.
        disclosure: What clients told each other to prepare their data, in words.
        preprocessing: How raw values became the inputs, as plain values.
        local: The parameters that stay local, if any. `loss` and `evaluation` are of whole models,
            `initial` and `parameters` of what is shared.
    """

    loss: Loss
    parts: Parts | Sequence[Part] | Stream
    batch_size: int | None
    initial: Callable[[int, Sequence[int]], Tensor]
    parameters: int
    dtype: torch.dtype
    evaluation: Evaluation
    optimum: Tensor | Callable[[int], Tensor] | None = None
    proximal: Callable[..., Tensor] | None = None
    clip: Clip | None = None
    draws: SampleDraws = NO_DRAWS
    names: tuple[str, ...] = ()
    client_tests: Sequence[tuple[Any, Tensor] | None] | None = None
    disclosure: str = ""
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    local: LocalParameters | None = None

    def __repr__(self) -> str:
        batch = "full gradients" if self.batch_size is None else f"batches of {self.batch_size}"
        local = "" if self.local is None else f" and {self.local.count:,} local ones"
        return f"Objective({self.clients} clients, {self.parameters:,} parameters{local}, {batch})"

    def _repr_html_(self) -> str:
        """Clients, parameters and batches, for notebooks."""
        batch = "all samples" if self.batch_size is None else self.batch_size
        header = ["clients", "parameters", "batch", "batches per epoch", "numbers"]
        dtype = str(self.dtype).removeprefix("torch.")
        row = [self.clients, f"{self.parameters:,}", batch, self.steps_per_epoch, dtype]
        return html_table("Objective", header, [row])

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return self.source.clients

    @property
    def whole(self) -> Objective:
        """The task of whole models, with all parameters: this one unless some are local."""
        if self.local is None:
            return self
        local = self.local
        # A clip is of what travels, not of the whole gradient.
        return replace(self, initial=local.initial, parameters=local.width, clip=None, local=None)

    @property
    def steps_per_epoch(self) -> int:
        """Iterations in which the average client sees its data once.

        1 with full gradients and with streams.
        """
        return self.source.steps_per_epoch

    @property
    def source(self) -> FullBatchSource | MiniBatchSource | Stream:
        """Where the data of gradients come from."""
        if isinstance(self.parts, Parts):
            assert self.batch_size is not None
            return MiniBatchSource(self.parts, self.batch_size, self.draws)
        if isinstance(self.parts, Sequence):
            return FullBatchSource(self.parts, self.draws)
        return self.parts

    def loader(
        self, ids: Tensor, seed: int, device: torch.device | str, positions: Tensor | None = None
    ) -> BatchLoader:
        """Batches of the clients `ids`, keyed by these permanent numbers.

        `positions` are theirs in `parts`, by default their ids. A node may hold its own part only.
        """
        return self.source.loader(ids, ids if positions is None else positions, seed, device)

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> Objective:
        """This task with its model's constants on `device`, evaluated by the pool's threads."""
        loss = self.loss.to(device) if isinstance(self.loss, ModuleLoss) else self.loss
        local = None if self.local is None else self.local.to(device)
        return replace(self, loss=loss, evaluation=self.evaluation.to(device, pool), local=local)

    def with_metrics(self, metrics: Metrics | None, key: str = "metrics") -> Objective:
        """This task with further metrics beside loss and accuracy.

        Args:
            metrics: Names of built-in metrics, or functions of outputs [n, ...] and targets
                [n, ...] by name.
            key: What the argument is called, for messages.

        Raises:
            Misuse: If a name is unknown, or a metric does not fit the task.
        """
        further = find_metrics(metrics, key)
        return replace(self, evaluation=self.evaluation.with_metrics(further, key))

    @property
    def own_tests(self) -> list[TestSet | None] | None:
        """Evaluation of each client on its own test set, with the metrics of `evaluation`.

        None for a client that has no test data; None in all if there are no such sets.
        """
        common = self.evaluation
        if self.client_tests is None or not isinstance(common, TestSet):
            return None
        return [None if test is None else common.on(*test) for test in self.client_tests]

    def with_optimum(self, optimum: Tensor) -> Objective:
        """This task with a known minimiser [P] of the sum of all losses."""
        return replace(self, optimum=optimum)

    def with_proximal(self, proximal: Callable[..., Tensor]) -> Objective:
        """This task with exact solutions of its local problems: see the attribute `proximal`."""
        return replace(self, proximal=proximal)

    def clipped(self, bound: float, norm: Literal["l1", "l2"] = "l2") -> Objective:
        """This task with every gradient of a client clipped, which differential privacy needs."""
        return replace(self, clip=Clip(bound, norm))

    def require_proximal(self) -> Callable[..., Tensor]:
        """The exact solution of local problems; raises Misuse if it is not known."""
        if self.clip is not None:
            raise Misuse(
                "The exact solver takes no gradients, so there is nothing to clip.",
                "Choose the quadratic, gradient or inner solver, or leave clipping out.",
            )
        if self.proximal is None:
            raise Misuse(
                "The exact solver needs a task with known minimisers, and this one has none.",
                "Choose the quadratic, gradient or inner solver, or tacit.quadratic or "
                "tacit.least_squares as task.",
            )
        return self.proximal

    def optimum_at(self, number: int) -> Tensor | None:
        """The minimiser [P] of the sum of all losses at the time of batch `number`, if known."""
        return self.optimum(number) if callable(self.optimum) else self.optimum

    def checked(self) -> Objective:
        """This task, if every client has at least one batch of samples.

        Raises:
            Misuse: If one has fewer.
        """
        if self.batch_size is None:
            return self
        check_count("batch_size", self.batch_size)
        if isinstance(self.parts, Parts) and int(self.parts.sizes.min()) < self.batch_size:
            client = int(self.parts.sizes.argmin())
            name = self.names[client] if self.names else f"Client {client}"
            raise Misuse(
                f"{name} has {int(self.parts.sizes[client])} samples, fewer than one "
                f"batch of {self.batch_size}.",
                "Lower batch_size or give that client more data (a partition's `minimum`).",
            )
        # NumPy's integers become Python's.
        return replace(self, batch_size=int(self.batch_size))
