"""L-BFGS on B independent problems at once (Nocedal and Wright 2006, algorithms 7.4 and 3.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tacit.auditing.attacks.curvature import Curvature
from tacit.auditing.attacks.optimiser import Minimum, Project, ValueAndGrad, Watch
from tacit.core.arguments import is_count, is_number
from tacit.core.errors import Misuse

GROW = 10.0  # of the step at most, as long as no upper end of the bracket is known
MARGIN = 0.1  # a trial stays this part of the bracket away from both of its ends


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS with a strong-Wolfe line search; no problem waits for another.

    Iteration of one problem, H its inverse Hessian as its last steps tell it (`Curvature`):

        d = −H ∇f(x),   x ← x + t·d   with   f(x + t·d) ≤ f(x) + c₁·t·dᵀ∇f(x)   and
                                              |dᵀ∇f(x + t·d)| ≤ c₂·|dᵀ∇f(x)|

    Every evaluation is one of all problems that still run, each at its own trial point, whether that is the first
    trial of a new direction or the tenth of an old one. A problem ends when its value is at most `enough` times
    the first one (zero: never), its largest slope at most `flat` times the first one, an iteration gains less than
    `gain` of the value, or when no step helps along steepest descent either.
    """

    iterations: int = 300
    history: int = 100
    enough: float = 1e-9
    flat: float = 1e-10
    gain: float = 1e-9
    trials: int = 20
    c1: float = 1e-4
    c2: float = 0.9

    def __post_init__(self) -> None:
        for name in ("iterations", "history", "trials"):
            if not is_count(getattr(self, name)):
                raise Misuse(
                    f"{name} of L-BFGS is {getattr(self, name)!r}.", "Give a whole number from 1."
                )
        for name in ("enough", "flat", "gain"):
            if not is_number(getattr(self, name)) or getattr(self, name) < 0:
                raise Misuse(
                    f"{name} of L-BFGS is {getattr(self, name)!r}.", "Give a number from 0."
                )
        if not 0 < self.c1 < self.c2 < 1:
            raise Misuse(f"c1 is {self.c1} and c2 is {self.c2}.", "They need 0 < c1 < c2 < 1.")

    def workspace(self, n: int) -> int:
        """Two vectors for every pair of the history, and their inner products."""
        return 2 * self.history * (n + 3 * self.history) + 8 * n

    def minimise(
        self,
        start: Tensor,
        value_and_grad: ValueAndGrad,
        *,
        project: Project | None = None,
        watch: Watch | None = None,
    ) -> Minimum:
        """The best points found from `start` [B, n]; `project` is applied to the result only."""
        live = _first(start, value_and_grad, self.history)
        found = Minimum(
            start.clone(), live.f.clone(), torch.zeros_like(live.which), torch.ones_like(live.which)
        )
        live = live.only(live.f.isfinite() & (live.top > 0))
        live.restart(torch.ones_like(live.which, dtype=torch.bool))
        iteration = 0
        while len(live.which):
            if watch is not None and watch(iteration, found.values):
                break
            ended = self._tick(live, value_and_grad)
            found.x[live.which], found.values[live.which] = live.x, live.f
            found.iterations[live.which] = live.iterations
            found.evaluations[live.which] += 1
            iteration = max(iteration, int(live.iterations.max()))
            if bool(ended.any()):
                live = live.only(~ended)
        if project is None:
            return found
        x = project(found.x)
        values, _ = value_and_grad(x, torch.arange(len(x), device=x.device))
        return Minimum(x, _finite(values), found.iterations, found.evaluations + 1)

    def _tick(self, live: _Live, value_and_grad: ValueAndGrad) -> Tensor:
        """One evaluation of every live problem, in place; which of them ended [A]."""
        x = live.x + live.t[:, None] * live.d
        f, g = value_and_grad(x, live.which)
        f = torch.where(g.isfinite().all(1), _finite(f), torch.inf)
        slope = torch.where(f.isfinite(), (g * live.d).sum(1), torch.nan)
        live.trials += 1
        lower = f <= live.f + self.c1 * live.t * live.slope
        level = slope.abs() <= self.c2 * live.slope.abs()
        last = live.trials >= self.trials
        accepted = lower & (level | last)
        live.bracket(f, slope, too_far=~lower | (slope > 0))
        failed = ~accepted & (last | live.narrow())

        before = live.f
        live.accept(accepted, x, f, g)
        ended = accepted & (
            (live.f <= (self.enough * live.first if self.enough else -math.inf))
            | (live.g.abs().amax(1) <= self.flat * live.top)
            | (before - live.f <= self.gain * before.abs())
            | (live.iterations >= self.iterations)
        )
        stuck = failed & (live.curvature.pairs == 0)
        live.turn(accepted & ~ended)
        live.restart(failed & ~stuck)
        return ended | stuck


