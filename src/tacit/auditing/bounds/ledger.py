"""The ledger: the differential-privacy guarantee for a client against an adversary.

Two neighbouring runs differ in all data of one client; each of its clipped gradients may differ by
Δ = 2C. The bound covers everything that the adversary sees in the audited iterations. To be sound
it is computed against a stronger adversary, which also reads every message that is not private and
knows the data and the first models of all other clients.

Added noise gives the bounds of `added_noise`. Non-linear steps count with the budget that they
declare, such as randomized response. If a combination of messages contains a gradient but no noise,
there is no guarantee, and the ledger names the combination.

A bound treats the results of other clients as known. That is sound if each is a function of what
the adversary sees and of their own data: then it is the same function whatever the victim's data
are. So every gradient and every non-linear step in a message, and everything these were computed
from, needs an input that follows from what is seen. Given the unknowns of all other clients, the
part of the input in the victim's gradients and in hidden noise must be a combination of messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound, noise_bound, noiseless_combination
from tacit.auditing.bounds.single_message import SingleMessageBound, single_message_bound
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import ABOUT_GRADIENTS, Leakage, format_terms
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.checks import check_number
from tacit.privacy.accounting.randomized_response import (
    response_epsilon,
    response_method,
    response_pure_epsilon,
)
from tacit.privacy.clipping import Clip
from tacit.record.unknowns import Unknown

PRESENT = 1e-9  # coefficients in the basis above this occur in messages
FOLLOWS = 1e-7  # part of an input that may be missing, relative to its largest coefficient
ZERO = 1e-9  # singular values below this count as zero
TRACED = ("gradient", "nonlinear")  # kinds of unknowns that are computed from others


@dataclass(frozen=True)
class Ledger:
    """The guarantee for one victim against one adversary."""

    victim: int
    adversary: str
    scope: str  # what the bound covers
    upper: Bound
    single_message: SingleMessageBound | None = None  # a comparison, not a guarantee

    def as_dict(self) -> dict[str, Any]:
        upper, single = self.upper, self.single_message
        return {
            "victim": self.victim,
            "adversary": self.adversary,
            "scope": self.scope,
            "guarantee": str(upper),
            "epsilon": None if math.isinf(upper.epsilon) else upper.epsilon,
            "delta": upper.delta,
            "why": upper.why,
            "assumptions": list(upper.assumptions),
            "one_message_alone": None if single is None else single.as_dict(),
        }


def compute_ledger(
    run: SymbolicRun,
    adversary: Adversary,
    victim: int,
    *,
    clip: Clip | None,
    parameters: int,
    delta: float = 1e-5,
) -> Ledger:
    """The guarantee that noise and declared budgets give a victim.

    Args:
        run: The run on symbols, with all its messages.
        adversary: The adversary that the guarantee is against.
        victim: The client whose data are at stake.
        clip: How gradients are clipped; None if they are not.
        parameters: P, the number of coordinates of a gradient.
        delta: δ of the guarantee, where it is not pure.
    """
    check_number("delta", delta, above=0, below=1, example=1e-5)
    stronger = replace(adversary | Adversary.eavesdropper(), knows_theta0=True)
    scope = f"everything that {stronger} sees in the first {run.steps} iterations"
    upper = _upper_bound(Leakage(Knowledge(run, stronger), victim), clip, parameters, delta)
    single = single_message_bound(run, adversary, victim, clip, delta)
    return Ledger(victim, str(adversary), scope, upper, single)


def _upper_bound(leakage: Leakage, clip: Clip | None, parameters: int, delta: float) -> Bound:
    know, victim = leakage.knowledge, leakage.victim
    noise = [u for u in know.hidden if u.kind == "noise"]
    cancels = "noise cancels in a combination of messages" if noise else "sent without noise"
    # The simplest exact answer is the clearest reason.
    for question in ABOUT_GRADIENTS:
        series = leakage.of(question)
        if exact := series.indices("exact"):
            shown = format_terms(*leakage.terms(question, exact[0]))
            return Bound.none(f"{cancels}: {shown}", series.answer(exact[0]).combination)
    depends = _trace_dependence(know, victim)
    if depends.obstacle is not None:
        return Bound.none(f"{depends.obstacle}: no bound is proved")
    if depends.budgets:
        return _response_bound(depends.budgets, parameters, delta)
    if not depends.gradients:
        return Bound(0.0, 0.0, "no message depends on the victim's data")
    if clip is None:
        return Bound.none("gradients are not clipped, so one client's influence is not bounded")
    columns = {unknown: k for k, unknown in enumerate(know.hidden)}
    signal = know.basis[:, [columns[u] for u in depends.gradients]]
    noise_rows = know.basis[:, [columns[u] for u in noise]]
    if (combination := noiseless_combination(signal, noise_rows)) is not None:
        return Bound.none(f"{cancels}: {_format_gradients(know, victim, combination)}")
    return noise_bound(clip, signal, noise_rows, [know.run.laws[u] for u in noise], delta)


def _format_gradients(know: Knowledge, victim: int, combination: Matrix) -> str:
    """The gradients in a combination of the basis, in units of the victim's largest."""
    total = zip(know.hidden, combination @ know.basis, strict=True)
    gradients = [(u, float(x)) for u, x in total if u.kind == "gradient"]
    largest = max(abs(x) for u, x in gradients if u.client == victim)
    shown = [(u, x / largest) for u, x in gradients if abs(x) > 1e-6 * largest]
    return format_terms([u for u, _ in shown], [x for _, x in shown])


def _response_bound(budgets: dict[Unknown, float], parameters: int, delta: float) -> Bound:
    largest, count = max(budgets.values()), len(budgets)
    uses = count * parameters
    pure = response_pure_epsilon(largest, parameters, count)
    epsilon = response_epsilon(delta, largest, uses)
    why = (
        f"randomized response with ε = {largest:g} per coordinate, {parameters:,} coordinates, "
        f"{count} times: pure ε = {pure:.4g}"
    )
    if epsilon >= pure:
        return Bound(pure, 0.0, why)
    return Bound(epsilon, delta, f"{why}; with δ by {response_method(uses)}")


@dataclass(frozen=True)
class _Dependence:
    """How messages depend on one victim, and what prevents a bound."""

    gradients: list[Unknown]  # of the victim, in linear combinations
    budgets: dict[Unknown, float]  # ε of its non-linear steps that messages depend on
    obstacle: str | None


def _trace_dependence(know: Knowledge, victim: int) -> _Dependence:
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
    return _Dependence(gradients, budgets, obstacle)


def _trace_inputs(
    know: Knowledge, victim: int, present: list[Unknown]
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


def _unseen_input(know: Knowledge, victim: int, inputs: dict[Unknown, Matrix]) -> str | None:
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
