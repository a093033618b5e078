"""A task: what each client minimises, from which start, on which data, and how models are judged."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.errors import Misuse
from tacit.core.workers import WorkerPool
from tacit.privacy.clipping import Clip
from tacit.tasks.evaluation import Evaluation, OwnParts, TestSet
from tacit.tasks.feed import Feed, refuse_small_parts
from tacit.tasks.flat import FlatModule, Loss, ModuleLoss, for_threads, refuse_impure
from tacit.tasks.parts import Part, Parts, as_part
from tacit.tasks.source import SampleSource, source_of

Init = Literal["module", "same", "independent"]


@dataclass(frozen=True, eq=False)
class Task:
    """Client i minimises `loss(θ, *arrays of its part)` over θ, a vector of `parameters` numbers.

    Make one with `Task.from_module`, `Task.from_loss`, `quadratic`, `least_squares`, `adaptive_filtering` or
    `localization`.
    """

    loss: Loss
    # Parts where mini-batches are taken, the clients' arrays one by one where gradients see all, or a stream.
    parts: Parts | Sequence[Part] | SampleSource
    batch_size: int | None
    initial: Callable[[int, Sequence[int]], Tensor]  # (seed, clients) → [n, P]
    parameters: int
    dtype: torch.dtype
    evaluation: Evaluation
    optimum: Tensor | Callable[[int], Tensor] | None = (
        None  # a function of the batch's number where it moves
    )
    # (b, c, *arrays) → argmin_w loss(w, *arrays) + bᵀw + c/2 ‖w‖², where that is known
    proximal: Callable[..., Tensor] | None = None
    clip: Clip | None = None  # of every gradient

    def __repr__(self) -> str:
        batch = "full gradients" if self.batch_size is None else f"batches of {self.batch_size}"
        return f"Task({self.clients} clients, {self.parameters:,} parameters, {batch})"

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        parts: Sequence[Any] | Parts,
        *,
        loss: Callable[..., Tensor] = functional.cross_entropy,
        batch_size: int | None = None,
        test: Any = None,
        init: Init = "module",
    ) -> Task:
        """Train `module` on each client's (inputs, targets); `loss(output, targets)` is a mean over the batch.

        All clients start from the module's weights, from one keyed draw (`init="same"`), or each from its own
        (`"independent"`). `test` is a held-out (inputs, targets); without one, models are judged on their own data.
        """
        if init not in ("module", "same", "independent"):
            raise Misuse(f"init is {init!r}.", 'Choose "module", "same" or "independent".')
        if not isinstance(module, nn.Module):
            raise Misuse(f"module is a {type(module).__name__}.", "Give a torch.nn.Module.")
        flat = FlatModule(module)
        if init != "module":
            flat.fresh_weights(
                "trial"
            )  # refuses what cannot be drawn anew, now and not in the middle of a run
        held = parts if isinstance(parts, Parts) else Parts.joined(_as_parts(parts))
        if len(held.arrays) < 2:
            raise Misuse(
                "The parts hold one array.", "from_module needs (inputs, targets) per client."
            )
        refuse_impure(flat.module, held.arrays[0][:2])
        loss = for_threads(loss)
        objective = ModuleLoss(flat, loss)
        evaluation: Evaluation = OwnParts(objective, held)
        if test is not None:
            held_out = as_part(test, -1)
            if len(held_out) != 2:
                raise Misuse(
                    f"test holds {len(held_out)} array(s).", "Give held-out (inputs, targets)."
                )
            evaluation = TestSet(flat, loss, *held_out)

        def initial(seed: int, clients: Sequence[int]) -> Tensor:
            if init == "independent":
                return torch.stack([flat.fresh_weights(seed, "init", client) for client in clients])
            one = flat.weights() if init == "module" else flat.fresh_weights(seed, "init")
            return one.repeat(len(clients), 1)

        data = held if batch_size is not None else [held.of(i) for i in range(held.clients)]
        task = cls(objective, data, batch_size, initial, flat.width, flat.dtype, evaluation)
        return task._checked()

    @classmethod
    def from_loss(
        cls,
        loss: Loss,
        parts: Sequence[Any],
        theta0: Tensor,
        batch_size: int | None = None,
    ) -> Task:
        """Minimise any differentiable `loss(theta, *part)`, theta being a vector; parts may have any arrays.

        A part is a tensor or a tuple of tensors, passed as further arguments; a loss of two arguments gets a
        tuple whole. `theta0` is [P], the same for all, or [N, P]. Without `batch_size` every gradient is the full
        local one; with it, batches are taken along the first dimension of each array.
        """
        held = _as_parts(parts)
        start = torch.as_tensor(theta0).detach().clone()
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

        objective = (
            loss if not _takes_whole_part(loss, held[0]) else lambda theta, *part: loss(theta, part)
        )
        data = held if batch_size is None else Parts.joined(held)
        evaluation = OwnParts(objective, data)
        task = cls(objective, data, batch_size, initial, start.shape[-1], start.dtype, evaluation)
        return task._checked()

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return self.source.clients

    @property
    def steps_per_epoch(self) -> int:
        """Iterations in which the average client sees its data once; 1 with full gradients and streams."""
        return self.source.steps_per_epoch

    @property
    def source(self) -> SampleSource:
        """Where the data come from."""
        return source_of(self.parts, self.batch_size)

    def feed(
        self, ids: Tensor, seed: int, device: torch.device | str, places: Tensor | None = None
    ) -> Feed:
        """The data that gradients of clients `ids` see.

        `places` says where in `parts` theirs are, if not at their own numbers: a peer holds its own part only.
        """
        return self.source.feed(ids, ids if places is None else places, seed, device)

    def on(self, device: torch.device | str, pool: WorkerPool | None = None) -> Task:
        """This task with its model's constants on `device`; models are judged by a crew's threads."""
        loss = self.loss.to(device) if isinstance(self.loss, ModuleLoss) else self.loss
        return replace(self, loss=loss, evaluation=self.evaluation.on(device, pool))

    def with_optimum(self, optimum: Tensor) -> Task:
        """This task with the minimiser of the sum of all losses, where it is known."""
        return replace(self, optimum=optimum)

    def with_proximal(self, proximal: Callable[..., Tensor]) -> Task:
        """This task with the exact solution of its local problems: see the field of that name."""
        return replace(self, proximal=proximal)

    def clipped(self, bound: float, norm: Literal["l1", "l2"] = "l2") -> Task:
        """This task with every gradient of a client clipped, which differential privacy needs."""
        return replace(self, clip=Clip(bound, norm))

    def known_minimisers(self) -> Callable[..., Tensor]:
        """The exact solution of local problems; refused where it is not known."""
        if self.clip is not None:
            raise Misuse(
                "The exact solver takes no gradients, so there is nothing to clip.",
                "Choose the quadratic, gradient or inner solver, or leave clipping out.",
            )
        if self.proximal is None:
            raise Misuse(
                "The exact solver needs a task that knows its minimisers, and this one does not.",
                "Choose the quadratic, gradient or inner solver, or tacit.quadratic or tacit.least_squares as task.",
            )
        return self.proximal

    def optimum_at(self, number: int) -> Tensor | None:
        """The minimiser [P] of the sum of all losses at the time of batch `number`, where it is known."""
        return self.optimum(number) if callable(self.optimum) else self.optimum

    def _checked(self) -> Task:
        if self.batch_size is not None:
            if not isinstance(self.batch_size, int) or self.batch_size < 1:
                raise Misuse(
                    f"batch_size is {self.batch_size!r}.",
                    "Give a whole number of at least 1, or None.",
                )
            if isinstance(self.parts, Parts):
                refuse_small_parts(self.parts, self.batch_size)
        return self


def _as_parts(parts: Sequence[Any]) -> list[Part]:
    held = [as_part(part, i) for i, part in enumerate(parts)]
    if not held:
        raise Misuse("There are no clients: `parts` is empty.", "Give one part per client.")
    if len({len(part) for part in held}) != 1:
        raise Misuse(
            "Clients have different numbers of arrays.",
            "Give the same kinds of arrays to every client.",
        )
    return held


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
