"""On what the things an adversary hears depend: whether a bound by added noise, or by a budget, may be given at all.

A bound treats what other clients computed as known. That is sound if it is a function of what was seen and of their own
data, for then it is the same function whatever the victim's data are. So every gradient and every non-linear step that
is heard, or that one of these was computed from, must have an input that follows from what was seen: the input's share
of the victim's gradients and of hidden noise must be a combination of messages, once the others' unknowns are given
away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.record.unknowns import Unknown

HEARD = 1e-9  # coefficients in the basis above this are heard
FOLLOWS = 1e-7  # what may be missing of an input, relative to its largest coefficient
SILENT = 1e-9  # singular values below this are none


@dataclass(frozen=True)
class Dependence:
    """What is heard of one victim, and what stands in the way of a bound."""

    gradients: list[Unknown]  # of the victim, heard in linear combinations
    budgets: dict[
        Unknown, float
    ]  # its non-linear steps with a budget, heard or behind what is heard
    obstacle: str | None


def dependence(know: Knowledge, victim: int) -> Dependence:
    """Follow everything that is heard back to what it was computed from."""
    names = know.hidden
    loudness = np.abs(know.basis).max(axis=0, initial=0.0)
    heard = [name for name, level in zip(names, loudness, strict=True) if level > HEARD]
    gradients = [u for u in heard if u.kind == "gradient" and u.client == victim]
    budgets, inputs, obstacle = _behind(know, victim, [u for u in heard if u.kind != "noise"])
    if obstacle is None and inputs:
        obstacle = _not_following(know, victim, inputs)
    if obstacle is None and budgets and gradients:
        obstacle = "its gradients are heard both under noise and through non-linear steps"
    return Dependence(gradients, budgets, obstacle)


def _behind(
    know: Knowledge, victim: int, heard: list[Unknown]
) -> tuple[dict[Unknown, float], dict[Unknown, np.ndarray], str | None]:
    """Budgets met on the way back, the inputs that must follow from what is seen, and an obstacle if one is met."""
    run = know.run
    budgets: dict[Unknown, float] = {}
    inputs: dict[Unknown, np.ndarray] = {}
    pending = list(heard)
    while pending:
        name = pending.pop()
        if name in inputs or name in budgets or name.kind not in ("gradient", "nonlinear"):
            continue
        step = run.nonlinear_steps.get(name)
        if step is not None and step.epsilon is not None and name.client == victim:
            budgets[name] = step.epsilon  # whatever goes in, so much comes out
            continue
        row = know.widened(run.points[name.when][name.client] if step is None else step.rows)
        inputs[name] = row
        behind = [run.unknowns[k] for k in np.flatnonzero(row)]
        direct = [u for u in behind if u.kind == "gradient" and u.client == victim]
        if step is not None and name.client == victim and direct:
            return (
                budgets,
                inputs,
                f"the non-linear step {name} of its gradients is heard, and declares no budget",
            )
        pending += [u for u in behind if not know.adversary.knows(u)]
    return budgets, inputs, None


def _not_following(know: Knowledge, victim: int, inputs: dict[Unknown, np.ndarray]) -> str | None:
    """An input that is not a function of what is seen and of the others' data."""
    own = np.array(
        [u.kind == "noise" or (u.kind == "gradient" and u.client == victim) for u in know.hidden],
        dtype=bool,
    )
    wanted = know.hidden_part(np.stack(list(inputs.values())))[:, own]
    asked = np.flatnonzero(np.abs(wanted).max(axis=1, initial=0.0) > 0)
    if not len(asked):
        return None
    _, sizes, span = np.linalg.svd(know.basis[:, own], full_matrices=False)
    span = span[sizes > SILENT]
    wanted = wanted[asked]
    missing = np.abs(wanted - wanted @ span.T @ span).max(axis=1)
    for place in np.flatnonzero(missing > FOLLOWS * np.abs(wanted).max(axis=1)):
        name = list(inputs)[asked[place]]
        return f"{name} depends on what is not seen, its gradients or noise, in a way that is not linear"
    return None
