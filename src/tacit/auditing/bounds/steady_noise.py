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

Runs that differ in one sample differ in few gradients, each of which costs one response, if the
victim's own models stay equal too; otherwise all its later gradients may differ.

A gradient of `start` is one more impulse, which noise of `start` hides in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import NoiseLoss
from tacit.auditing.bounds.rounding import (
    SOLVED,
    Tracked,
    clean,
    clean_product,
    composite,
    is_zero,
    normalized_rows,
    null_space,
    orthonormal_basis,
    pseudo_inverse,
)
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.noise import Gaussian, Laplace, Noise
from tacit.record.unknowns import NO_CLIENT, Unknown

SAFETY = 1 + 1e-9  # for rounding
LARGEST = 1e6  # shifts beyond this are no protection, and out of range for accounting


# Sizes [1 + steps, gradients] of the shifts in each iteration, that of `start` first: for the
# gradients of an iteration, and for those of `start`. And whether the victim's later gradients are
# taken elsewhere.
Responses = tuple[Matrix, Matrix, bool]


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
    own: tuple[Matrix, Matrix, Matrix]  # where the victim does
    fields: list[int]  # rows of each field of the state, whose numbers have one unit
    points: list[tuple[Matrix, Matrix, int]]  # where all do, over s and z; messages sent before

    @classmethod
    def of(
        cls, run: SymbolicRun, adversary: Adversary, victim: int, kind: type[Noise]
    ) -> _Iteration:
        state = _state_columns(run)
        gradients, noise, deviations = _secret_columns(run, adversary, victim, kind)

        def split(rows: Matrix) -> tuple[Matrix, Matrix, Matrix]:
            return rows[:, state], rows[:, gradients], rows[:, noise] * deviations

        view = list(adversary.view(run.transcript))
        messages = run.transcript.messages
        seen = [run.wide(messages[message].rows[rows]) for message, rows in view]
        points = []
        for number, models in run.points.items():
            s, _, z = split(run.wide(models))
            sent = run.messages_before[number]
            before = sum(len(rows) for message, rows in view if message < sent)
            points.append((s, z, before))
        none = np.zeros((0, len(run.unknowns)))
        every = [run.wide(rows) for rows in run.points.values()]
        others = [np.delete(rows, victim, axis=0) for rows in every]
        after = np.concatenate([run.wide(rows) for rows in run.states[1].values()])
        a, b, n = split(after)
        c, d, e = split(np.concatenate([none, *seen]))
        where = split(np.concatenate([none, *others]))
        own = split(np.concatenate([rows[[victim]] for rows in every]))
        fields = [len(rows) for rows in run.states[0].values()]
        return cls(a, b, n, c, d, e, where, own, fields, points)


@dataclass(frozen=True, eq=False)
class _Start:
    """What gradients of the victim and noise in `start` add to the first state."""

    b: Matrix
    n: Matrix
    points: Matrix  # noise in the models at which gradients of `start` are taken

    @classmethod
    def of(cls, start: SymbolicRun, adversary: Adversary, victim: int, kind: type[Noise]) -> _Start:
        rows = np.concatenate([start.wide(rows) for rows in start.states[0].values()])
        gradients, noise, deviations = _secret_columns(start, adversary, victim, kind)
        none = np.zeros((0, len(start.unknowns)))
        points = np.concatenate([none, *(start.wide(rows) for rows in start.points.values())])
        return cls(rows[:, gradients], rows[:, noise] * deviations, points[:, noise])


def steady_loss(
    run: SymbolicRun,
    start: SymbolicRun,
    threat: Threat,
    steps: int,
    uses: int | None = None,
) -> NoiseLoss | None:
    """What `steps` iterations cost that are all like one; None if no shift is found.

    Args:
        run: One iteration on symbols, from a state of unknowns (`step_on_symbols`).
        start: The state before the first iteration, on symbols.
        threat: What the bound is about; gradients must be clipped.
        steps: The number of iterations.
        uses: In how many gradients the secret takes part at most; None if in all of them.
    """
    both = (run, start)
    if [len(rows) for rows in run.states[0].values()] != [
        len(rows) for rows in run.states[1].values()
    ]:
        return None
    # A field that is not one number per parameter, such as a counter, may change what is done.
    if any(
        symbols.plain_messages or symbols.plain_fields or symbols.nonlinear_steps
        for symbols in both
    ):
        return None
    pure = math.inf
    assert threat.clip is not None
    who = threat.stronger, threat.victim
    iteration, first = _Iteration.of(run, *who, Gaussian), _Start.of(start, *who, Gaussian)
    mu = _total(iteration, first, steps, uses, 2)
    if threat.clip.norm == "l1":
        iteration, first = _Iteration.of(run, *who, Laplace), _Start.of(start, *who, Laplace)
        pure = _total(iteration, first, steps, uses, 1)
    costs = (size * threat.sensitivity for size in (mu, pure))
    mu, pure = (cost if cost < LARGEST else math.inf for cost in costs)
    if math.isinf(mu) and math.isinf(pure):
        return None
    every = steps * run.gradients_per_step + first.b.shape[1]
    count = every if uses is None else min(uses, every)
    return NoiseLoss(count, mu, np.array([pure]), False)


def _total(step: _Iteration, start: _Start, steps: int, uses: int | None, norm: int) -> float:
    """The size of all shifts per sensitivity; infinite if there is none."""
    if not step.n.shape[1] or not _gradients_follow(step, start):
        return math.inf
    # Recursions that diverge are noticed by their size.
    with np.errstate(over="ignore", invalid="ignore"):
        responses = _responses(step, start, steps, norm)
    if responses is None:
        return math.inf
    later, first, own_moves = responses
    every = later.sum(axis=1).cumsum() + first.sum(axis=1)
    total = float(np.linalg.norm(every, norm))
    # One sample is in few gradients. But if they move the victim, all later ones may differ.
    if uses is not None and not own_moves:
        sizes = np.concatenate((later, first), axis=1)
        total = min(total, uses * float(np.linalg.norm(sizes, norm, axis=0).max(initial=0.0)))
    return SAFETY * total if math.isfinite(total) else math.inf


