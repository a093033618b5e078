"""The ways to compute gradients of k clients: stacked or looped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.core.devices import Precision, autocast, float32_products
from tacit.engines.gradients.strategies import Strategy, pass_numbers
from tacit.tasks.client_gradients import saved_numbers, write_looped, write_stacked
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Part

# Takes models [k, P], arrays [k, ...] and the output [k, P].
Writer = Callable[[Tensor, Part, Tensor], None]
PASSES: dict[Strategy, Callable[[Loss, Tensor, Part, Tensor], None]] = {
    "stacked": write_stacked,
    "looped": write_looped,
}


@dataclass(frozen=True, eq=False)
class GradientBackend:
    """Computes the gradients of k clients of one task at a time.

    `workspace` is how many numbers one client takes in a pass, roughly.
    """

    strategy: Strategy
    write: Writer
    workspace: int
    precision: Precision = "float32"

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
        # As much again for the backward pass, and the gradient in pieces and in a row.
        return replace(self, workspace=4 * len(theta) + 2 * saved)

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
