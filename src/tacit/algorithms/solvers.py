"""Local solvers of PDMM and ADMM.

    w = argmin f(w) + bᵀw + (c/2)‖w‖²,    b = Σⱼ Bᵢⱼ zᵢ|ⱼ,  c = ρ dᵢ

(Distributed-optimization paper, eq. 4 and section VII-B.) At a fixed point w = w⁻ all of them
satisfy ∇f(w) + b + cw = 0 (eq. 12): if they converge, they converge to the optimum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.core.checks import check_count, check_methods, check_positive
from tacit.core.here import Here


class Solver(ABC):
    """Solves the local problem, exactly or approximately."""

    # Whether it calls `here.minimise`.
    minimises: ClassVar[bool] = False

    @property
    def gradients(self) -> int:
        """Gradients per step, each with a batch of its own."""
        return 1

    @property
    def step_size(self) -> float:
        """Size of explicit gradient steps, 0 without any; long ones diverge on dense graphs."""
        return 0.0

    @abstractmethod
    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        """The next w [n, P] from the last w⁻ [n, P], b [n, P] and c [n, 1]."""


@dataclass(frozen=True)
class QuadraticSolver(Solver):
    """Replaces f by its linearization at w⁻ plus ‖w − w⁻‖²/(2μ).

    w = (w⁻/μ − ∇f(w⁻) − b)/(1/μ + c)

    Args:
        mu: Step size μ.
    """

    mu: float = 1 / 30

    def __post_init__(self) -> None:
        _check_mu(self.mu)

    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        numerator = before / self.mu - here.grad(before) - linear
        return numerator / (1 / self.mu + curvature)


@dataclass(frozen=True)
class GradientSolver(Solver):
    """Takes one gradient step w = w⁻ − μ(∇f(w⁻) + b + cw⁻) on the local problem.

    Args:
        mu: Step size μ.
    """

    mu: float = 0.05

    def __post_init__(self) -> None:
        _check_mu(self.mu)

    @property
    def step_size(self) -> float:
        return self.mu

    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        return before - self.mu * (here.grad(before) + linear + curvature * before)


@dataclass(frozen=True)
class InnerSolver(Solver):
    """Takes gradient steps w ← w − μ(∇f(w) + b + cw) on the local problem.

    Args:
        mu: Step size μ.
        steps: Steps per iteration, each with its own batch.
    """

    mu: float = 0.05
    steps: int = 5

    def __post_init__(self) -> None:
        _check_mu(self.mu)
        check_count("steps of the inner solver", self.steps)

    @property
    def gradients(self) -> int:
        return self.steps

    @property
    def step_size(self) -> float:
        return self.mu

    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        w = before
        for local in range(self.steps):
            w = w - self.mu * (here.grad(w, local) + linear + curvature * w)
        return w


@dataclass(frozen=True)
class ExactSolver(Solver):
    """Computes the exact minimiser, of the batch's loss, for quadratics and least squares."""

    minimises: ClassVar[bool] = True

    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        return here.minimise(linear, curvature)


SOLVERS: dict[str, type[Solver]] = {
    "quadratic": QuadraticSolver,
    "gradient": GradientSolver,
    "inner": InnerSolver,
    "exact": ExactSolver,
}


def check_solver(solver: Solver) -> None:
    """Require a solver, not its name."""
    remedy = "Give a solver, e.g. tacit.QuadraticSolver(mu=1/30)."
    check_methods("solver", solver, "solve", remedy=remedy)


def _check_mu(mu: float) -> None:
    check_positive("mu of the solver", mu, example=0.05)
