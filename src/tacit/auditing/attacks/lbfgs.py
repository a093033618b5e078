"""L-BFGS on B independent problems at once (Nocedal and Wright 2006, algorithms 7.4 and 3.5)."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.inverse_hessian import InverseHessians
from tacit.auditing.attacks.optimiser import Callback, Minimum, Project, ValueAndGrad
from tacit.core.checks import check_count, check_number

DECREASE = 1e-4  # c₁
CURVATURE = 0.9  # c₂
MAX_TRIALS = 20  # points along one direction
MAX_GROWTH = 10.0  # of the step from trial to trial while the bracket has no upper end
MARGIN = 0.1  # a trial stays this share of the bracket away from both of its ends


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS with a strong-Wolfe line search.

    An iteration of one problem, with an inverse Hessian H from its last steps, is

        d = −H ∇f(x),   x ← x + t·d   with   f(x + t·d) ≤ f(x) + c₁·t·dᵀ∇f(x)   and
                                              |dᵀ∇f(x + t·d)| ≤ c₂·|dᵀ∇f(x)|

    Every evaluation covers all problems that still run, each at its own trial point. No problem
    waits until another has finished its line search.

    A problem ends when no step improves it along steepest descent, or by one of the tolerances.

    Attributes:
        iterations: Maximum number of iterations.
        history: Steps that H remembers.
        value_tolerance: Ends when the value is at most this share of the first one; 0: never.
        gradient_tolerance: Ends when the largest slope is at most this share of the first one.
        change_tolerance: Ends when an iteration improves the value by less than this share.
    """

    iterations: int = 300
    history: int = 100
    value_tolerance: float = 1e-9
    gradient_tolerance: float = 1e-10
    change_tolerance: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("iterations", "history"):
            check_count(f"{name} of L-BFGS", getattr(self, name))
        for name in ("value_tolerance", "gradient_tolerance", "change_tolerance"):
            check_number(f"{name} of L-BFGS", getattr(self, name), at_least=0)

    def workspace(self, n: int) -> int:
        # Two vectors for every pair of the history, and their inner products.
        return 2 * self.history * (n + 3 * self.history) + 8 * n

    def minimise(
        self,
        start: Tensor,
        value_and_grad: ValueAndGrad,
        *,
        project: Project | None = None,
        callback: Callback | None = None,
    ) -> Minimum:
        """The best points found from `start` [B, n]; `project` is applied to the result only."""
        active = _Active(start, value_and_grad, self.history)
        zeros = torch.zeros_like(active.which)
        found = Minimum(start.clone(), active.f.clone(), zeros, torch.ones_like(zeros))
        active = active.select(active.f.isfinite() & (active.first_slope > 0))
        active.restart(torch.ones_like(active.which, dtype=torch.bool))
        iteration = 0
        while len(active.which):
            if callback is not None and callback(iteration, found.values):
                break
            ended = self._evaluate(active, value_and_grad)
            found.x[active.which], found.values[active.which] = active.x, active.f
            found.iterations[active.which] = active.iterations
            found.evaluations[active.which] += 1
            iteration = max(iteration, int(active.iterations.max()))
            if bool(ended.any()):
                active = active.select(~ended)
        if project is None:
            return found
        x = project(found.x)
        values, _ = value_and_grad(x, torch.arange(len(x), device=x.device))
        values = torch.where(values.isfinite(), values, torch.inf)
        return Minimum(x, values, found.iterations, found.evaluations + 1)

    def _evaluate(self, active: _Active, value_and_grad: ValueAndGrad) -> Tensor:
        """Evaluate every active problem once, in place; returns which of them ended [A]."""
        x = active.x + active.t[:, None] * active.d
        f, g = _finite(value_and_grad(x, active.which))
        slope = torch.where(f.isfinite(), (g * active.d).sum(1), torch.nan)
        active.trials += 1
        lower = f <= active.f + DECREASE * active.t * active.slope
        level = slope.abs() <= CURVATURE * active.slope.abs()
        last = active.trials >= MAX_TRIALS
        accepted = lower & (level | last)
        active.update_bracket(f, slope, too_far=~lower | (slope > 0))
        failed = ~accepted & (last | active.bracket_is_narrow())

        before = active.f
        active.accept(accepted, x, f, g)
        target = self.value_tolerance * active.first_value if self.value_tolerance else -math.inf
        ended = accepted & (
            (active.f <= target)
            | (active.g.abs().amax(1) <= self.gradient_tolerance * active.first_slope)
            | (before - active.f <= self.change_tolerance * before.abs())
            | (active.iterations >= self.iterations)
        )
        stuck = failed & (active.hessians.pairs == 0)
        active.new_directions(accepted & ~ended)
        active.restart(failed & ~stuck)
        return ended | stuck


