"""A bound for the whole run of a linear algorithm that does the same in every iteration.

With the state s of all clients, the victim's gradients g, the noise z that the adversary does not
know and the messages y that it sees, all else known, an iteration is

    y = C s + D g + E z,   s⁺ = A s + B g + N z

Two runs with other gradients, g + dg, send the same messages if their noise differs by a dz with

    C ds + D dg + E dz = 0   in every iteration, where   ds⁺ = A ds + B dg + N dz

Such a dz is a shift of noise as in `added_noise`, so its size is a bound. It is found by feedback:
of all dz that make the messages of this iteration equal, and those of the next as far as the fresh
noise of the next cannot (Q = I − E E⁺),

    dz = −[E; Q C N]⁺ [C ds + D dg; Q C (A ds + B dg)]

the shortest. The response to one gradient is followed through the whole run, with two conditions in
every iteration: the messages are equal, and so are the models at which all other clients take their
gradients, which are then equal too. For the shift to be one of densities, gradients must depend on
noise through earlier messages only: states that differ by noise and agree in all messages so far,

    R₀ = {N₀ z},   Rₖ₊₁ = {A x + N z : x in Rₖ, C x + E z = 0}

which end after as many steps as there are dimensions, must not differ in where gradients are taken.

A response is the same whenever its gradient was taken, so the total for T iterations follows from a
single one: with cⱼ the size of dz after j iterations,

    Gaussian   μ² = Δ² Σₜ (Σ_{j≤t} cⱼ)²        Laplace   ε = Δ Σₜ Σ_{j≤t} cⱼ

A gradient of `start` is one more impulse, which noise of `start` hides in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import NoiseLoss
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.noise import Gaussian, Laplace, Noise
from tacit.privacy.clipping import Clip
from tacit.record.unknowns import NO_CLIENT, Unknown

EQUAL = 1e-12  # what counts as zero beside the terms of a sum that cancel
SOLVED = 1e-10  # singular values of normalized rows that count as zero
DECAYED = 1e-18  # part of its largest value at which a response has ended
SAFETY = 1 + 1e-9  # for rounding, and for what is left of responses that have ended


@dataclass(frozen=True, eq=False)
class _Iteration:
    """The matrices of one iteration; columns of z have standard deviation one."""

    a: Matrix
    b: Matrix
    n: Matrix
    c: Matrix
    d: Matrix
    e: Matrix
    others: tuple[Matrix, Matrix, Matrix]  # where other clients take gradients, over s, g and z
    points: list[tuple[Matrix, Matrix, int]]  # where all do, over s and z; messages sent before

    @classmethod
    def of(
        cls, run: SymbolicRun, adversary: Adversary, victim: int, kind: type[Noise]
    ) -> _Iteration:
        width = len(run.unknowns)
        state = _state_columns(run)
        gradients, noise, deviations = _secret_columns(run, adversary, victim, kind)

        def split(rows: Matrix) -> tuple[Matrix, Matrix, Matrix]:
            return rows[:, state], rows[:, gradients], rows[:, noise] * deviations

        view = list(adversary.view(run.transcript))
        seen = [
            _padded(run.transcript.messages[message].rows[rows].numpy(), width)
            for message, rows in view
        ]
        points = []
        for number, models in run.points.items():
            s, _, z = split(_padded(models.numpy(), width))
            sent = run.messages_before[number]
            before = sum(len(rows) for message, rows in view if message < sent)
            points.append((s, z, before))
        every = [_padded(rows.numpy(), width) for rows in run.points.values()]
        others = [np.delete(rows, victim, axis=0) for rows in every]
        after = np.concatenate([_padded(rows.numpy(), width) for rows in run.states[1].values()])
        a, b, n = split(after)
        c, d, e = split(np.concatenate(seen) if seen else np.zeros((0, width)))
        where = split(np.concatenate(others) if others else np.zeros((0, width)))
        return cls(a, b, n, c, d, e, where, points)


@dataclass(frozen=True, eq=False)
class _Start:
    """What gradients of the victim and noise in `start` add to the first state."""

    b: Matrix
    n: Matrix
    points: Matrix  # noise in the models at which gradients of `start` are taken

    @classmethod
    def of(cls, start: SymbolicRun, adversary: Adversary, victim: int, kind: type[Noise]) -> _Start:
        width = len(start.unknowns)
        rows = np.concatenate([_padded(rows.numpy(), width) for rows in start.states[0].values()])
        gradients, noise, deviations = _secret_columns(start, adversary, victim, kind)
        every = [_padded(points.numpy(), width) for points in start.points.values()]
        points = np.concatenate(every) if every else np.zeros((0, width))
        return cls(rows[:, gradients], rows[:, noise] * deviations, points[:, noise])


def steady_loss(
    run: SymbolicRun,
    start: SymbolicRun,
    adversary: Adversary,
    victim: int,
    steps: int,
    clip: Clip,
    uses: int | None = None,
) -> NoiseLoss | None:
    """What `steps` iterations cost that are all like one; None if no shift is found.

    Args:
        run: One iteration on symbols, from a state of unknowns (`step_on_symbols`).
        start: The state before the first iteration, on symbols.
        adversary: What the bound is against.
        victim: The client whose data are at stake.
        steps: The number of iterations.
        clip: How gradients are clipped.
        uses: In how many gradients the secret takes part at most; None if in all of them.
    """
    both = (run, start)
    # A field that is not one number per parameter, such as a counter, may change what is done.
    if any(one.plain_messages or one.has_plain_state or one.nonlinear_steps for one in both):
        return None
    pure = math.inf
    who = adversary, victim
    iteration, first = _Iteration.of(run, *who, Gaussian), _Start.of(start, *who, Gaussian)
    mu = _total(iteration, first, steps, uses, 2)
    if clip.norm == "l1":
        iteration, first = _Iteration.of(run, *who, Laplace), _Start.of(start, *who, Laplace)
        pure = _total(iteration, first, steps, uses, 1)
    if math.isinf(mu) and math.isinf(pure):
        return None
    every = steps * run.gradients_per_step + first.b.shape[1]
    count = every if uses is None else min(uses, every)
    why = "the noise of one kind does not hide the gradients of an iteration"
    ratios = np.array([pure * clip.sensitivity])
    return NoiseLoss(count, mu * clip.sensitivity, ratios, False, (why, why))


def _total(one: _Iteration, begin: _Start, steps: int, uses: int | None, norm: int) -> float:
    """The size of all shifts per sensitivity; infinite if there is none."""
    if not one.n.shape[1] or not _gradients_follow(one, begin):
        return math.inf
    sizes = _responses(one, begin, steps, norm)
    if sizes is None:
        return math.inf
    own, first = sizes[:, : one.b.shape[1]], sizes[:, one.b.shape[1] :]
    if norm == 1:
        total = float((own.sum(axis=1).cumsum() + first.sum(axis=1)).sum())
        most = float(sizes.sum(axis=0).max(initial=0.0))
    else:
        total = float(np.linalg.norm(own.sum(axis=1).cumsum() + first.sum(axis=1)))
        most = float(np.linalg.norm(sizes, axis=0).max(initial=0.0))
    return SAFETY * (total if uses is None else min(total, uses * most))


def _gradients_follow(one: _Iteration, begin: _Start) -> bool:
    """Whether gradients depend on noise through earlier messages only."""
    if begin.points.any():
        return False
    alike = _orthonormal(begin.n)
    while True:
        free = _null_space(np.concatenate((one.c @ alike, one.e), axis=1))
        x, z = alike @ free[: alike.shape[1]], free[alike.shape[1] :]
        reached = _orthonormal(np.concatenate((alike, one.a @ x + one.n @ z), axis=1))
        if reached.shape[1] == alike.shape[1]:
            break
        alike = reached
    for at_s, at_z, before in one.points:
        free = _null_space(np.concatenate((one.c[:before] @ alike, one.e[:before]), axis=1))
        x, z = alike @ free[: alike.shape[1]], free[alike.shape[1] :]
        moved, terms = at_s @ x + at_z @ z, np.abs(at_s) @ np.abs(x) + np.abs(at_z) @ np.abs(z)
        if (np.abs(moved) > SOLVED * terms).any():
            return False
    return True


def _orthonormal(columns: Matrix) -> Matrix:
    """An orthonormal basis of the span of columns."""
    left, sizes, _ = np.linalg.svd(_rows_of_one(columns.T)[0].T, full_matrices=False)
    basis: Matrix = left[:, sizes > SOLVED]
    return basis


def _null_space(rows: Matrix) -> Matrix:
    """An orthonormal basis [columns, k] of what all rows map to zero."""
    if not len(rows):
        return np.eye(rows.shape[1])
    _, sizes, right = np.linalg.svd(_rows_of_one(rows)[0], full_matrices=True)
    rank = int((sizes > SOLVED).sum())
    basis: Matrix = right[rank:].T
    return basis


def _responses(one: _Iteration, begin: _Start, steps: int, norm: int) -> Matrix | None:
    """Sizes [1 + steps, impulses] of the shifts for each gradient; None if messages differ.

    The first row is the shift of the noise of `start`. The first impulses are the gradients of an
    iteration, the others those of `start`.
    """
    count, extra = one.b.shape[1], begin.b.shape[1]
    later = _without_fresh_noise(one.e, one.c)
    solve = _inverse(np.concatenate((one.e, later @ one.n)))
    hidden = _inverse(later @ begin.n) @ _sum((later, begin.b))
    ds = np.concatenate((np.zeros((len(one.a), count)), begin.b), axis=1)
    dg = np.concatenate((np.eye(count), np.zeros((count, extra))), axis=1)
    dz = np.concatenate((np.zeros((len(hidden), count)), -hidden), axis=1)
    ds = _cleaned(ds + begin.n @ dz, np.abs(ds) + np.abs(begin.n) @ np.abs(dz))
    at_s, at_g, at_z = one.others
    sizes = np.zeros((1 + steps, ds.shape[1]))
    sizes[0] = _lengths(dz, norm)
    largest = np.abs(ds)
    for t in range(1, 1 + steps):
        carried = _sum((one.a, ds), (one.b, dg))
        wanted = np.concatenate((_sum((one.c, ds), (one.d, dg)), _sum((later, carried))))
        dz = _cleaned(-solve @ wanted, np.abs(solve) @ np.abs(wanted))
        sent = _sum((one.c, ds), (one.d, dg), (one.e, dz))
        taken = _sum((at_s, ds), (at_g, dg), (at_z, dz))
        if sent.any() or taken.any() or not np.isfinite(dz).all():
            return None
        sizes[t] = _lengths(dz, norm)
        ds = _sum((one.a, ds), (one.b, dg), (one.n, dz))
        largest = np.maximum(largest, np.abs(ds))
        ds[np.abs(ds) <= DECAYED * largest] = 0.0
        dg = np.zeros_like(dg)
        if not ds.any():
            break
    return sizes


def _sum(*products: tuple[Matrix, Matrix]) -> Matrix:
    """Σ M x, with what is left of terms that cancel counted as zero."""
    total = sum(matrix @ x for matrix, x in products)
    terms = sum(np.abs(matrix) @ np.abs(x) for matrix, x in products)
    return _cleaned(np.asarray(total), np.asarray(terms))


def _cleaned(total: Matrix, terms: Matrix) -> Matrix:
    cleaned: Matrix = np.where(np.abs(total) <= EQUAL * terms, 0.0, total)
    return cleaned


def _without_fresh_noise(e: Matrix, c: Matrix) -> Matrix:
    """Q C: combinations of messages in which fresh noise cancels, over the state."""
    unit, lengths = _rows_of_one(e)
    reached = unit @ np.linalg.pinv(unit, rcond=SOLVED)
    free = _cleaned(np.eye(len(e)) - reached, np.ones_like(reached))
    return free @ (c / lengths[:, None])


def _inverse(rows: Matrix) -> Matrix:
    """The pseudo-inverse, whatever the units of rows."""
    unit, lengths = _rows_of_one(rows)
    inverse: Matrix = np.linalg.pinv(unit, rcond=SOLVED) / lengths
    return inverse


def _lengths(shifts: Matrix, norm: int) -> Matrix:
    """Sizes [impulses] of shifts of noise of deviation one: for Gaussian or for Laplace noise."""
    if norm == 2:
        return np.asarray(np.linalg.norm(shifts, axis=0))
    return np.asarray(math.sqrt(2) * np.abs(shifts).sum(axis=0))


def _rows_of_one(rows: Matrix) -> tuple[Matrix, Matrix]:
    """Rows divided by their lengths, and the lengths; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1)
    lengths = np.where(lengths > 0, lengths, 1.0)
    return rows / lengths[:, None], lengths


def _state_columns(run: SymbolicRun) -> list[int]:
    """The columns of the unknowns that the state before an iteration is made of."""
    return [
        run.columns[Unknown("theta0", 0, row, NO_CLIENT, name)]
        for name, rows in run.states[0].items()
        for row in range(len(rows))
    ]


def _secret_columns(
    run: SymbolicRun, adversary: Adversary, victim: int, kind: type[Noise]
) -> tuple[list[int], list[int], Matrix]:
    """Columns of the victim's gradients and of hidden noise of one kind, and its deviations."""
    unknowns = list(enumerate(run.unknowns))
    gradients = [k for k, u in unknowns if u.kind == "gradient" and u.client == victim]
    noise = [
        k
        for k, u in unknowns
        if u.kind == "noise" and not adversary.knows(u) and type(run.laws[u]) is kind
    ]
    deviations = np.sqrt([run.laws[run.unknowns[k]].variance for k in noise])
    return gradients, noise, deviations


def _padded(rows: Matrix, width: int) -> Matrix:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))
