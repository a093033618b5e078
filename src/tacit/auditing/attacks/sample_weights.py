"""Membership by least squares: the weight of each candidate in what is known of gradients.

A value that the adversary knows is, with batches of b samples,

    v = Σₖ cₖ (1/b) Σᵢ mₖᵢ ∇L(θₖ; xᵢ, yᵢ) + r,

where mₖᵢ says how often candidate i is in the batch of gradient k, and r is the rest: samples that
are not candidates, noise, rounding. With a column aₖᵢ = (cₖ/b) ∇L(θₖ; xᵢ, yᵢ) for each gradient
and candidate, or aᵢ = Σₖ aₖᵢ if all gradients are of one batch, the weights are

    m̂ = argmin_{m ≥ 0} ‖v − A m‖² + λ ‖m‖².

Only the Gram matrix AᵀA and Aᵀv are kept, so memory does not grow with the number of parameters
times the number of candidates. If r = 0, and there are fewer columns than parameters and they are
independent, m̂ = m: members are separated without errors. With more columns than parameters m is
not unique; m ≥ 0 excludes many solutions, and λ chooses the smallest of the others.

λ is small for exact values. For noise of deviation σ in each coordinate it is σ²/τ² with the
variance τ² = b/n of a weight, which gives the estimate of least variance.

A clipped gradient is the gradient times an unknown factor in (0, 1]. Its weights are divided by the
largest of them, and multiplied by the part of ‖v‖² that the candidates explain. Gradients of one
batch have different factors, so each has its own columns.

Several values: the maximum of the weights if they are exact, as a member is in one batch at least,
and their mean with weights 1/σ² if they are noisy. Values about one batch that is used again and
again have one m: their normal equations are added, divided by σ² or ‖v‖².
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from torch import Tensor
from torch.func import grad, vmap

from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.attacks.membership_scores import WORKSPACE, candidates_per_pass
from tacit.core.devices import float32_products
from tacit.tasks.flat import Loss

RIDGE = 1e-9  # λ of exact values, relative to the mean square of a column


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """AᵀA, Aᵀv and ‖v‖², in float64 on the CPU; columns are terms × candidates."""

    gram: Tensor  # [q, q]
    moment: Tensor  # [q]
    square: float

    def __add__(self, other: NormalEquations) -> NormalEquations:
        return NormalEquations(
            self.gram + other.gram, self.moment + other.moment, self.square + other.square
        )

    def divided(self, by: float) -> NormalEquations:
        return NormalEquations(self.gram / by, self.moment / by, self.square / by)

    def explained(self, weights: Tensor) -> float:
        """1 − ‖v − A m‖²/‖v‖², at least 0."""
        fitted = 2 * self.moment @ weights - weights @ self.gram @ weights
        return max(0.0, float(fitted) / max(self.square, 1e-300))


def sample_weight_score(
    loss: Loss,
    known: Sequence[Evidence],
    x: Tensor,
    y: Tensor,
    *,
    batch: int,
    reused: bool = False,
    clipped: bool = False,
    out_of_time: Callable[[], bool] | None = None,
) -> tuple[Tensor, int]:
    """The weight [n] of each candidate in the victim's batches, and the number of values used.

    Args:
        loss: The loss of a batch at a model.
        known: Evidence about one victim, with known points; all exact or all noisy.
        x: Inputs of the candidates, [n, ...].
        y: Targets of the candidates, [n].
        batch: Samples behind each gradient.
        reused: Whether all gradients of a client are of one batch.
        clipped: Whether gradients were multiplied by unknown factors.
        out_of_time: Asked before each value but the first; True ends the attack.
    """
    one_batch, noisy = reused and not clipped, known[0].deviation > 0
    equations: list[NormalEquations] = []
    scales: list[float] = []
    for piece in known:
        if equations and out_of_time is not None and out_of_time():
            break
        each = normal_equations(loss, piece, x, y, batch=batch, shared=one_batch)
        scales.append(piece.deviation**2 or max(each.square, 1e-300))
        equations.append(each.divided(scales[-1]))
    used = len(equations)
    together = one_batch and len({len(set(_owned(piece))) for piece in known[:used]}) == 1
    if together:
        equations = [reduce(operator.add, equations)]
    scores = []
    for piece, each in zip(known, equations, strict=False):
        ridge = len(x) / batch if noisy else RIDGE * float(each.gram.diagonal().mean())
        weights = nonnegative_weights(each, ridge)
        part = each.explained(weights) if clipped else 1.0
        scores.append(part * _victims(weights, piece, one_batch, len(x), relative=clipped))
    stacked = torch.stack(scores)
    if together or not noisy:
        return stacked.amax(0), used
    precision = stacked.new_tensor([1 / scale for scale in scales])
    return precision @ stacked / precision.sum(), used


@float32_products()
def normal_equations(
    loss: Loss, known: Evidence, x: Tensor, y: Tensor, *, batch: int, shared: bool
) -> NormalEquations:
    """The normal equations of one value.

    Columns are [terms, n]; with `shared`, gradients of the victim share a column per candidate, and
    so do those of the others, if any.
    """
    points, count = known.points, len(x)
    assert points is not None  # so chosen
    groups = _groups(known, shared)
    per_sample = vmap(lambda theta, a, b: grad(loss)(theta, a[None], b[None]), in_dims=(None, 0, 0))
    size = candidates_per_pass(points, x)

    def columns(rows: range) -> Tensor:
        """Columns number `rows`, as rows [len(rows), P]."""
        found = []
        for first in range(rows.start, rows.stop, size):
            last = min(first + size, rows.stop)
            # A block of candidates of one group at a time.
            while first < last:
                group, low = divmod(first, count)
                high = min(count, low + last - first)
                found.append(
                    sum(
                        known.coefficients[k] / batch
                        * per_sample(points[k], x[low:high], y[low:high]).double()
                        for k in groups[group]
                    )
                )  # fmt: skip
                first += high - low
        return torch.cat(found)

    width = len(groups) * count
    value = known.values.double()
    gram, moment = value.new_zeros(width, width), value.new_zeros(width)
    step = max(1, WORKSPACE // points.shape[1])
    blocks = [range(low, min(low + step, width)) for low in range(0, width, step)]
    for number, block in enumerate(blocks):
        mine = columns(block)
        here = slice(block.start, block.stop)
        moment[here] = mine @ value
        gram[here, here] = mine @ mine.T
        for other in blocks[number + 1 :]:
            there = slice(other.start, other.stop)
            gram[here, there] = mine @ columns(other).T
            gram[there, here] = gram[here, there].T
    return NormalEquations(gram.cpu(), moment.cpu(), float(value @ value))


def nonnegative_weights(equations: NormalEquations, ridge: float) -> Tensor:
    """argmin_{m ≥ 0} ‖v − A m‖² + λ‖m‖², [q]."""
    gram = equations.gram.numpy() + ridge * np.eye(len(equations.gram))
    moment = equations.moment.numpy()
    # ‖v − A m‖² + λ‖m‖² = ‖Rm − R⁻ᵀAᵀv‖² up to a constant, with RᵀR = AᵀA + λ.
    shift = max(ridge, RIDGE * float(np.trace(gram)) / len(gram), 1e-300)
    root = None
    while root is None:
        try:
            root = cholesky(gram)
        except np.linalg.LinAlgError:
            # Singular up to rounding.
            gram, shift = gram + shift * np.eye(len(gram)), 10 * shift
    target = solve_triangular(root, moment, trans="T")
    free = solve_triangular(root, target)
    if (free >= 0).all():
        return torch.from_numpy(free)
    try:
        return torch.from_numpy(nnls(root, target)[0])
    except RuntimeError:
        # Too many iterations: the solution without the constraint, clamped.
        return torch.from_numpy(np.maximum(free, 0.0))


def _owned(known: Evidence) -> list[bool]:
    """Which of the gradients are the victim's."""
    return [term.client == known.victim for term in known.terms]


def _groups(known: Evidence, shared: bool) -> list[list[int]]:
    """The gradients that share columns."""
    owned = _owned(known)
    if not shared:
        return [[k] for k in range(len(owned))]
    both = [[k for k, mine in enumerate(owned) if mine is side] for side in (True, False)]
    return [group for group in both if group]


def _victims(
    weights: Tensor, known: Evidence, shared: bool, count: int, relative: bool = False
) -> Tensor:
    """The largest weight [n] of each candidate in a batch of the victim."""
    owned = _owned(known)
    mine = [number for number, group in enumerate(_groups(known, shared)) if owned[group[0]]]
    rows = weights.view(-1, count)[mine]
    if relative:
        rows = rows / rows.amax(1, keepdim=True).clamp_min(1e-300)
    return rows.amax(0)
