"""A task: each client's loss, data and initial model, and how models are evaluated."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.checks import check_choice, check_count
from tacit.core.errors import Misuse
from tacit.core.notebooks import html_table
from tacit.core.workers import WorkerPool
from tacit.data.augmentation import Augment
from tacit.data.dataset import Dataset, Target
from tacit.privacy.clipping import Clip
from tacit.tasks.batches import BatchLoader, FullBatchSource, MiniBatchSource
from tacit.tasks.client_tests import ClientTests
from tacit.tasks.criteria import check_loss
from tacit.tasks.evaluation import Evaluation, LocalLoss, TestSet
from tacit.tasks.finite import check_finite
from tacit.tasks.fitting import check_augment, fit, held_out, held_out_per_client
from tacit.tasks.flat import FlatModule, Loss, ModuleLoss
from tacit.tasks.inputs import ONE_INPUT, is_per_client, read_parts
from tacit.tasks.local_parameters import LocalParameters
from tacit.tasks.metrics.metric import Metrics, find_metrics
from tacit.tasks.parts import Part, Parts, as_parts, disclosure_of
from tacit.tasks.regression import Regression
from tacit.tasks.sample_draws import NO_DRAWS, SampleDraws
from tacit.tasks.stream import Stream

Init = Literal["module", "same", "independent"]


@dataclass(frozen=True, eq=False)
class Task:
    """The problem that the clients solve together: client i minimises `loss(θ, *its arrays)`.

    θ is a vector of `parameters` numbers. Make a task with `Task.from_module`, `Task.from_loss`,
    `quadratic`, `least_squares`, `adaptive_filtering` or `localization`.

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
    client_tests: list[tuple[Any, Tensor]] | None = None
    disclosure: str = ""
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    local: LocalParameters | None = None

    def __repr__(self) -> str:
        batch = "full gradients" if self.batch_size is None else f"batches of {self.batch_size}"
        local = "" if self.local is None else f" and {self.local.count:,} local ones"
        return f"Task({self.clients} clients, {self.parameters:,} parameters{local}, {batch})"

    def _repr_html_(self) -> str:
        """Clients, parameters and batches, for notebooks."""
        batch = "all samples" if self.batch_size is None else self.batch_size
        header = ["clients", "parameters", "batch", "batches per epoch", "numbers"]
        dtype = str(self.dtype).removeprefix("torch.")
        row = [self.clients, f"{self.parameters:,}", batch, self.steps_per_epoch, dtype]
        return html_table("Task", header, [row])

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        parts: Sequence[Any] | Parts | Dataset,
        *,
        loss: Callable[..., Tensor] = functional.cross_entropy,
        batch_size: int | None = None,
        test: Any = None,
        init: Init = "module",
        augment: Augment | None = None,
        local: Sequence[str] | None = None,
        local_lr: float | None = None,
        target: Target | None = None,
    ) -> Task:
        """Train a module on each client's inputs and targets.

        Args:
            module: The model. It must be a pure function of its parameters and inputs, but for
                dropout, whose masks are drawn from keys of the samples: see `models.keyed`.
            parts: One entry per client: a tuple (inputs [nᵢ, ...], targets [nᵢ, ...]), where
                inputs may be a tuple of tensors or a dictionary of them, which the model takes as
                keywords; a dictionary with inputs and "labels"; or a map-style torch Dataset of
                such samples. Or a dataset of `tacit.data.from_tables`, with the clients' names
                and test samples.
            loss: `loss(output, targets)`, a mean over the batch. Cross-entropy fits itself to
                outputs [B, classes], [B, tokens, classes], and one logit for two classes. With a
                `target`, it is a loss of standardised numbers, by default the mean squared error.
            batch_size: Samples per gradient. None: every gradient uses all data of its client.
            test: Held-out (inputs, targets), or a list with one such pair per client; all models
                are evaluated on all of them. None: models are evaluated on their clients' own
                data.
            init: Initial models: the module's own weights ("module"), one random draw for all
                clients ("same"), or one per client ("independent"). Draws depend on the seed of
                the run.
            augment: Random changes of the images of every gradient; not in evaluation.
            local: Parameters that stay local: names of parameters or modules, such as ["head"], or
                patterns such as "*.bias". Each client trains its own by plain gradient steps, and
                evaluates its own model. They are never sent.
            local_lr: Step size of the local parameters; default: that of the algorithm.
            target: A number to predict, which is standardised in training: the model gets a last
                layer that turns its output into the target's unit. Default: that of the dataset.

        Returns:
            A task with a model of P parameters per client, without the local ones.

        Raises:
            Misuse: If the module is not pure, or data and options do not fit together.

        Example:
            >>> import torch, tacit
            >>> parts = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
            >>> tacit.Task.from_module(torch.nn.Linear(4, 3), parts, batch_size=10)
            Task(5 clients, 15 parameters, batches of 10)
        """
        check_choice("init", init, ("module", "same", "independent"))
        if not isinstance(module, nn.Module):
            raise Misuse(f"module is a {type(module).__name__}.", "Give a torch.nn.Module.")
        check_loss(loss)
        names: tuple[str, ...] = ()
        disclosure = ""
        preprocessing: Mapping[str, Any] = {}
        if isinstance(parts, Dataset):
            names, disclosure, preprocessing = parts.clients, parts.disclosure, parts.preprocessing
            target = target or parts.target
            if test is None:
                test = parts.client_tests or (parts.test.x, parts.test.y)
            parts = Parts.split((parts.train.x, parts.train.y), _owners(parts))
        if target is not None:
            own_loss = None if loss is functional.cross_entropy else loss
            regression = Regression.of(module, target, own_loss)
            module, loss = regression.module, regression.loss
            local = local and [f"{regression.prefix}{name}" for name in local]
        if isinstance(parts, Parts):
            held, layout = parts, ONE_INPUT
        else:
            given, layout = read_parts(parts)
            held, disclosure = Parts.concatenate(given), disclosure_of(given)
        if len(held.arrays) <= layout.count:
            raise Misuse(
                "The parts hold inputs only.", "from_module needs (inputs, targets) per client."
            )
        flat = FlatModule(module, layout)
        if init != "module":
            # Fails now, not in the middle of a run, if a layer cannot draw its parameters.
            flat.random_weights("trial")
        fitted = fit(flat, held.arrays, loss)
        held = replace(held, arrays=fitted.convert(held.arrays))
        if augment is not None:
            check_augment(augment, held, layout)
        module_loss = ModuleLoss(flat, fitted.criterion)
        check_finite(module_loss, held)
        evaluation: Evaluation = LocalLoss(module_loss, held)
        client_tests = None
        if test is not None and is_per_client(test):
            evaluation, client_tests = held_out_per_client(flat, fitted, test, held)
        elif test is not None:
            evaluation = held_out(flat, fitted, test, held)
        if isinstance(evaluation, TestSet) and target is not None:
            evaluation = evaluation.with_metrics(())

        def initial(seed: int, clients: Sequence[int]) -> Tensor:
            if init == "independent":
                return torch.stack(
                    [flat.random_weights(seed, "init", client) for client in clients]
                )
            one = flat.weights() if init == "module" else flat.random_weights(seed, "init")
            return one.repeat(len(clients), 1)

        data = held if batch_size is not None else [held.of(i) for i in range(held.clients)]
        keyed_loss = replace(module_loss, keyed=flat.keyed)
        task = cls(keyed_loss, data, batch_size, initial, flat.width, flat.dtype, evaluation)
        whole = replace(
            task,
            draws=SampleDraws(augment, flat.keyed),
            names=names,
            client_tests=client_tests,
            disclosure=disclosure,
            preprocessing=preprocessing,
        )._checked()
        if local is not None and (isinstance(local, str) or not isinstance(local, Sequence)):
            raise Misuse(f"local is {local!r}.", 'Give a list of names, such as ["head"].')
        if not local:
            return whole
        split = LocalParameters.of(flat, initial, local, local_lr)

        def shared(seed: int, clients: Sequence[int]) -> Tensor:
            return split.shared_of(initial(seed, clients))

        return replace(whole, initial=shared, parameters=len(split.shared), local=split)

    @classmethod
    def from_loss(
        cls,
        loss: Loss,
        parts: Sequence[Any],
        theta0: Tensor,
        batch_size: int | None = None,
    ) -> Task:
        """Minimise any differentiable loss of a vector.

        Args:
            loss: `loss(theta, *arrays)` of theta [P] and a client's arrays. A loss with exactly
                two parameters gets a part of several arrays as one tuple.
            parts: One entry per client: a tensor or a tuple of tensors of any shapes.
            theta0: Initial model [P] of all clients, or one row per client [N, P].
            batch_size: Samples per gradient, taken along the first dimension of each array. None:
                every gradient uses all data of its client.

        Returns:
            A task whose models are evaluated by their clients' own losses.

        Raises:
            Misuse: If data, theta0 and batch_size do not fit together.

        Example:
            >>> import torch, tacit
            >>> def loss(theta, x):
            ...     return (theta - x).square().sum()
            >>> tacit.Task.from_loss(loss, [torch.randn(2) for _ in range(5)], torch.zeros(2))
            Task(5 clients, 2 parameters, full gradients)
        """
        given: Any = loss
        if not callable(given):
            problem = f"loss is a {type(given).__name__}."
            raise Misuse(problem, "Give a function of theta and a client's arrays.")
        held = as_parts(parts)
        try:
            start = torch.as_tensor(theta0).detach().clone()
        except (TypeError, ValueError, RuntimeError):
            problem = f"theta0 is a {type(theta0).__name__}."
            raise Misuse(problem, "Give a vector [P], or one row per client [N, P].") from None
        if start.ndim not in (1, 2) or (start.ndim == 2 and len(start) != len(held)):
            raise Misuse(
                f"theta0 has shape {tuple(start.shape)} for {len(held)} clients.",
                "Give a vector [P], or one row per client [N, P].",
            )
        if start.dtype not in (torch.float32, torch.float64):
            raise Misuse(
                f"theta0 has type {start.dtype}.",
                "Give floating-point numbers: float32 or float64.",
            )

        def initial(seed: int, clients: Sequence[int]) -> Tensor:
            return start.repeat(len(clients), 1) if start.ndim == 1 else start[list(clients)]

        whole = _takes_whole_part(loss, held[0])
        of_arrays: Loss = (lambda theta, *part: loss(theta, part)) if whole else loss
        data = held if batch_size is None else Parts.concatenate(held)
        evaluation = LocalLoss(of_arrays, data)
        task = cls(of_arrays, data, batch_size, initial, start.shape[-1], start.dtype, evaluation)
        return replace(task, disclosure=disclosure_of(held))._checked()

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return self.source.clients

    @property
    def whole(self) -> Task:
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

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> Task:
        """This task with its model's constants on `device`, evaluated by the pool's threads."""
        loss = self.loss.to(device) if isinstance(self.loss, ModuleLoss) else self.loss
        local = None if self.local is None else self.local.to(device)
        return replace(self, loss=loss, evaluation=self.evaluation.to(device, pool), local=local)

    def with_metrics(self, metrics: Metrics | None, key: str = "metrics") -> Task:
        """This task with further metrics beside loss and accuracy.

        Args:
            metrics: Names of built-in metrics, or functions of outputs [n, ...] and targets
                [n, ...] by name.
            key: What the argument is called, for messages.

        Raises:
            Misuse: If a name is unknown, or a metric does not fit the task.
        """
        found = find_metrics(metrics, key)
        return replace(self, evaluation=self.evaluation.with_metrics(found, key))

    @property
    def own_tests(self) -> ClientTests | None:
        """Evaluation of each client on its own test set, with the metrics of `evaluation`."""
        if self.client_tests is None or not isinstance(self.evaluation, TestSet):
            return None
        return ClientTests.of(self.evaluation, self.client_tests)

    def with_optimum(self, optimum: Tensor) -> Task:
        """This task with a known minimiser [P] of the sum of all losses."""
        return replace(self, optimum=optimum)

    def with_proximal(self, proximal: Callable[..., Tensor]) -> Task:
        """This task with exact solutions of its local problems: see the attribute `proximal`."""
        return replace(self, proximal=proximal)

    def clipped(self, bound: float, norm: Literal["l1", "l2"] = "l2") -> Task:
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

    def _checked(self) -> Task:
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


def _owners(dataset: Dataset) -> Sequence[Tensor]:
    if not dataset.owners:
        raise Misuse(
            f"The samples of dataset {dataset.name} have no owners.",
            "Divide them: dataset.train.parts(tacit.data.iid(…).indices).",
        )
    return dataset.owners


def _takes_whole_part(loss: Loss, part: Part) -> bool:
    """Whether a loss is written `loss(theta, part)` for a part of several arrays."""
    if len(part) == 1:
        return False
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):
        return False
    kinds = [p.kind for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    return len(kinds) == 2 and inspect.Parameter.VAR_POSITIONAL not in kinds
