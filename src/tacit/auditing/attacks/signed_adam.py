"""Adam on the signs of the gradient (Geiping et al. 2020), on B independent problems at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.optimiser import Callback, Minimum, Project, ValueAndGrad
from tacit.core.checks import check_count

RATE = 0.1
BETAS = (0.9, 0.999)
EPSILON = 1e-8
DROPS = (3 / 8, 5 / 8, 7 / 8)  # shares of the iterations after which the rate falls to a tenth


@dataclass(frozen=True)
class SignedAdam:
    """Adam on sign(∇f), projected after every step; returns the best point of each problem.

        s = sign ∇f(xᵏ),  m ← β₁m + (1 − β₁)s,  v ← β₂v + (1 − β₂)s²
        xᵏ⁺¹ = Π( xᵏ − η · m̂ / (√v̂ + ε) ),  m̂ = m/(1 − β₁ᵏ), v̂ = v/(1 − β₂ᵏ)

    A problem ends when its value is not finite.
    """

    iterations: int = 1000

    def __post_init__(self) -> None:
        check_count("iterations of Adam", self.iterations)

    def workspace(self, n: int) -> int:
        return 8 * n

    def minimise(
        self,
        start: Tensor,
        value_and_grad: ValueAndGrad,
        *,
        project: Project | None = None,
        callback: Callback | None = None,
    ) -> Minimum:
        which = torch.arange(len(start), device=start.device)
        x = start.clone() if project is None else project(start)
        best, values = x.clone(), start.new_full((len(start),), torch.inf)
        iterations, evaluations = torch.zeros_like(which), torch.zeros_like(which)
        m, v = torch.zeros_like(x), torch.zeros_like(x)
        for step in range(self.iterations + 1):
            f, g = value_and_grad(x, which)
            finite = f.isfinite() & g.isfinite().all(1)
            f = torch.where(finite, f, torch.inf)
            better = f < values[which]
            best[which[better]], values[which[better]] = x[better], f[better]
            evaluations[which] += 1
            if step == self.iterations or not bool(finite.any()):
                break
            if callback is not None and callback(step, values):
                break
            which, x, g, m, v = (tensor[finite] for tensor in (which, x, g, m, v))
            sign = g.sign()
            m.lerp_(sign, 1 - BETAS[0])
            v.lerp_(sign.square(), 1 - BETAS[1])
            rate = RATE * 0.1 ** sum(step >= drop * self.iterations for drop in DROPS)
            unbiased = [1 - beta ** (step + 1) for beta in BETAS]
            x = x - rate * (m / unbiased[0]) / ((v / unbiased[1]).sqrt() + EPSILON)
            x = x if project is None else project(x)
            iterations[which] += 1
        return Minimum(best, values, iterations, evaluations)
