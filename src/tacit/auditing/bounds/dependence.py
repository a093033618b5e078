"""Traces what messages depend on: a bound is only sound if all other inputs are known.

A bound treats the results of other clients as known. That is sound if each is a function of what
the adversary sees and of their own data: then it is the same function whatever the victim's data
are. So every gradient and every non-linear step in a message, and everything these were computed
from, needs an input that follows from what is seen. Given the unknowns of all other clients, the
part of the input in the victim's gradients and in hidden noise must be a combination of messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.auditing.symbolic.linear_knowledge import LinearKnowledge
from tacit.auditing.symbolic.row_space import Matrix
from tacit.record.unknowns import Unknown

PRESENT = 1e-9  # coefficients in the basis above this occur in messages
FOLLOWS = 1e-7  # part of an input that may be missing, relative to its largest coefficient
ZERO = 1e-9  # singular values below this count as zero
TRACED = ("gradient", "nonlinear")  # kinds of unknowns that are computed from others


@dataclass(frozen=True)
class Dependence:
    """How messages depend on one victim, and what prevents a bound."""

    gradients: list[Unknown]  # of the victim, in linear combinations
    budgets: dict[Unknown, float]  # ε of its non-linear steps that messages depend on
    obstacle: str | None


def trace_dependence(know: LinearKnowledge, victim: int) -> Dependence:
    """Follow everything in the messages back to what it was computed from."""
    largest = np.abs(know.basis).max(axis=0, initial=0.0)
    present = [u for u, size in zip(know.hidden, largest, strict=True) if size > PRESENT]
    gradients = [u for u in present if u.kind == "gradient" and u.client == victim]
    budgets, inputs, obstacle = _trace_inputs(
        know, victim, [u for u in present if u.kind != "noise"]
    )
    if obstacle is None and inputs:
        obstacle = _unseen_input(know, victim, inputs)
    if obstacle is None and budgets and gradients:
        obstacle = "gradients of the victim are sent both under noise and in non-linear steps"
    return Dependence(gradients, budgets, obstacle)


def _trace_inputs(
    know: LinearKnowledge, victim: int, present: list[Unknown]
) -> tuple[dict[Unknown, float], dict[Unknown, Matrix], str | None]:
    """The budgets, the inputs that must follow from what is seen, and the first obstacle."""
    run = know.run
    budgets: dict[Unknown, float] = {}
    inputs: dict[Unknown, Matrix] = {}
    pending = list(present)
    while pending:
        unknown = pending.pop()
        if unknown in inputs or unknown in budgets or unknown.kind not in TRACED:
            continue
        step = run.nonlinear_steps.get(unknown)
        if step is not None and step.epsilon is not None and unknown.client == victim:
            # The budget holds for every input, so there is no need to trace it.
            budgets[unknown] = step.epsilon
            continue
        row = know.pad(run.points[unknown.when][unknown.client] if step is None else step.input)
        inputs[unknown] = row
        sources = [run.unknowns[k] for k in np.flatnonzero(row)]
        direct = any(u.kind == "gradient" and u.client == victim for u in sources)
        if step is not None and unknown.client == victim and direct:
            obstacle = f"the non-linear step {unknown} of a gradient is sent and declares no budget"
            return budgets, inputs, obstacle
        pending += [u for u in sources if not know.adversary.knows(u)]
    return budgets, inputs, None


def _unseen_input(know: LinearKnowledge, victim: int, inputs: dict[Unknown, Matrix]) -> str | None:
    """Describe an input that is no function of what is seen and of the other clients' data."""
    secret = np.array(
        [u.kind == "noise" or (u.kind == "gradient" and u.client == victim) for u in know.hidden],
        dtype=bool,
    )
    wanted = know.hidden_part(np.stack(list(inputs.values())))[:, secret]
    sizes = np.abs(wanted).max(axis=1, initial=0.0)
    if not sizes.any():
        return None
    _, singular, span = np.linalg.svd(know.basis[:, secret], full_matrices=False)
    span = span[singular > ZERO]
    missing = np.abs(wanted - wanted @ span.T @ span).max(axis=1)
    for unknown, is_unseen in zip(inputs, missing > FOLLOWS * sizes, strict=True):
        if is_unseen:
            return f"{unknown} depends non-linearly on gradients or noise that are not seen"
    return None
