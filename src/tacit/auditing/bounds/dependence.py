"""Traces what messages depend on: a bound is only sound if all other inputs are known.

A bound compares two data sets of the victim for the same outputs. Other clients' gradients and
results count as known: each must be a function of earlier messages and of that client's own data,
for then it is the same in both worlds. So the part of its input in the victim's gradients and in
hidden noise must be a combination of messages sent before.

The victim's own gradients differ between the worlds anyway, by at most their sensitivity. They only
must not depend on noise beyond what earlier messages and the victim's data determine: the noise in
their input must be that of a combination of messages sent before.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from tacit.auditing.bounds.rounding import orthonormal_basis
from tacit.auditing.bounds.secret_rows import NoBound, SecretRows
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.record.unknowns import Unknown

FOLLOWS = 1e-9  # part of an input that may be missing, relative to it: rounding
SMALLEST = 1e-3  # of gradients or noise beside the other, below which rounding shows
TRACED = ("gradient", "nonlinear")  # kinds of unknowns that are computed from others


# Where a gradient was taken, or what a non-linear step was applied to: rows [k, U], and how many
# messages were sent before.
Input = tuple[Matrix, int]


def trace_dependence(view: SecretRows, sensitivity: float) -> list[float]:
    """Follow everything in the messages back to what it was computed from.

    Args:
        view: What the adversary sees.
        sensitivity: By how much one of its gradients may differ: the unit of gradients.

    Returns:
        ε of the victim's non-linear steps that messages depend on.

    Raises:
        NoBound: Something that messages depend on prevents a bound.
    """
    budgets, inputs = _trace_inputs(view)
    spans = MessageSpans(view, sensitivity)
    for unknown, (rows, before) in inputs.items():
        of_victim = unknown.kind == "gradient" and unknown.client == view.victim
        if not all(spans.contain(row, before, of_victim) for row in rows):
            raise NoBound(
                f"{unknown} depends non-linearly on gradients or noise that are not seen: no bound "
                "is proved"
            )
    if budgets and view.gradients:
        raise NoBound(
            "gradients of the victim are sent both under noise and in non-linear steps: no bound "
            "is proved"
        )
    return list(budgets.values())


def _input(run: SymbolicRun, unknown: Unknown) -> Input:
    step = run.nonlinear_steps.get(unknown)
    if step is None:
        inputs: tuple[Tensor, ...] = (run.points[unknown.when][unknown.client],)
        before = run.messages_before[unknown.when]
    else:
        inputs, before = step.inputs, step.messages_before
    return np.concatenate([run.wide(row[None]) for row in inputs]), before


def _trace_inputs(view: SecretRows) -> tuple[dict[Unknown, float], dict[Unknown, Input]]:
    """The budgets, and the inputs that must follow from what is seen."""
    run, victim = view.run, view.victim
    budgets: dict[Unknown, float] = {}
    inputs: dict[Unknown, Input] = {}
    pending = [*view.gradients, *view.others]
    while pending:
        unknown = pending.pop()
        if unknown in inputs or unknown in budgets or unknown.kind not in TRACED:
            continue
        step = run.nonlinear_steps.get(unknown)
        if step is not None and step.epsilon is not None and unknown.client == victim:
            # The budget holds for every input, so there is no need to trace it.
            budgets[unknown] = step.epsilon
            continue
        inputs[unknown] = rows, _ = _input(run, unknown)
        sources = [run.unknowns[k] for k in np.flatnonzero(rows.any(axis=0))]
        direct = any(u.kind == "gradient" and u.client == victim for u in sources)
        # A deterministic function of messages is known: its inputs are checked as all others.
        random = step is not None and not step.declared.deterministic
        if random and unknown.client == victim and direct:
            raise NoBound(
                f"the non-linear step {unknown} of a gradient is sent and declares no budget: no "
                "bound is proved"
            )
        pending += [u for u in sources if not view.adversary.knows(u)]
    return budgets, inputs


class MessageSpans:
    """The spans of earlier messages over secrets: hidden noise and the victim's gradients."""

    def __init__(self, view: SecretRows, sensitivity: float) -> None:
        self._view, self._sensitivity = view, sensitivity
        unknowns, adversary, victim = view.run.unknowns, view.adversary, view.victim
        self._noise = [u for u in unknowns if u.kind == "noise" and not adversary.knows(u)]
        self._gradients = [u for u in unknowns if u.kind == "gradient" and u.client == victim]
        self._spans: dict[tuple[int, bool], Matrix] = {}

    def contain(self, row: Matrix, messages: int, only_noise: bool = False) -> bool:
        """Whether the secrets in a row [U] are those of a combination of the first messages."""
        columns, secrets = self._view.run.columns, self._secrets(only_noise)
        wanted = row[[columns[u] for u in secrets]] * self._units(secrets)
        if not wanted.any():
            return True
        key = messages, only_noise
        if key not in self._spans:
            self._spans[key] = self._span(messages, secrets, only_noise)
        wanted /= np.linalg.norm(wanted)
        missing = wanted - (wanted @ self._spans[key].T) @ self._spans[key]
        # Gradients and noise are compared by themselves: one may be small beside the other.
        count = len(self._noise)
        parts = ((missing[:count], wanted[:count]), (missing[count:], wanted[count:]))
        return all(
            np.linalg.norm(rest) <= FOLLOWS * max(float(np.linalg.norm(part)), SMALLEST)
            for rest, part in parts
        )

    def _secrets(self, only_noise: bool) -> list[Unknown]:
        return self._noise if only_noise else [*self._noise, *self._gradients]

    def _units(self, secrets: list[Unknown]) -> Matrix:
        """The standard deviation of each noise, and the sensitivity of gradients."""
        laws = self._view.run.laws
        return np.array(
            [laws[u].variance ** 0.5 if u.kind == "noise" else self._sensitivity for u in secrets]
        )

    def _span(self, messages: int, secrets: list[Unknown], only_noise: bool) -> Matrix:
        """Orthonormal rows that span the first messages, in units of the secrets."""
        view = self._view
        position = {unknown: k for k, unknown in enumerate(secrets)}
        early = view.before(messages)
        rows = np.zeros((int(early.sum()), len(secrets)))
        rows[:, [position[u] for u in view.noise]] = view.added[early]
        if not only_noise:
            rows[:, [position[u] for u in view.gradients]] = view.signal[early]
        return orthonormal_basis((rows * self._units(secrets)).T).T
