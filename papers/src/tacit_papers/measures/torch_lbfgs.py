"""L-BFGS as published attacks take it from torch, on many problems at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.inverse_hessian import InverseHessians
from tacit.auditing.attacks.optimiser import Callback, Minimum, Project, ValueAndGrad

# The defaults of torch.optim.LBFGS.
HISTORY = 100
LEAST_SLOPE, LEAST_CHANGE, LEAST_CURVATURE = 1e-7, 1e-9, 1e-10


@dataclass(frozen=True)
class TorchLBFGS:
    """The iterations of `torch.optim.LBFGS` with its default settings.

        d = −H ∇f(x),   x ← x + t·d   with t = 1; at first H = I and t = min(1, 1/‖∇f(x)‖₁)

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
        """The best points that were evaluated from `start` [B, n]; the callback ends nothing."""
        which, x = torch.arange(len(start), device=start.device), start.clone()
        f, g = _finite(value_and_grad(x, which))
        best, values, evaluations = x.clone(), f.clone(), torch.ones_like(which)
        d, t = -g, (1 / g.abs().sum(1, keepdim=True)).clamp_max(1.0)
        hessians = InverseHessians(g, HISTORY)
        running = g.abs().amax(1) > LEAST_SLOPE
        # The last step of torch is not evaluated.
        for iteration in range(1, self.iterations):
            running &= (g * d).sum(1) <= -LEAST_CHANGE
            if not bool(running.all()):
                rows = running.nonzero()[:, 0]
                which, x, f, g, d, t = (each[rows] for each in (which, x, f, g, d, t))
                hessians = hessians[rows]
            if not len(which):
                break
            step, f_before, g_before = t * d, f, g
            x = x + step
            f, g = _finite(value_and_grad(x, which))
            evaluations[which] += 1
            better = f < values[which]
            best[which[better]], values[which[better]] = x[better], f[better]
            if callback is not None:
                callback(iteration, values)
            running = (
                (g.abs().amax(1) > LEAST_SLOPE)
                & (step.abs().amax(1) > LEAST_CHANGE)
                & ((f - f_before).abs() >= LEAST_CHANGE)
            )
            change = g - g_before
            hessians.store((step * change).sum(1) > LEAST_CURVATURE, step, change)
            d, t = -hessians.times(g), torch.ones_like(t)
        if callback is not None:
            callback(self.iterations, values)
        return Minimum(best if project is None else project(best), values, evaluations, evaluations)


def _finite(evaluated: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Infinite values and slopes of zero, which end the search, where either is not finite."""
    f, g = evaluated
    finite = f.isfinite() & g.isfinite().all(1)
    return torch.where(finite, f, torch.inf), torch.where(finite[:, None], g, 0.0)
