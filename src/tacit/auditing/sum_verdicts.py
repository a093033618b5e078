"""Headlines and summaries of audits in which adversaries learn nothing but noisy sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.canaries.result import CanaryResult
from tacit.privacy.planning import epsilon_text


def sum_headline(
    adversary: Adversary, ledger: Ledger, clients: int
) -> tuple[Literal["noisy sum", "noisy"], str]:
    """The verdict on a victim of which a noisy sum is all that is learnt."""
    assert ledger.only_sum_of is not None
    kind: Literal["noisy sum", "noisy"] = "noisy sum" if len(ledger.only_sum_of) > 1 else "noisy"
    return kind, f"{_name(adversary)} {_learns(adversary, ledger, clients)}"


def sum_summary(
    adversary: Adversary,
    ledger: Ledger,
    clients: int,
    iterations: int,
    algorithm: Algorithm,
    canaries: Sequence[CanaryResult] = (),
) -> str:
    """One sentence: what an adversary learns of a victim, the guarantee, and what was measured."""
    learns = _learns(adversary, ledger, clients)
    which, steps = "the first", iterations
    if ledger.whole_run is not None and ledger.run_steps is not None:
        which, steps = "the whole run of", ledger.run_steps
    scope = f"per {ledger.unit} for {which} {steps:,} iterations"
    text = f"{_name(adversary)} {learns}: {at_most(ledger.best)} {scope}, proved from the messages"
    budget = algorithm.budget
    if budget is not None and ledger.best.epsilon > budget.epsilon:
        text += f"; that is more than the promised {budget.epsilon:g}"
    for found in canaries:
        if found.victim == ledger.victim:
            text += "; a defect:" if found.is_defect else ";"
            text += f" canaries show ε ≥ {found.lower.epsilon:.3g}"
    return f"{text}."


def promise_of(algorithm: Algorithm, clients: int) -> str:
    """What an algorithm has promised, in one sentence; "" if nothing."""
    budget = algorithm.budget
    if budget is None:
        return ""
    return (
        f"Promised: ε ≤ {budget.epsilon:g} at δ = {budget.delta:g}, {budget.assumption(clients)}."
    )


def at_most(bound: Bound) -> str:
    """A bound as "ε ≤ 3 at δ = 1e-05", rounded up.

    Example:
        >>> at_most(Bound(2.9987, 1e-5, "noise"))
        'ε ≤ 3 at δ = 1e-05'
    """
    return f"ε ≤ {epsilon_text(bound.epsilon)} at δ = {bound.delta:g}"


def _learns(adversary: Adversary, ledger: Ledger, clients: int) -> str:
    members = ledger.only_sum_of
    assert members is not None
    if len(members) == 1:
        return (
            f"isolates client {adversary.name_of(members[0])}, whose sums have its own noise only"
        )
    if len(members) < clients - len(adversary.corrupt):
        named = ", ".join(map(adversary.name_of, members))
        victim = adversary.name_of(ledger.victim)
        return f"learns nothing about client {victim} but the noisy sum over {{{named}}}"
    over = f"the other {len(members)}" if adversary.corrupt else f"all {len(members)}"
    return f"learns nothing but the noisy sum over {over} clients"


def _name(adversary: Adversary) -> str:
    if adversary.malicious or not adversary.corrupt:
        return "An eavesdropper" if adversary == Adversary.eavesdropper() else str(adversary)
    members = ", ".join(map(adversary.name_of, sorted(adversary.corrupt)))
    return f"The coalition {{{members}}}"
