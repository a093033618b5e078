"""Optimisers that solve many independent problems at once: their protocol, and signed Adam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.checks import check_count

RATE = 0.1  # of Adam
BETAS = (0.9, 0.999)
EPSILON = 1e-8
DROPS = (3 / 8, 5 / 8, 7 / 8)  # shares of the iterations after which the rate falls to a tenth

ValueAndGrad = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""`f(x [A, n], which [A]) -> (values [A], gradients [A, n])`: row i is the problem number which[i].

Optimisers evaluate only problems that still run, so finished ones cost nothing.
"""

Callback = Callable[[int, Tensor], bool]
"""`callback(iteration, values [B]) -> bool`: gets the best values so far; True ends the search."""

Project = Callable[[Tensor], Tensor]
"""Points [A, n] ↦ the nearest allowed points [A, n]."""


@dataclass(frozen=True, eq=False)
class Minimum:
    """The best points of B problems, their values and costs."""

    x: Tensor  # [B, n]
    values: Tensor  # [B]; infinite if not even the start had a finite value
    iterations: Tensor  # [B]
    evaluations: Tensor  # [B]

    @classmethod
    def concatenate(cls, parts: Sequence[Minimum]) -> Minimum:
        """The minima of several groups of problems, one after the other."""
        names = ("x", "values", "iterations", "evaluations")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


class Optimiser(Protocol):
    """Minimises B independent problems at once."""

    @property
    def iterations(self) -> int:
        """Maximum number of iterations of a problem."""
        ...

    def workspace(self, n: int) -> int:
        """About how many numbers it stores for a problem of n unknowns."""
        ...

    def minimise(
        self,
        start: Tensor,
        value_and_grad: ValueAndGrad,
        *,
        project: Project | None = None,
        callback: Callback | None = None,
    ) -> Minimum:
        """The best points found from `start` [B, n]."""
        ...


@dataclass(frozen=True)
class SignedAdam:
    """Adam on sign(∇f), projected after every step (Geiping et al. 2020); keeps the best points.

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