@dataclass(eq=False)
class _Live:
    """The problems that still run: where each is, its direction, its bracket of steps and its history."""

    which: Tensor  # [A] their numbers
    x: Tensor  # [A, n]
    f: Tensor
    g: Tensor  # [A, n]
    first: Tensor  # value and largest slope at the start
    top: Tensor
    iterations: Tensor
    d: Tensor  # [A, n]
    slope: Tensor  # dᵀg
    t: Tensor  # the next trial
    trials: Tensor
    low: Tensor  # [A, 3]: a step, its value and its slope; still going down there
    high: Tensor  # [A, 3] going up, or not low enough; an infinite step as long as there is none
    curvature: Curvature

    def only(self, chosen: Tensor) -> _Live:
        """The problems chosen [A] alone."""
        index = chosen.nonzero()[:, 0]
        tensors = {
            field.name: getattr(self, field.name)[index]
            for field in fields(self)
            if field.name != "curvature"
        }
        return _Live(**tensors, curvature=self.curvature.only(index))

    def bracket(self, f: Tensor, slope: Tensor, too_far: Tensor) -> None:
        """Narrow the bracket by what was found at the trial, and choose the next trial.

        The low end goes down steeply and satisfies the first condition, the high end violates it or goes up:
        between them is a step that satisfies both.
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
        self.t = torch.where(high.isfinite(), inward, onward.clamp(1.01 * self.t, GROW * self.t))

    def narrow(self) -> Tensor:
        """Where the bracket is too narrow to matter in this precision [A]."""
        step = (self.high[:, 0] - self.low[:, 0]) * self.d.abs().amax(1)
        return step <= torch.finfo(step.dtype).eps * self.x.abs().amax(1).clamp_min(1e-3)

    def accept(self, accepted: Tensor, x: Tensor, f: Tensor, g: Tensor) -> None:
        """Move to the trial points, and remember the curvature seen on the way."""
        self.curvature.store(accepted, x - self.x, g - self.g)
        self.iterations += accepted
        self.x = torch.where(accepted[:, None], x, self.x)
        self.g = torch.where(accepted[:, None], g, self.g)
        self.f = torch.where(accepted, f, self.f)

    def turn(self, chosen: Tensor) -> None:
        """New directions −Hg for the problems chosen [A]; steepest descent where that is not downward."""
        if not bool(chosen.any()):
            return
        d = -self.curvature.times(self.g)
        downward = (self.curvature.pairs > 0) & ((d * self.g).sum(1) < 0) & d.isfinite().all(1)
        rows = (chosen & downward).nonzero()[:, 0]
        self._aim(rows, d[rows], torch.ones_like(self.t[rows]))
        self.restart(chosen & ~downward)

    def restart(self, chosen: Tensor) -> None:
        """Steepest descent without memory, with a first step of length at most 1."""
        rows = chosen.nonzero()[:, 0]
        self.curvature.clear(rows)
        g = self.g[rows]
        self._aim(rows, -g, (1 / g.abs().sum(1)).clamp_max(1.0))

    def _aim(self, rows: Tensor, d: Tensor, t: Tensor) -> None:
        slope, f = (d * self.g[rows]).sum(1), self.f[rows]
        self.d[rows], self.slope[rows], self.t[rows] = d, slope, t
        self.trials[rows] = 0
        self.low[rows] = torch.stack((torch.zeros_like(t), f, slope), 1)
        self.high[rows] = math.inf


def _first(start: Tensor, value_and_grad: ValueAndGrad, history: int) -> _Live:
    count = len(start)
    which = torch.arange(count, device=start.device)
    f, g = value_and_grad(start, which)
    f = torch.where(g.isfinite().all(1), _finite(f), torch.inf)
    none, zero = torch.zeros_like(which), torch.zeros_like(f)
    return _Live(
        which=which,
        x=start.clone(),
        f=f,
        g=g,
        first=f,
        top=g.abs().amax(1),
        iterations=none.clone(),
        d=torch.zeros_like(g),
        slope=zero.clone(),
        t=zero.clone(),
        trials=none.clone(),
        low=f.new_zeros(count, 3),
        high=f.new_zeros(count, 3),
        curvature=Curvature(g, history),
    )


def _cubic(a: Tensor, b: Tensor) -> Tensor:
    """The minimum of the cubic through two steps [A, 3] with their values and slopes (equation 3.59)."""
    (ta, fa, da), (tb, fb, db) = a.unbind(1), b.unbind(1)
    d1 = da + db - 3 * (fa - fb) / (ta - tb)
    d2 = (d1.square() - da * db).sqrt()
    return tb - (tb - ta) * (db + d2 - d1) / (db - da + 2 * d2)


def _finite(values: Tensor) -> Tensor:
    return torch.where(values.isfinite(), values, torch.inf)