def _gradients_follow(step: _Iteration, start: _Start) -> bool:
    """Whether gradients depend on noise through earlier messages only."""
    if start.points.any():
        return False
    alike = orthonormal_basis(start.n)
    while True:
        free = null_space(np.concatenate((clean_product(step.c, alike), step.e), axis=1))
        x, z = alike @ free[: alike.shape[1]], free[alike.shape[1] :]
        reached = orthonormal_basis(np.concatenate((alike, step.a @ x + step.n @ z), axis=1))
        if reached.shape[1] == alike.shape[1]:
            break
        alike = reached
    for at_s, at_z, before in step.points:
        seen = np.concatenate((clean_product(step.c[:before], alike), step.e[:before]), axis=1)
        free = null_space(seen)
        x, z = alike @ free[: alike.shape[1]], free[alike.shape[1] :]
        moved, terms = at_s @ x + at_z @ z, np.abs(at_s) @ np.abs(x) + np.abs(at_z) @ np.abs(z)
        if (np.abs(moved) > SOLVED * terms).any():
            return False
    return True


def _responses(step: _Iteration, start: _Start, steps: int, norm: int) -> Responses | None:
    """The shifts for each gradient; None if messages, or gradients of others, are not equal.

    What is zero in as many iterations as there are dimensions is zero in all (Cayley–Hamilton), so
    longer runs need no further check, and rounding does not add up in it.
    """
    count, extra = step.b.shape[1], start.b.shape[1]
    later = _without_fresh_noise(step.e, step.c)
    solve = pseudo_inverse(np.concatenate((step.e, clean_product(later, step.n))))
    hidden = pseudo_inverse(clean_product(later, start.n)) @ clean_product(later, start.b)
    dg = Tracked.exact(np.concatenate((np.eye(count), np.zeros((count, extra))), axis=1))
    dz = np.concatenate((np.zeros((len(hidden), count)), -hidden), axis=1)
    known = np.concatenate((np.zeros((len(step.a), count)), start.b), axis=1)
    ds = Tracked.sum((np.eye(len(step.a)), Tracked.exact(known)), (start.n, Tracked.exact(dz)))
    sizes = np.zeros((1 + steps, count + extra))
    sizes[0] = _lengths(dz, norm)
    own_moves, largest = False, 0.0
    scale = _by_field(step.fields, np.abs(known) + np.abs(start.n) @ np.abs(dz))
    # The shift as a function of the state and the gradients, and the loop that it closes.
    of_s = composite(-solve, np.concatenate((step.c, clean_product(later, step.a))))
    of_g = composite(-solve, np.concatenate((step.d, clean_product(later, step.b))))
    loop_s, loop_g = composite(step.n, *of_s, step.a), composite(step.n, *of_g, step.b)
    for t in range(1, 1 + steps):
        shift = Tracked.sum_of_composites((of_s, ds), (of_g, dg))
        if not np.isfinite(shift.values).all():
            return None
        if t <= len(step.a) + 1:
            everything = (ds, dg, shift)
            largest = max(largest, float(np.abs(shift.values).max(initial=0.0)))
            terms = ((step.a, ds), (step.b, dg), (step.n, shift))
            added = sum(np.abs(matrix) @ np.abs(x.values) for matrix, x in terms)
            scale = np.maximum(scale, _by_field(step.fields, np.asarray(added)))
            sizes_of = _carried(step, scale), np.ones(count), largest
            if not is_zero((step.c, step.d, step.e), everything, sizes_of):
                return None
            if not is_zero(step.others, everything, sizes_of):
                return None
            own_moves |= not is_zero(step.own, everything, sizes_of)
        sizes[t] = _lengths(shift.values, norm)
        ds = Tracked.sum_of_composites((loop_s, ds), (loop_g, dg))
        dg = Tracked.exact(np.zeros_like(dg.values))
        if not ds.values.any():
            break
    return sizes[:, :count], sizes[:, count:], own_moves


def _carried(step: _Iteration, scale: Matrix) -> Matrix:
    """Scales of the state [rows], also of fields that others only pass on to."""
    for _ in step.fields:
        scale = np.maximum(scale, _by_field(step.fields, (np.abs(step.a) @ scale)[:, None]))
    return scale


def _by_field(fields: list[int], terms: Matrix) -> Matrix:
    """The largest term in the field of each row."""
    parts = np.split(terms, np.cumsum(fields)[:-1])
    return np.repeat([float(part.max(initial=0.0)) for part in parts], fields)


def _without_fresh_noise(e: Matrix, c: Matrix) -> Matrix:
    """Q C: combinations of messages in which fresh noise cancels, over the state."""
    unit, lengths = normalized_rows(e)
    reached = unit @ np.linalg.pinv(unit, rcond=SOLVED)
    free = clean(np.eye(len(e)) - reached, np.ones_like(reached))
    return free @ (c / lengths[:, None])


def _lengths(shifts: Matrix, norm: int) -> Matrix:
    """Sizes [impulses] of shifts of noise of deviation one: for Gaussian or for Laplace noise."""
    if norm == 2:
        return np.asarray(np.linalg.norm(shifts, axis=0))
    return np.asarray(math.sqrt(2) * np.abs(shifts).sum(axis=0))


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
