"""Adam on the signs of the gradient (Geiping et al. 2020), on B independent problems at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.optimiser import Callback, Minimum, Project, ValueAndGrad
from tacit.core.checks import check_count, check_number, check_positive

BETAS = (0.9, 0.999)
EPSILON = 1e-8
DROPS = (3 / 8, 5 / 8, 7 / 8)  # shares of the iterations after which the rate falls to a tenth


@dataclass(frozen=True)
class SignedAdam:
    """Adam on sign(∇f), projected after every step; returns the best point of each problem.

        s = sign ∇f(xᵏ),  m ← β₁m + (1 − β₁)s,  v ← β₂v + (1 − β₂)s²
        xᵏ⁺¹ = Π( xᵏ − lr · m̂ / (√v̂ + ε) ),  m̂ = m/(1 − β₁ᵏ), v̂ = v/(1 − β₂ᵏ)

    A problem ends when its value is not finite, or at most `value_tolerance` times the first one.
    """

    iterations: int = 1000
    lr: float = 0.1
    value_tolerance: float = 0.0

    def __post_init__(self) -> None:
        check_count("iterations of Adam", self.iterations)
        check_positive("lr of Adam", self.lr, example=0.1)
        check_number("value_tolerance of Adam", self.value_tolerance, at_least=0)

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
        best, first = x.clone(), start.new_full((len(start),), torch.inf)
        values = first.clone()
        iterations, evaluations = torch.zeros_like(which), torch.zeros_like(which)
        m, v = torch.zeros_like(x), torch.zeros_like(x)
        for step in range(self.iterations + 1):
            f, g = value_and_grad(x, which)
            finite = f.isfinite() & g.isfinite().all(1)
            f = torch.where(finite, f, torch.inf)
            first = f if step == 0 else first
            better = f < values[which]
            best[which[better]], values[which[better]] = x[better], f[better]
            evaluations[which] += 1
            target = self.value_tolerance * first if self.value_tolerance else -torch.inf
            active = finite & ~(f <= target)
            if step == self.iterations or not bool(active.any()):
                break
            if callback is not None and callback(step, values):
                break
            which, x, g, m, v, first = (tensor[active] for tensor in (which, x, g, m, v, first))
            sign = g.sign()
            m.lerp_(sign, 1 - BETAS[0])
            v.lerp_(sign.square(), 1 - BETAS[1])
            rate = self.lr * 0.1 ** sum(step >= drop * self.iterations for drop in DROPS)
            unbiased = [1 - beta ** (step + 1) for beta in BETAS]
            x = x - rate * (m / unbiased[0]) / ((v / unbiased[1]).sqrt() + EPSILON)
            x = x if project is None else project(x)
            iterations[which] += 1
        return Minimum(best, values, iterations, evaluations)
