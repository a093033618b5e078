"""Adam on the signs of the gradient (Geiping et al. 2020), on B independent problems at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.optimiser import Minimum, Project, ValueAndGrad, Watch
from tacit.core.arguments import is_count, is_number
from tacit.core.errors import Misuse

BETAS = (0.9, 0.999)
EPSILON = 1e-8
DROPS = (3 / 8, 5 / 8, 7 / 8)  # of the iterations; the rate falls to a tenth at each


@dataclass(frozen=True)
class SignedAdam:
    """Adam fed with sign(∇f), projected after every step; each problem keeps the best point it saw.

        s = sign ∇f(xᵏ),  m ← β₁m + (1 − β₁)s,  v ← β₂v + (1 − β₂)s²
        xᵏ⁺¹ = Π( xᵏ − lr · m̂ / (√v̂ + ε) ),  m̂ = m/(1 − β₁ᵏ), v̂ = v/(1 − β₂ᵏ)

    A problem whose value is no longer finite ends; so does one below `enough` times its first value.
    """

    iterations: int = 1000
    lr: float = 0.1
    enough: float = 0.0

    def __post_init__(self) -> None:
        if not is_count(self.iterations):
            raise Misuse(
                f"iterations of Adam is {self.iterations!r}.", "Give a whole number from 1."
            )
        if not is_number(self.lr) or self.lr <= 0:
            raise Misuse(f"lr of Adam is {self.lr!r}.", "Give a positive number, such as 0.1.")
        if not is_number(self.enough) or self.enough < 0:
            raise Misuse(f"enough of Adam is {self.enough!r}.", "Give a number from 0.")

    def workspace(self, n: int) -> int:
        """The point, the best one, the gradient, two moments and what is computed from them."""
        return 8 * n

    def minimise(
        self,
        start: Tensor,
        value_and_grad: ValueAndGrad,
        *,
        project: Project | None = None,
        watch: Watch | None = None,
    ) -> Minimum:
        """The best points seen on the way from `start` [B, n]."""
        which = torch.arange(len(start), device=start.device)
        x = start.clone() if project is None else project(start)
        best, first = x.clone(), start.new_full((len(start),), torch.inf)
        values, iterations, evaluations = (
            first.clone(),
            torch.zeros_like(which),
            torch.zeros_like(which),
        )
        m, v = torch.zeros_like(x), torch.zeros_like(x)
        for step in range(self.iterations + 1):
            f, g = value_and_grad(x, which)
            fine = f.isfinite() & g.isfinite().all(1)
            f = torch.where(fine, f, torch.inf)
            first = f if step == 0 else first
            better = f < values[which]
            best[which[better]], values[which[better]] = x[better], f[better]
            evaluations[which] += 1
            kept = fine & ~(f <= (self.enough * first if self.enough else -torch.inf))
            if step == self.iterations or not bool(kept.any()):
                break
            if watch is not None and watch(step, values):
                break
            which, x, g, m, v, first = (tensor[kept] for tensor in (which, x, g, m, v, first))
            sign = g.sign()
            m.lerp_(sign, 1 - BETAS[0])
            v.lerp_(sign.square(), 1 - BETAS[1])
            rate = self.lr * 0.1 ** sum(step >= drop * self.iterations for drop in DROPS)
            unbiased = [1 - beta ** (step + 1) for beta in BETAS]
            x = x - rate * (m / unbiased[0]) / ((v / unbiased[1]).sqrt() + EPSILON)
            x = x if project is None else project(x)
            iterations[which] += 1
        return Minimum(best, values, iterations, evaluations)
