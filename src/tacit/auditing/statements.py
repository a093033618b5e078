"""What is proved, bounded and measured about one victim, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.membership_attacks import MembershipResult
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.symbolic.leakage import Leakage, Question, format_terms
from tacit.core.templates import Phrases
from tacit.privacy.planning import epsilon_text

Headline = Literal["exposed", "partly exposed", "noisy", "noisy sum", "nothing proved"]
GAINS = 12  # combinations that the printed range of gains is taken from
NOUNS: dict[Question, str] = {
    "gradient": "gradients",
    "update": "updates",
    "difference": "gradient differences",
    "combination": "other combinations of gradients",
    "group": "combinations with one or two other clients",
    "sum": "sums over honest clients",
    "model": "models",
    "image": "outputs of non-linear steps",
}


def _named(clients: Sequence[int], adversary: Adversary) -> str:
    return f"{{{', '.join(map(adversary.name_of, clients))}}}"


phrases = Phrases("tacit.auditing", "statements.txt.jinja", epsilon=epsilon_text, named=_named)


@dataclass(frozen=True)
class StrongestLeak:
    """The most revealing knowledge of an adversary about a victim, as templates say it."""

    victim: str
    question: Question | None = None  # None: nothing is known
    status: str = ""  # exact or noisy
    exact: int = 0  # how many answers are exact, of `count`
    count: int = 0
    deviation: float | None = None  # of the least noisy gradient; None if none is noisy
    others: int = 0  # other clients in a sum
    example: str = ""  # a combination
    steps: str = ""  # non-linear ones with known results

    @classmethod
    def of(cls, leakage: Leakage) -> StrongestLeak:
        if leakage.strongest is None:
            return cls(leakage.victim_text)
        question, status = leakage.strongest
        series, gradients = leakage.of(question), leakage.of("gradient")
        exact, noisy = series.indices("exact"), gradients.indices("noisy")
        example = ""
        if question in ("combination", "group"):
            names = leakage.knowledge.adversary.names
            example = format_terms(*leakage.terms(question, exact[0]), names)
        return cls(
            leakage.victim_text,
            question,
            status,
            len(exact),
            len(series.when),
            math.sqrt(float(np.min(gradients.variances[noisy]))) if noisy else None,
            len(leakage.honest_component) - 1 if question == "sum" else 0,
            example,
            ", ".join(sorted({leakage.images[index].tag for index in exact}))
            if question == "image"
            else "",
        )

    @property
    def noun(self) -> str:
        return "" if self.question is None else NOUNS[self.question]

    @property
    def headline(self) -> Headline:
        if self.question is None:
            return "nothing proved"
        if self.status == "noisy":
            return "noisy"
        return "exposed" if self.question in ("gradient", "update") else "partly exposed"

    def __str__(self) -> str:
        """In a few words."""
        if self.question is None:
            return "no linear leak"
        if self.question == "image":
            return f"output of {self.steps}"
        return f"{self.status} {self.noun}"


def covered(ledger: Ledger, iterations: int) -> str:
    """The iterations that the best bound of a ledger covers."""
    if ledger.whole_run is not None and ledger.run_steps is not None:
        return f"the whole run of {ledger.run_steps:,} iterations"
    return f"the first {iterations:,} iterations"


def promise_of(algorithm: Algorithm, clients: int) -> str:
    """What an algorithm has promised, in one sentence; "" if nothing."""
    budget = algorithm.budget
    if budget is None:
        return ""
    return (
        f"Promised: ε ≤ {budget.epsilon:g} at δ = {budget.delta:g}, {budget.assumption(clients)}."
    )


def proved(leakage: Leakage, question: Question) -> str:
    series = leakage.of(question)
    exact, noisy, count = series.indices("exact"), series.indices("noisy"), len(series.when)
    parts = []
    if exact:
        proofs = (series.estimate(index).combination for index in exact[:GAINS])
        gains = [proof.gain for proof in proofs if proof is not None]
        parts.append(f"{len(exact)} of {count} exactly (gain {_range(min(gains), max(gains))})")
    if noisy:
        deviations = np.sqrt(series.variances[noisy])
        noise = _range(deviations.min(), deviations.max())
        parts.append(f"{len(noisy)} with noise of standard deviation {noise}")
    return f"{NOUNS[question]}: {', '.join(parts) or f'none of {count}'}"


def _range(low: float, high: float) -> str:
    return f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"


def bounded(ledger: Ledger) -> list[str]:
    """The bounds on one victim, for the whole run and for the audited iterations."""
    return phrases("bounded", ledger=ledger, is_finite=math.isfinite(ledger.upper.epsilon))


def reconstruction(result: ReconstructionResult, index: int) -> str:
    """How close an inversion came to the data of the victim at a position of it."""
    return phrases("reconstruction", result=result, index=index)[0]


def membership(result: MembershipResult, ledger: Ledger) -> str:
    """How well a score separates members, and whether that contradicts the bound."""
    lower, upper = result.lower, ledger.upper
    comparable = result.comparable and upper.delta <= lower.delta
    is_defect = comparable and lower.epsilon > upper.epsilon
    return phrases("membership", result=result, upper=upper, is_defect=is_defect)[0]
