"""Local solvers of PDMM and ADMM: ways to take the step

    w = argmin f(w) + bᵀw + (c/2)‖w‖²,    b = Σⱼ Bᵢⱼ zᵢ|ⱼ,  c = ρ dᵢ

(distributed-optimization paper, eq. 4 and section VII-B). At a fixed point, w = w⁻, all of them satisfy
∇f(w) + b + cw = 0 (eq. 12), so the limit is the optimum whichever is used, if it is reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from tacit.core.checks import check_count, check_methods, check_positive
from tacit.core.here import Here


class Solver(Protocol):
    """A way to take the local step."""

    @property
    def gradients(self) -> int:
        """Gradients per step."""
        ...

    @property
    def minimises(self) -> bool:
        """Whether it asks the task for exact minimisers."""
        ...

    @property
    def step_size(self) -> float:
        """The length of explicit gradient steps, 0 where there are none: long ones diverge on dense graphs."""
        ...

    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        """The next w [n, P] from the one before [n, P], b [n, P] and c [n, 1]."""
        ...


@dataclass(frozen=True)
class QuadraticSolver:
    """f replaced by its linearization at w⁻ plus ‖w − w⁻‖²/(2μ):  w = (w⁻/μ − ∇f(w⁻) − b)/(1/μ + c)."""

    mu: float = 1 / 30
    gradients: ClassVar[int] = 1
    minimises: ClassVar[bool] = False
    step_size: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        _check_mu(self.mu)

    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        """One linear equation per coordinate."""
        numerator = before / self.mu - here.grad(before) - linear
        return numerator / (1 / self.mu + curvature)


@dataclass(frozen=True)
class InnerSolver:
    """`steps` gradient steps on the whole local problem:  w ← w − μ(∇f(w) + b + cw)."""

    mu: float = 0.05
    steps: int = 5
    minimises: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_mu(self.mu)
        check_count("steps of the inner solver", self.steps)

    @property
    def gradients(self) -> int:
        """One per inner step, each on a batch of its own."""
        return self.steps

    @property
    def step_size(self) -> float:
        """μ."""
        return self.mu

    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        """Descend from where we are."""
        w = before
        for local in range(self.steps):
            w = w - self.mu * (here.grad(w, local) + linear + curvature * w)
        return w


@dataclass(frozen=True)
class GradientSolver:
    """One gradient step on the whole local problem:  w = w⁻ − μ(∇f(w⁻) + b + cw⁻)."""

    mu: float = 0.05
    gradients: ClassVar[int] = 1
    minimises: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_mu(self.mu)

    @property
    def step_size(self) -> float:
        """μ."""
        return self.mu

    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        """The inner solver with one step."""
        return InnerSolver(self.mu, steps=1).solve(before, linear, curvature, here)


@dataclass(frozen=True)
class ExactSolver:
    """The minimiser itself, for tasks that know it: quadratics and least squares (of a batch's loss, if batched)."""

    gradients: ClassVar[int] = 1  # none, but the iteration has its batch
    minimises: ClassVar[bool] = True
    step_size: ClassVar[float] = 0.0

    def solve(self, before: Tensor, linear: Tensor, curvature: Tensor, here: Here) -> Tensor:
        """Asked of the task."""
        return here.minimise(linear, curvature)


SOLVERS: dict[str, type[Any]] = {
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
