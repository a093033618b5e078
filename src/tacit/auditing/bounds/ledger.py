"""The ledger: the differential-privacy guarantee for a client against an adversary.

Two neighbouring runs differ in all data of one client; each of its clipped gradients may differ by
Δ = 2C. The bound covers everything that the adversary sees in the audited iterations. To be sound
it is computed against a stronger adversary, which also reads every message that is not private and
knows the data and the first models of all other clients.

Added noise gives the bounds of `added_noise`. Non-linear steps count with the budget that they
declare, such as randomized response. Both need inputs that follow from what is seen, which
`dependence` checks. If a combination of messages contains a gradient but no noise, there is no
guarantee, and the ledger names the combination.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound, noise_bound, noiseless_combination
from tacit.auditing.bounds.dependence import trace_dependence
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
    depends = trace_dependence(know, victim)
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
