"""L-BFGS as papers that attack gradients take it from torch: steps of length one, absolute tolerances."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.optimiser import Minimum, Project, ValueAndGrad, Watch


@dataclass(frozen=True)
class PublishedLBFGS:
    """`torch.optim.LBFGS` with its own settings, one problem after the other.

    It has no line search, and ends where a slope is below 1e-7 or a change below 1e-9 whatever the size of what is
    matched: small evidence, such as a difference of late gradients, is given up soon. The library's own L-BFGS
    (`tacit.auditing.attacks.lbfgs`) does neither; beside each other they tell a weak attack from a safe message.
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
        watch: Watch | None = None,
    ) -> Minimum:
        """The best points seen from `start` [B, n], each projected."""
        found = [
            self._minimise(row, torch.tensor([k], device=start.device), value_and_grad)
            for k, row in enumerate(start)
        ]
        x, values, evaluations = (torch.stack(column) for column in zip(*found, strict=True))
        if watch is not None:
            watch(self.iterations, values)
        return Minimum(x if project is None else project(x), values, evaluations, evaluations)

    def _minimise(
        self, start: Tensor, which: Tensor, value_and_grad: ValueAndGrad
    ) -> tuple[Tensor, Tensor, Tensor]:
        point = start.clone().requires_grad_(True)
        optimiser = torch.optim.LBFGS([point], max_iter=self.iterations)
        best, least, asked = start.clone(), start.new_tensor(torch.inf), 0

        def closure() -> Tensor:
            nonlocal best, least, asked
            asked += 1
            value, slope = value_and_grad(point.detach()[None], which)
            if bool(value[0] < least):
                best, least = point.detach().clone(), value[0]
            finite = bool(value[0].isfinite() and slope.isfinite().all())
            point.grad = slope[0] if finite else torch.zeros_like(point)  # a slope of zero ends it
            return value[0]

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        return best, least, torch.tensor(asked, device=start.device)
