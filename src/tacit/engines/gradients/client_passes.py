"""Gradients of k clients: stacked in one pass, or looped, and which of both is used.

The choice depends on the model, its data's shapes, the type and the device: never on time. Before a
run, gradients of a pass of the size that the run has are compared with those of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import torch
from torch import Tensor

from tacit.core.devices import Precision, autocast, float32_products
from tacit.core.errors import Misuse, first_line
from tacit.core.workers import WorkerPool
from tacit.engines.gradients.sample_passes import agree, perturbed
from tacit.gradients.workspace import pass_numbers
from tacit.tasks.batches import BatchLoader
from tacit.tasks.client_gradients import saved_numbers, write_looped, write_stacked
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.known_layers import has_backward_hooks
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Part
from tacit.tasks.purity import check_repeatable

Strategy = Literal["stacked", "looped"]
# Takes models [k, P], arrays [k, ...] and the output [k, P].
Writer = Callable[[Tensor, Part, Tensor], None]
PASSES: dict[Strategy, Callable[[Loss, Tensor, Part, Tensor], object]] = {
    "stacked": write_stacked,
    "looped": write_looped,
}
# Share by which gradients of two ways may differ: rounding is a part of it.
LARGEST_ERROR: dict[Precision, float] = {"float32": 0.01, "tf32": 0.1, "bf16": 0.5}
# Share of a whole gradient that counts as rounding in the gradient by one parameter: little, or a
# wrong gradient behind a gate that is almost closed would pass.
ROUNDING: dict[Precision, float] = {"float32": 1e-4, "tf32": 0.01, "bf16": 0.05}
# Shapes of clients' parts that are tried: a model may branch on the number of samples.
SHAPES = 4
# Models that are tried: at a kink of the loss, rounding alone changes a gradient.
TRIALS = 2
# Names of ways that there are no more.
REPLACED = ("layered", "batched")


@dataclass(frozen=True, eq=False)
class GradientBackend:
    """Computes the gradients of k clients of one task at a time.

    Attributes:
        strategy: How.
        write: Computes and writes them.
        workspace: How many numbers one client takes in a pass, roughly.
        precision: The type of products.
        by_loops: Whether compiled loops write all of them, so that all else takes little time.
    """

    strategy: Strategy
    write: Writer
    workspace: int
    precision: Precision = "float32"
    by_loops: bool = False

    @classmethod
    def of(
        cls, task: Objective, strategy: Strategy, precision: Precision = "float32"
    ) -> GradientBackend:
        """The backend for a task."""
        compute = PASSES[strategy]

        def write(theta: Tensor, arrays: Part, out: Tensor) -> None:
            # Threads have settings of their own for autocast.
            with autocast(precision, theta.device):
                compute(task.loss, theta, arrays, place := _writable(out))
            if place is not out:
                out.copy_(place)

        return cls(strategy, write, 4 * task.parameters + 16 * task.source.batch_numel, precision)

    def needs_measuring(self, loss: Loss) -> bool:
        """Whether its workspace depends on what a module computes.

        A loop needs that of a few clients only, however many there are.
        """
        return self.strategy == "stacked" and isinstance(loss, ModuleLoss)

    def measured(self, loss: Loss, theta: Tensor, arrays: Part) -> GradientBackend:
        """This backend with the workspace of the loss at theta [P] on one client's arrays."""
        with autocast(self.precision, theta.device):
            saved = saved_numbers(loss, theta, arrays)
            one = tuple(array[None] for array in arrays)
            by_rules = write_stacked(loss, theta[None], one, torch.empty_like(theta)[None])
        # As much again for the backward pass; the model, and its gradient by one parameter.
        by_loops = by_rules and theta.device.type == "cpu"
        return replace(self, workspace=2 * len(theta) + 2 * saved, by_loops=by_loops)

    def clients_per_pass(self, device: torch.device | str) -> int:
        """How many clients fit into the workspace of a pass."""
        return max(1, pass_numbers(torch.device(device)) // self.workspace)

    def pass_context(self, device: torch.device | str) -> AbstractContextManager[None]:
        """The context of a pass, in the thread that starts it."""
        if torch.device(device).type == "cuda":
            return float32_products(tf32=self.precision == "tf32")
        return nullcontext()


def _writable(out: Tensor) -> Tensor:
    """The output, or a tensor like it if passes, which record, could not write into it."""
    if not out.is_inference():
        return out
    with torch.inference_mode(False):
        return torch.empty_like(out)


@dataclass(frozen=True)
class BackendChoice:
    """A way to compute gradients, and why it was chosen."""

    strategy: Strategy
    reason: str


def choose_backend(
    task: Objective,
    clients: Sequence[int],
    loader: BatchLoader,
    seed: int,
    device: torch.device | str,
    requested: str = "auto",
    pool: WorkerPool | None = None,
    precision: Precision = "float32",
) -> BackendChoice:
    """All clients at once, wherever that gives the gradients of a loop.

    Args:
        task: What the clients minimise.
        clients: Ids of the hosted clients.
        loader: Loads their batches.
        seed: Keys the initial models.
        device: Where gradients are computed.
        requested: `"auto"`, or a way to compute gradients.
        pool: Shares the work of a pass; default: one thread.
        precision: How gradients are computed.

    Raises:
        Misuse: If the way is unknown or does not fit the loss, or if the loss is random or not a
            single number.
    """
    check_strategy(requested)
    pool = pool or WorkerPool(1)
    backend = GradientBackend.of(task, "stacked", precision)
    looped = GradientBackend.of(task, "looped", precision)
    examples = list(_models_and_batches(task, clients, loader, seed, device, 1))
    for models, batches in examples:
        _check_loss(task.loss, models, batches)
    if requested == "looped":
        return BackendChoice("looped", "as requested")
    if len(clients) == 1 and requested == "auto":
        return BackendChoice("looped", "one client")
    if backend.needs_measuring(task.loss):
        try:
            models, batches = examples[0]
            backend = backend.measured(task.loss, models[0], tuple(x[0] for x in batches))
        except Exception as error:  # torch.func and sparse tensors cannot be measured
            return _looped(requested, f"clients go one by one ({first_line(error)})")
    count = pool.split(len(clients), backend.clients_per_pass(device))[0].stop
    for theta, arrays in _models_and_batches(task, clients, loader, seed, device, count):
        problem = _problem(task.loss, backend, looped, theta, arrays)
        if problem is not None:
            return _looped(requested, problem)
    return BackendChoice("stacked", "all clients of a pass at once")


def _looped(requested: str, problem: str) -> BackendChoice:
    """A loop over clients, unless another way was requested."""
    if requested == "stacked":
        raise Misuse(f'gradients is "stacked", but {problem}.', 'Use "looped" or "auto".')
    return BackendChoice("looped", problem)


def check_strategy(requested: str, key: str = "gradients") -> None:
    """Raise Misuse if this is neither `"auto"` nor a way to compute gradients."""
    if requested in REPLACED:
        raise Misuse(
            f"{key} is {requested!r}, which there is no more.",
            'Choose "auto": gradients of all clients are computed at once where they can be '
            '("stacked"), or "looped".',
        )
    if requested not in ("auto", *PASSES):
        raise Misuse(f"{key} is {requested!r}.", 'Choose "auto", "stacked" or "looped".')


def _models_and_batches(
    task: Objective,
    clients: Sequence[int],
    loader: BatchLoader,
    seed: int,
    device: torch.device | str,
    count: int,
) -> Iterator[tuple[Tensor, Part]]:
    """The initial models of at most `count` clients with parts of one shape, and a batch of each.

    For each of the first shapes of parts. The models are another client's where parts have several,
    which does not matter here.
    """
    chunks = loader.chunks(0, lambda size: [slice(0, min(size, count))])
    for _, load in islice(chunks, SHAPES):
        arrays = load()
        yield task.initial(seed, clients[: len(arrays[0])]).to(device), arrays


def _problem(
    loss: Loss, backend: GradientBackend, looped: GradientBackend, theta: Tensor, arrays: Part
) -> str | None:
    """Why clients cannot be computed at once: it fails, or gradients are not those of a loop."""
    if isinstance(loss, ModuleLoss) and has_backward_hooks(loss.flat.module):
        return "clients go one by one (the model has hooks of its backward pass)"
    sizes = loss.flat.sizes if isinstance(loss, ModuleLoss) else [theta.shape[1]]
    largest, rounding = LARGEST_ERROR[backend.precision], ROUNDING[backend.precision]
    first, last = slice(0, 1), slice(len(theta) - 1, len(theta))
    for _ in range(TRIALS):
        theta = perturbed(theta)
        try:
            together = _written(backend, theta, arrays)
            others = _others_stay(backend, theta, arrays, together)
        except Exception as problem:  # rules, torch.func, Triton and users' criteria raise many
            return f"clients go one by one ({first_line(problem)})"
        alone = (
            _written(looped, theta[k], tuple(array[k] for array in arrays)) for k in (first, last)
        )
        pairs = zip((together[first], together[last]), alone, strict=True)
        if others and all(agree(x[0], y[0], sizes, largest, rounding) for x, y in pairs):
            return None
    return "clients go one by one (at once, their gradients would be others)"


def _others_stay(backend: GradientBackend, theta: Tensor, arrays: Part, together: Tensor) -> bool:
    """Whether another first client leaves the gradients [k, P] of all others as they are."""
    order = torch.arange(len(theta), device=theta.device)
    # It gets the model and the data of the last one.
    order[0] = len(theta) - 1
    changed = _written(backend, theta[order], tuple(array[order] for array in arrays))
    errors = torch.linalg.vector_norm(changed[1:] - together[1:], dim=1)
    norms = torch.linalg.vector_norm(together[1:], dim=1)
    largest = LARGEST_ERROR[backend.precision] * norms
    return bool((errors <= largest + ROUNDING[backend.precision] * norms.mean()).all())


def _written(backend: GradientBackend, theta: Tensor, arrays: Part) -> Tensor:
    out = torch.empty_like(theta)
    with backend.pass_context(theta.device):
        backend.write(theta, arrays, out)
    return out


def _check_loss(loss: Loss, theta: Tensor, arrays: Part) -> None:
    """Raise `Misuse` if a loss is random or not a single number."""
    try:
        value = check_repeatable("loss", lambda: loss(theta[0], *(array[0] for array in arrays)))
    except Misuse:
        raise
    except Exception as error:  # users' losses raise many kinds
        shapes = ", ".join(str(tuple(array[0].shape)) for array in arrays)
        raise Misuse(
            f"The loss fails for a model of {theta.shape[1]} numbers and arrays of shape {shapes}: "
            f"{first_line(error)}.",
            "Check the length of theta0, and that the loss takes any batch of this size.",
        ) from error
    if value.ndim:
        raise Misuse(
            f"The loss of one client has the shape {tuple(value.shape)}.",
            "Return one number, e.g. the mean over the samples.",
        )
