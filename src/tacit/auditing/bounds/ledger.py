"""The ledger: what differential privacy guarantees a client against an adversary, or that it guarantees nothing.

Two neighbouring runs differ in all data of one client; each of its clipped gradients may differ by Δ = 2C. The bound is
for everything the adversary sees in the iterations audited, and to be sound it is taken against a stronger one, who
also reads every message that is not private and knows the data and the first models of all other clients. Noise that is
added gives the bounds of `added_noise`, non-linear steps count with the budget they declare (randomized response), and
both only where `dependence` finds that what others made of a message follows from what is seen. If some combination of
messages has no noise but a gradient in it, there is no guarantee, and the ledger names one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound, least_bound, uncovered
from tacit.auditing.bounds.one_message import OneMessage, one_message
from tacit.auditing.symbolic.dependence import dependence
from tacit.auditing.symbolic.echelon import Matrix
from tacit.auditing.symbolic.findings import Findings, Question
from tacit.auditing.symbolic.knowledge import Combination, Knowledge
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.errors import Misuse
from tacit.privacy.accounting.randomized_response import (
    response_epsilon,
    response_method,
    response_pure_epsilon,
)
from tacit.privacy.clipping import Clip
from tacit.record.unknowns import Unknown

NO_GUARANTEE = "no differential-privacy guarantee"
SHOWN_TERMS = 6  # of a combination without noise


@dataclass(frozen=True)
class Entry:
    """What is guaranteed, for which scope, and why."""

    scope: str
    epsilon: float  # infinite: none
    delta: float  # 0 for a pure guarantee
    why: str
    assumptions: tuple[str, ...] = ()
    combination: Combination | None = None  # the one without noise, where that is the reason

    @property
    def words(self) -> str:
        """The guarantee in one phrase."""
        if math.isinf(self.epsilon):
            return NO_GUARANTEE
        return f"ε = {self.epsilon:.4g}" + (f" at δ = {self.delta:g}" if self.delta else "")

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "scope": self.scope,
            "guarantee": self.words,
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
            "why": self.why,
            "assumptions": list(self.assumptions),
        }


@dataclass(frozen=True)
class Ledger:
    """The guarantee for one victim against one adversary; `alone` is a comparison, no guarantee."""

    victim: int
    adversary: str
    upper: Entry
    alone: OneMessage | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "victim": self.victim,
            "adversary": self.adversary,
            **self.upper.as_dict(),
            "one_message_alone": None if self.alone is None else self.alone.as_dict(),
        }


def ledger(
    run: SymbolicRun,
    adversary: Adversary,
    victim: int,
    *,
    clip: Clip | None,
    parameters: int,
    delta: float = 1e-5,
) -> Ledger:
    """What is guaranteed to a victim by the noise and the budgets that the algorithm declared."""
    if not 0 < delta < 1:
        raise Misuse(f"delta is {delta!r}.", "Give a number between 0 and 1, e.g. 1e-5.")
    stronger = replace(adversary | Adversary.eavesdropper(), knows_theta0=True)
    know = Knowledge(run, stronger)
    scope = f"all that {stronger} sees in the first {run.steps} iterations"
    bound, combination = _bound(know, victim, clip, parameters, delta)
    upper = Entry(scope, bound.epsilon, bound.delta, bound.why, bound.assumptions, combination)
    return Ledger(victim, str(adversary), upper, one_message(run, adversary, victim, clip, delta))


def _bound(
    know: Knowledge, victim: int, clip: Clip | None, parameters: int, delta: float
) -> tuple[Bound, Combination | None]:
    found = Findings(know, victim)
    questions: tuple[Question, ...] = ("gradient", "update", "difference", "sum")
    for question in questions:  # the simplest that is known exactly is the plainest reason
        series = found.of(question)
        if exact := series.places("exact"):
            shown = _listed(*found.terms(question, exact[0]))
            return _none(f"{_how(know)}: {shown}"), series.ask(exact[0]).combination
    depends = dependence(know, victim)
    if depends.obstacle is not None:
        return _none(f"{depends.obstacle}: no bound is proved"), None
    if depends.budgets:
        return _responses(depends.budgets, parameters, delta), None
    if not depends.gradients:
        return Bound(0.0, 0.0, "no message depends on its data"), None
    if clip is None:
        return _none(
            "gradients are not clipped: there is no bound on what one client can change"
        ), None
    place = {name: k for k, name in enumerate(know.hidden)}
    signal = know.basis[:, [place[u] for u in depends.gradients]]
    noise_names = [u for u in know.hidden if u.kind == "noise"]
    noise = know.basis[:, [place[u] for u in noise_names]]
    if (bare := uncovered(signal, noise)) is not None:
        return _none(f"{_how(know)}: {_named(know, victim, bare)}"), None
    return least_bound(clip, signal, noise, [know.run.laws[u] for u in noise_names], delta), None


def _none(why: str) -> Bound:
    return Bound(math.inf, 0.0, why)


def _how(know: Knowledge) -> str:
    masked = any(u.kind == "noise" for u in know.hidden)
    return "noise cancels in a combination of messages" if masked else "it is sent without noise"


def _named(know: Knowledge, victim: int, rows: Matrix) -> str:
    """A combination of the basis as gradients, in units of the victim's largest."""
    total = rows @ know.basis
    gradients = [
        (u, float(x)) for u, x in zip(know.hidden, total, strict=True) if u.kind == "gradient"
    ]
    largest = max(abs(x) for u, x in gradients if u.client == victim)
    loud = [(u, x / largest) for u, x in gradients if abs(x) > 1e-6 * largest]
    return _listed(tuple(u for u, _ in loud), tuple(x for _, x in loud))


def _listed(terms: tuple[Unknown, ...], coefficients: tuple[float, ...]) -> str:
    shown = " ".join(
        f"{c:+.3g}·{u}" for u, c in list(zip(terms, coefficients, strict=True))[:SHOWN_TERMS]
    )
    return shown + (" + …" if len(terms) > SHOWN_TERMS else "")


def _responses(budgets: dict[Unknown, float], parameters: int, delta: float) -> Bound:
    largest, uses = max(budgets.values()), len(budgets) * parameters
    pure = response_pure_epsilon(largest, parameters, len(budgets))
    epsilon = response_epsilon(delta, largest, uses)
    why = (
        f"randomized response of {largest:g} per coordinate, {parameters:,} coordinates, {len(budgets)} times: "
        f"pure ε = {pure:.4g}"
    )
    if epsilon >= pure:
        return Bound(pure, 0.0, why)
    return Bound(epsilon, delta, f"{why}; with δ by {response_method(uses)}")
