"""L-BFGS as published attacks on gradients take it from torch: unit steps, absolute tolerances."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.optimiser import Callback, Minimum, Project, ValueAndGrad


@dataclass(frozen=True)
class TorchLBFGS:
    """`torch.optim.LBFGS` with its default settings, one problem after the other.

    It has no line search, and stops where a slope is below 1e-7 or a change below 1e-9, whatever
    the size of the evidence: it soon gives up on small evidence, such as a difference of late
    gradients. The library's L-BFGS (`tacit.auditing.attacks.lbfgs`) has neither fault. The two
    together distinguish a weak attack from a safe message.
    """

    iterations: int = 300

    def workspace(self, n: int) -> int:
        """A hundred pairs of vectors."""
        return 210 * n

    def minimise(
        self,
        start: Tensor,
        value_and_grad: ValueAndGrad,
        *,
        project: Project | None = None,
        callback: Callback | None = None,
    ) -> Minimum:
        found = [
            self._minimise(row, torch.tensor([k], device=start.device), value_and_grad)
            for k, row in enumerate(start)
        ]
        x, values, evaluations = (torch.stack(column) for column in zip(*found, strict=True))
        if callback is not None:
            callback(self.iterations, values)
        return Minimum(x if project is None else project(x), values, evaluations, evaluations)

    def _minimise(
        self, start: Tensor, which: Tensor, value_and_grad: ValueAndGrad
    ) -> tuple[Tensor, Tensor, Tensor]:
        point = start.clone().requires_grad_(True)
        optimiser = torch.optim.LBFGS([point], max_iter=self.iterations)
        best, least, evaluations = start.clone(), start.new_tensor(torch.inf), 0

        def closure() -> Tensor:
            nonlocal best, least, evaluations
            evaluations += 1
            value, slope = value_and_grad(point.detach()[None], which)
            if bool(value[0] < least):
                best, least = point.detach().clone(), value[0]
            finite = bool(value[0].isfinite() and slope.isfinite().all())
            # A slope of zero ends the search.
            point.grad = slope[0] if finite else torch.zeros_like(point)
            return value[0]

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        return best, least, torch.tensor(evaluations, device=start.device)