class _Active:
    """The A problems that still run; at first all of them, at `start` [A, n]."""

    def __init__(self, start: Tensor, value_and_grad: ValueAndGrad, history: int) -> None:
        self.which = torch.arange(len(start), device=start.device)  # their numbers [A]
        self.x = start.clone()  # [A, n]
        self.f, self.g = _finite(value_and_grad(start, self.which))
        self.first_value = self.f
        self.first_slope = self.g.abs().amax(1)  # largest component of the first gradient
        self.iterations = torch.zeros_like(self.which)
        self.d = torch.zeros_like(self.g)  # direction [A, n]
        self.slope = torch.zeros_like(self.f)  # dᵀg
        self.t = torch.zeros_like(self.f)  # the next trial step
        self.trials = torch.zeros_like(self.which)
        # A step, its value and its slope [A, 3]: at the low end f still falls; at the high end it
        # rises or is not low enough, and the step is infinite if there is none yet.
        self.low = self.f.new_zeros(len(start), 3)
        self.high = self.low.clone()
        self.hessians = InverseHessians(self.g, history)

    def select(self, chosen: Tensor) -> _Active:
        index, selected = chosen.nonzero()[:, 0], copy(self)
        for name, value in vars(self).items():
            setattr(selected, name, value[index])
        return selected

    def update_bracket(self, f: Tensor, slope: Tensor, too_far: Tensor) -> None:
        """Narrow the bracket with the result of a trial, and choose the next trial.

        At the low end f falls steeply and satisfies the first condition; at the high end f
        violates it or rises. So a step between them satisfies both conditions.
        """
        tried = torch.stack((self.t, f, slope), 1)
        onward = torch.nan_to_num(_cubic(self.low, tried), nan=torch.inf)
        self.high = torch.where(too_far[:, None], tried, self.high)
        self.low = torch.where(too_far[:, None], self.low, tried)
        low, high = self.low[:, 0], self.high[:, 0]
        margin = MARGIN * (high - low)
        inward = _cubic(self.low, self.high)
        inward = torch.where(inward.isfinite(), inward, (low + high) / 2)
        inward = torch.where(self.high[:, 1].isfinite(), inward, low)
        inward = inward.clamp(low + margin, high - margin)
        onward = onward.clamp(1.01 * self.t, MAX_GROWTH * self.t)
        self.t = torch.where(high.isfinite(), inward, onward)

    def bracket_is_narrow(self) -> Tensor:
        """Whether the bracket is below the precision of x [A]."""
        step = (self.high[:, 0] - self.low[:, 0]) * self.d.abs().amax(1)
        return step <= torch.finfo(step.dtype).eps * self.x.abs().amax(1).clamp_min(1e-3)

    def accept(self, accepted: Tensor, x: Tensor, f: Tensor, g: Tensor) -> None:
        """Move to the trial points, and store the curvature along the steps."""
        self.hessians.store(accepted, x - self.x, g - self.g)
        self.iterations += accepted
        self.x = torch.where(accepted[:, None], x, self.x)
        self.g = torch.where(accepted[:, None], g, self.g)
        self.f = torch.where(accepted, f, self.f)

    def new_directions(self, chosen: Tensor) -> None:
        """Directions −Hg for the problems chosen [A]; steepest descent if that is not downward."""
        if not bool(chosen.any()):
            return
        d = -self.hessians.times(self.g)
        downward = (self.hessians.pairs > 0) & ((d * self.g).sum(1) < 0) & d.isfinite().all(1)
        rows = (chosen & downward).nonzero()[:, 0]
        self._set_direction(rows, d[rows], torch.ones_like(self.t[rows]))
        self.restart(chosen & ~downward)

    def restart(self, chosen: Tensor) -> None:
        """Steepest descent without history, with a first step of length at most 1."""
        rows = chosen.nonzero()[:, 0]
        self.hessians.clear(rows)
        g = self.g[rows]
        self._set_direction(rows, -g, (1 / g.abs().sum(1)).clamp_max(1.0))

    def _set_direction(self, rows: Tensor, d: Tensor, t: Tensor) -> None:
        slope, f = (d * self.g[rows]).sum(1), self.f[rows]
        self.d[rows], self.slope[rows], self.t[rows] = d, slope, t
        self.trials[rows] = 0
        self.low[rows] = torch.stack((torch.zeros_like(t), f, slope), 1)
        self.high[rows] = math.inf


def _cubic(a: Tensor, b: Tensor) -> Tensor:
    """The minimum of the cubic through two steps [A, 3], their values and slopes (eq. 3.59)."""
    (ta, fa, da), (tb, fb, db) = a.unbind(1), b.unbind(1)
    d1 = da + db - 3 * (fa - fb) / (ta - tb)
    d2 = (d1.square() - da * db).sqrt()
    return tb - (tb - ta) * (db + d2 - d1) / (db - da + 2 * d2)


def _finite(evaluated: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Values and gradients, with infinite values where either is not finite."""
    f, g = evaluated
    return torch.where(f.isfinite() & g.isfinite().all(1), f, torch.inf), g
