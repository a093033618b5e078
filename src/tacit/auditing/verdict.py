"""The verdict: what a manager can read, in words that a reviewer can check against the numbers beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit.auditing.scoring.lower_bound import verdict as compare_bounds
from tacit.auditing.symbolic.findings import QUESTIONS, Findings, Question

if TYPE_CHECKING:
    from tacit.auditing.attacks.memberships import Membership
    from tacit.auditing.audit import View
    from tacit.auditing.bounds.ledger import Ledger
    from tacit.auditing.scoring.reconstruction import ImageScores, ReconstructionScore

Headline = Literal["exposed", "partly exposed", "noisy", "nothing proved"]
ASSUMPTIONS = (
    "The adversary follows the protocol and knows the algorithm, its options, the graph and the model's architecture.",
    "Proved: exact statements are linear combinations of what was really said, each with its proof; what is called "
    "hidden is hidden from linear combinations only, and non-linear steps count as unknowns of their own.",
    "Bounded: two runs are neighbours if all data of one client differ; the bound holds for the iterations audited, "
    "not for those that follow.",
    "Measured: an attack that fails proves nothing; another one may succeed.",
    "Exact means in the algebra of what is sent; the rounding of messages is multiplied by the gain, at most.",
    "Keys of masks and private channels are not broken.",
)
ASKED = 12  # combinations looked at for the gain: what the rounding of messages is multiplied with
NOUNS: dict[Question, str] = {
    "gradient": "gradients",
    "update": "updates of several gradients",
    "difference": "gradient differences",
    "sum": "sums of gradients over the honest component",
    "model": "models",
    "image": "results of non-linear steps on gradients",
}


@dataclass(frozen=True)
class Verdict:
    """Three kinds of statements about one victim."""

    victim: int
    headline: Headline
    summary: str
    proved: list[str]
    bounded: list[str]
    measured: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "victim": self.victim,
            "headline": self.headline,
            "summary": self.summary,
            "proved": self.proved,
            "bounded": self.bounded,
            "measured": self.measured,
        }


def verdict(view: View, victim: int) -> Verdict:
    """The words for one victim of one adversary."""
    (found,) = [one for one in view.findings if one.victim == victim]
    headline, summary = _headline(found)
    (account,) = [one for one in view.ledgers if one.victim == victim]
    bounded = [f"{account.upper.words} for {account.upper.scope}: {account.upper.why}"]
    if account.alone is not None:
        bounded.append(f"for comparison, {account.alone.words}")
    measured = []
    for attack in view.attacks:
        for place, one in enumerate(attack.evidence):
            if one.victim == victim:
                measured.append(_inverted(attack.kind, attack.method, attack.score, place))
    for member in view.memberships:
        if member.victim == victim:
            measured.append(_member(member, account))
    return Verdict(
        victim,
        headline,
        summary,
        [_proved(found, q) for q in QUESTIONS if found.of(q).when],
        bounded,
        measured,
    )


def _member(member: Membership, account: Ledger) -> str:
    low, high = member.roc.interval
    words = f"membership by {member.score}: AUC {member.roc.auc:.3f} ({low:.3f} to {high:.3f})"
    lower, upper = member.lower, account.upper
    if lower.epsilon > 0:
        sure = f"{lower.confidence:.0%} sure"
        words += f"; if samples were independent trials, ε ≥ {lower.epsilon:.2g} would be {sure}"
    if member.comparable and upper.delta <= lower.delta and lower.epsilon > upper.epsilon:
        words += f": {compare_bounds(lower, upper.epsilon)}"
    return words


def in_short(found: Findings) -> str:
    """The most that is known of the victim's gradients, in a few words."""
    gradients = found.of("gradient")
    if gradients.places("exact"):
        return "gradients exactly"
    if found.of("update").places("exact"):
        return "updates of several gradients exactly"
    if found.of("difference").places("exact"):
        return "gradient differences exactly"
    if found.of("sum").places("exact"):
        return "the sum over honest clients exactly"
    if gradients.places("noisy"):
        return "gradients under noise"
    if steps := _image_steps(found):
        return f"what {steps} made of gradients"
    return "nothing by linear means"


def _image_steps(found: Findings) -> str:
    """The non-linear steps whose results on the victim's gradients are exactly known."""
    exact = found.of("image").places("exact")
    return ", ".join(sorted({found.images[place].tag for place in exact}))


def _headline(found: Findings) -> tuple[Headline, str]:
    who, victim = found.knowledge.adversary, found.victim
    gradients = found.of("gradient")
    if exact := gradients.places("exact"):
        return (
            "exposed",
            f"{who} computes {len(exact)} of {len(gradients.when)} gradients of client {victim} exactly",
        )
    if exact := found.of("update").places("exact"):
        return (
            "exposed",
            f"{who} computes {len(exact)} of {len(found.updates)} updates of client {victim} exactly, each the sum of "
            "the gradients of an iteration",
        )
    noise = ""
    if noisy := gradients.places("noisy"):
        least = math.sqrt(float(np.min(gradients.variances[noisy])))
        noise = f"; gradients only with noise of deviation {least:.3g} or more"
    if exact := found.of("difference").places("exact"):
        return (
            "partly exposed",
            f"{who} computes {len(exact)} gradient differences of client {victim} exactly{noise}",
        )
    if len(found.component) > 1 and (exact := found.of("sum").places("exact")):
        others = len(found.component) - 1
        return (
            "partly exposed",
            f"{who} computes the sum of the gradients of client {victim} and {others} others exactly{noise}",
        )
    if noise:
        return (
            "noisy",
            f"{who} computes no gradient, difference or sum of client {victim} exactly{noise}",
        )
    if steps := _image_steps(found):
        return (
            "partly exposed",
            f"{who} knows exactly what the non-linear step {steps} made of gradients of client {victim}; how much "
            "that tells depends on the step",
        )
    return (
        "nothing proved",
        f"{who} computes no gradient of client {victim} by linear combinations; that it cannot otherwise is not proved",
    )


def _proved(found: Findings, question: Question) -> str:
    series = found.of(question)
    exact, noisy, all_of_them = series.places("exact"), series.places("noisy"), len(series.when)
    parts = []
    if exact:
        answers = [series.ask(place) for place in exact[:ASKED]]
        gains = [answer.combination.gain for answer in answers if answer.combination is not None]
        parts.append(
            f"{len(exact)} of {all_of_them} exactly (gain {_range(min(gains), max(gains))})"
        )
    if noisy:
        deviations = np.sqrt(series.variances[noisy])
        parts.append(
            f"{len(noisy)} with noise of deviation {_range(deviations.min(), deviations.max())}"
        )
    return f"{NOUNS[question]}: {', '.join(parts) or f'none of {all_of_them}'}"


def _range(low: float, high: float) -> str:
    return f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"


def _inverted(kind: str, method: str, score: ReconstructionScore, place: int) -> str:
    def numbers(scores: ImageScores) -> str:
        similar = "" if scores.ssim is None else f", SSIM {float(scores.ssim[place]):.3f}"
        return f"MSE {float(scores.mse[place]):.3g}{similar}"

    return (
        f"inversion of a {kind} ({method}): {numbers(score.attack)}; prior mean {numbers(score.prior_mean)}, "
        f"same class {numbers(score.same_class)}: {score.levels[place]}"
    )
