"""What is proved, bounded and measured about one victim, in words."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from tacit.auditing.attacks.membership_attacks import MembershipResult
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.scoring.reconstruction import ImageScores
from tacit.auditing.symbolic.leakage import Leakage, Question, format_terms

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


def image_steps(leakage: Leakage) -> str:
    """The non-linear steps with exactly known results on the victim's gradients."""
    exact = leakage.of("image").indices("exact")
    return ", ".join(sorted({leakage.images[index].tag for index in exact}))


def headline(leakage: Leakage) -> tuple[Headline, str]:
    who, victim = leakage.knowledge.adversary, leakage.victim_text
    if leakage.strongest is None:
        known = f"{who} computes no gradient of {victim} by linear combinations"
        return "nothing proved", f"{known}; other attacks are not ruled out"
    question, _ = leakage.strongest
    series = leakage.of(question)
    exact, count = len(series.indices("exact")), len(series.when)
    computed = f"{who} computes {exact} of {count} {NOUNS[question]} of {victim} exactly"
    if question == "gradient" and exact:
        return "exposed", computed
    if question == "update":
        return "exposed", f"{computed}; an update is the sum of the gradients of one iteration"
    if question == "image":
        known = f"{who} knows the output of {image_steps(leakage)} for gradients of {victim}"
        return "partly exposed", f"{known} exactly; what it reveals depends on these steps"
    noise = ""
    gradients = leakage.of("gradient")
    if noisy := gradients.indices("noisy"):
        least = math.sqrt(float(np.min(gradients.variances[noisy])))
        noise = f"; gradients only with noise of standard deviation {least:.3g} or more"
    if question == "difference":
        return "partly exposed", computed + noise
    if question in ("combination", "group"):
        shown = format_terms(*leakage.terms(question, series.indices("exact")[0]), who.names)
        whose = f"gradients of {victim}" + (" and other clients" if question == "group" else "")
        known = f"{who} computes {exact} combination{'s' * (exact > 1)} of {whose} exactly"
        return "partly exposed", f"{known}, such as {shown}{noise}"
    if question == "sum":
        count = len(leakage.honest_component) - 1
        others = f"{count} other client{'s' if count > 1 else ''}"
        known = f"{who} computes the sum of the gradients of {victim} and {others} exactly"
        return "partly exposed", known + noise
    return "noisy", f"{who} computes no gradient, difference or sum of {victim} exactly{noise}"


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
    upper = ledger.upper
    bounded = [f"{upper.statement} for {ledger.scope}: {upper.why}"]
    if ledger.whole_run is not None:
        whole = ledger.whole_run
        scope = f"the whole run of {ledger.run_steps:,} iterations"
        bounded.insert(0, f"{whole.statement} for {scope}: {whole.why}")
        if (sample := ledger.per_sample) is not None and sample.epsilon < whole.epsilon:
            bounded.insert(
                1, f"{sample.statement} for {scope}, if one sample is replaced: {sample.why}"
            )
    elif ledger.run_steps is not None and math.isfinite(upper.epsilon):
        bounded.append(f"no bound for the whole run of {ledger.run_steps:,} iterations")
    if ledger.single_message is not None:
        bounded.append(f"for comparison, {ledger.single_message}")
    return bounded


def reconstruction(result: ReconstructionResult, index: int) -> str:
    def numbers(scores: ImageScores) -> str:
        ssim = "" if scores.ssim is None else f", SSIM {float(scores.ssim[index]):.3f}"
        return f"MSE {float(scores.mse[index]):.3g}{ssim}"

    score = result.score
    baselines = f"prior mean {numbers(score.prior_mean)}, same class {numbers(score.same_class)}"
    article = "an " if result.kind[0] in "aeiou" else "a "
    what = ("" if result.kind == "everything known" else article) + result.kind
    attack = f"inversion of {what} ({result.method}): {numbers(score.attack)}"
    assumption = result.evidence[index].assumption
    assumed = f"; assuming that {assumption}" if assumption else ""
    return f"{attack}; {baselines}: {score.levels[index]}{_stopped(result)}{assumed}"


def membership(result: MembershipResult, ledger: Ledger) -> str:
    low, high = result.roc.interval
    text = f"membership by {result.score}: AUC {result.roc.auc:.3f} ({low:.3f} to {high:.3f})"
    lower, upper = result.lower, ledger.upper
    if lower.epsilon > 0:
        text += f"; ε ≥ {lower.epsilon:.2g} with {lower.confidence:.0%} confidence"
        text += " if samples were independent trials"
    if result.comparable and upper.delta <= lower.delta and lower.epsilon > upper.epsilon:
        text += f": a defect of the analysis: {lower}, more than the claimed "
        text += f"epsilon <= {upper.epsilon:.4g}."
    return text + _stopped(result)


def _stopped(result: ReconstructionResult | MembershipResult) -> str:
    return " (stopped by the time budget)" if result.cut_short else ""
