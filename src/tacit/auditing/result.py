"""What an audit finds: results and verdicts, which a reviewer can check against the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tacit.auditing.active.gains import Gain, gain_summary
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.membership_attacks import MembershipResult
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.bounds.coalition_bounds import CoalitionBound
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.canaries.client import ClientCanaries
from tacit.auditing.canaries.gradient import GradientCanaries
from tacit.auditing.canaries.sample import SampleCanaries
from tacit.auditing.scoring.reconstruction import ImageScores
from tacit.auditing.sum_verdicts import sum_headline, sum_summary
from tacit.auditing.symbolic.exposure import Exposure
from tacit.auditing.symbolic.leakage import QUESTIONS, Leakage, Question, format_terms
from tacit.core.version import __version__
from tacit.simulation import Setting

Headline = Literal["exposed", "partly exposed", "noisy", "noisy sum", "nothing proved"]
ASSUMPTIONS = (
    "The adversary follows the protocol, unless it is malicious. It knows the algorithm, its "
    "options, the graph and the model's architecture.",
    "Malicious clients wait for the messages of an iteration before they send theirs. Bounds "
    "against them hold whatever they send; attacks are of the behaviours that were simulated.",
    "Proved: exact statements are linear combinations of messages, each with its proof, closed "
    "under steps that are declared deterministic. Hidden means hidden from these; results of other "
    "non-linear steps count as unknowns.",
    "Bounded: neighbouring runs differ in all data of one client, or in one sample if a bound is "
    "per sample. A bound covers the iterations it names and no later ones.",
    "The algorithm is linear where its text says so. That was checked on random numbers in the "
    "audited iterations, not proved.",
    "Measured: a failed attack proves nothing; another attack may succeed.",
    "Exact means exact in the algebra of messages. Rounding errors of messages grow by at most the "
    "gain.",
    "Keys of masks and private channels stay secret.",
)
MOST_SENTENCES = 4  # of a summary
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


@dataclass(frozen=True)
class Verdict:
    """Statements about one victim: a headline, a summary, and three kinds of evidence."""

    victim: int
    headline: Headline
    summary: str
    proved: list[str]
    bounded: list[str]
    measured: list[str]

    @classmethod
    def of(
        cls,
        leakage: Leakage,
        ledger: Ledger,
        reconstructions: Sequence[ReconstructionResult],
        memberships: Sequence[MembershipResult],
        canaries: Sequence[ClientCanaries | GradientCanaries | SampleCanaries] = (),
    ) -> Verdict:
        """The verdict on one victim; attacks on other victims are ignored."""
        victim, upper = leakage.victim, ledger.upper
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
        measured = [str(found) for found in canaries if found.victim == victim]
        measured += [
            _reconstruction_statement(result, index)
            for result in reconstructions
            for index, evidence in enumerate(result.evidence)
            if evidence.victim == victim
        ]
        measured += [_membership_statement(m, ledger) for m in memberships if m.victim == victim]
        proved = [_proved_statement(leakage, q) for q in QUESTIONS if leakage.of(q).when]
        found = _headline(leakage)
        if ledger.only_sum_of is not None:
            knowledge = leakage.knowledge
            found = sum_headline(knowledge.adversary, ledger, knowledge.run.clients)
        return cls(victim, *found, proved, bounded, measured)


@dataclass(frozen=True, eq=False)
class AdversaryResult:
    """What one adversary learns: proved, bounded and measured."""

    adversary: Adversary
    leakage: list[Leakage]  # per honest victim
    ledgers: list[Ledger]  # per honest victim
    reconstructions: list[ReconstructionResult]
    memberships: list[MembershipResult]
    canaries: list[ClientCanaries] = field(default_factory=list)  # per victim with a bound
    gradient_canaries: list[GradientCanaries] = field(default_factory=list)  # of sums over samples
    sample_canaries: list[SampleCanaries] = field(default_factory=list)  # if asked for

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """One per honest victim."""
        pairs = zip(self.leakage, self.ledgers, strict=True)
        canaries: list[ClientCanaries | GradientCanaries | SampleCanaries]
        canaries = [*self.canaries, *self.gradient_canaries, *self.sample_canaries]
        return [
            Verdict.of(*pair, self.reconstructions, self.memberships, canaries) for pair in pairs
        ]

    def as_dict(self) -> dict[str, Any]:
        return {
            "adversary": str(self.adversary),
            "verdict": [asdict(verdict) for verdict in self.verdicts],
            "proved": [leakage.as_dict() for leakage in self.leakage],
            "bounded": [ledger.as_dict() for ledger in self.ledgers],
            "measured": {
                "inversion": [result.as_dict() for result in self.reconstructions],
                "membership": [result.as_dict() for result in self.memberships],
                "client_canaries": [found.as_dict() for found in self.canaries],
                "gradient_canaries": [found.as_dict() for found in self.gradient_canaries],
                "sample_canaries": [found.as_dict() for found in self.sample_canaries],
            },
        }


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What leaks in a run. `print(audit)` shows the verdicts, without data of victims."""

    setting: Setting
    iterations: int
    victims: list[int]
    results: list[AdversaryResult]
    exposure: Exposure | None
    notes: list[str] = field(default_factory=list)  # what was not measured, and why
    remarks: list[str] = field(default_factory=list)  # on coalitions, and on what is not linear
    gains: list[Gain] = field(default_factory=list)  # of malicious clients over passive ones
    coalitions: list[CoalitionBound] = field(default_factory=list)  # if all learn is noisy sums

    def __repr__(self) -> str:
        lines = [f"Audit({self.setting.algorithm.name}, {self.iterations} iterations)"]
        for result in self.results:
            for verdict, ledger in zip(result.verdicts, result.ledgers, strict=True):
                bound = ledger.upper if ledger.whole_run is None else ledger.whole_run
                lines.append(f"  {verdict.headline}: {verdict.summary}; {bound.statement}")
        return "\n".join(lines)

    @property
    def summary(self) -> str:
        """The worst that was found, in one sentence for readers who do not want the details."""
        return f"{_plain_summary(self)} {gain_summary(self.gains)}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in audit.json."""
        setting = self.setting
        return {
            "version": __version__,
            "summary": self.summary,
            "algorithm": setting.algorithm.name,
            "options": repr(setting.algorithm),
            "clip": None if setting.task.clip is None else asdict(setting.task.clip),
            "batch_size": setting.task.batch_size,
            "graph": setting.graph.describe(),
            "clients": setting.graph.clients,
            "parameters": setting.task.parameters,
            "seed": setting.seed,
            "iterations": self.iterations,
            "victims": self.victims,
            "adversaries": [result.as_dict() for result in self.results],
            "active": [gain.as_dict() for gain in self.gains],
            "coalitions": [one.as_dict() for one in self.coalitions],
            "exposure": None if self.exposure is None else self.exposure.as_dict(),
            "assumptions": list(ASSUMPTIONS),
            "notes": self.notes,
            "remarks": self.remarks,
        }


def _plain_summary(audit: Audit) -> str:
    every = [(result, ledger) for result in audit.results for ledger in result.ledgers]
    if all(ledger.only_sum_of is not None for _, ledger in every):
        shared = audit.setting.graph.clients, audit.iterations, audit.setting.algorithm
        sentences = [
            sum_summary(result.adversary, ledger, *shared, result.gradient_canaries)
            for result, ledger in every
        ]
        return " ".join(dict.fromkeys(sentences[:MOST_SENTENCES]))
    ranks = {"exposed": 3, "partly exposed": 2, "noisy": 1, "noisy sum": 0, "nothing proved": 0}
    found = []
    for result in audit.results:
        for verdict, ledger in zip(result.verdicts, result.ledgers, strict=True):
            rank = 4 if _is_recovered(result, verdict.victim) else ranks[verdict.headline]
            found.append((rank, -_effort(result.adversary), result, verdict, ledger))
    # The worst finding; of equal ones, that of the adversary that needs the least.
    rank, _, result, verdict, ledger = max(found, key=lambda one: one[:2])
    who, victim = _who(result.adversary), f"client {verdict.victim}"
    if rank == 4:
        return f"{who} can reconstruct training data of {victim}."
    if rank == 3:
        return f"{who} can compute gradients of {victim} exactly; data can be read from them."
    if rank == 2:
        return f"{who} can compute parts of what the gradients of {victim} say, exactly."
    bound = ledger.whole_run or ledger.upper
    if math.isinf(bound.epsilon):
        return f"Nothing exact was found about {victim}, and nothing is guaranteed."
    steps = audit.iterations if ledger.whole_run is None else ledger.run_steps
    which = "first" if ledger.whole_run is None else "whole run of"
    scope = f"for the {which} {steps:,} iterations"
    return f"Nothing exact is known about {victim}: {bound.statement} {scope}."


def _is_recovered(result: AdversaryResult, victim: int) -> bool:
    """Whether an attack recovered data of a victim."""
    return any(
        attack.score.levels[index] == "recovered"
        for attack in result.reconstructions
        for index, evidence in enumerate(attack.evidence)
        if evidence.victim == victim
    )


def _effort(adversary: Adversary) -> float:
    """How hard it is to be this adversary: to be one client is easier than to tap all edges."""
    return len(adversary.corrupt) or 1.5


def _who(adversary: Adversary) -> str:
    """An adversary in words."""
    count = len(adversary.corrupt)
    if adversary.is_server:
        return "The server"
    if count == 0:
        return "An eavesdropper"
    return "One client" if count == 1 else f"{count} clients together"


def strongest_leak(leakage: Leakage) -> str:
    """The most that the adversary learns about the victim's gradients, in a few words."""
    if leakage.strongest is None:
        return "no linear leak"
    question, status = leakage.strongest
    if question == "image":
        return f"output of {_image_steps(leakage)}"
    return f"{status} {NOUNS[question]}"


def _image_steps(leakage: Leakage) -> str:
    """The non-linear steps with exactly known results on the victim's gradients."""
    exact = leakage.of("image").indices("exact")
    return ", ".join(sorted({leakage.images[index].tag for index in exact}))


def _headline(leakage: Leakage) -> tuple[Headline, str]:
    who, victim = leakage.knowledge.adversary, f"client {leakage.victim}"
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
        known = f"{who} knows the output of {_image_steps(leakage)} for gradients of {victim}"
        return "partly exposed", f"{known} exactly; what it reveals depends on these steps"
    noise = ""
    gradients = leakage.of("gradient")
    if noisy := gradients.indices("noisy"):
        least = math.sqrt(float(np.min(gradients.variances[noisy])))
        noise = f"; gradients only with noise of standard deviation {least:.3g} or more"
    if question == "difference":
        return "partly exposed", computed + noise
    if question in ("combination", "group"):
        shown = format_terms(*leakage.terms(question, series.indices("exact")[0]))
        whose = f"gradients of {victim}" + (" and other clients" if question == "group" else "")
        known = f"{who} computes {exact} combination{'s' * (exact > 1)} of {whose} exactly"
        return "partly exposed", f"{known}, such as {shown}{noise}"
    if question == "sum":
        count = len(leakage.honest_component) - 1
        others = f"{count} other client{'s' if count > 1 else ''}"
        known = f"{who} computes the sum of the gradients of {victim} and {others} exactly"
        return "partly exposed", known + noise
    return "noisy", f"{who} computes no gradient, difference or sum of {victim} exactly{noise}"


def _proved_statement(leakage: Leakage, question: Question) -> str:
    series = leakage.of(question)
    exact, noisy, count = series.indices("exact"), series.indices("noisy"), len(series.when)
    parts = []
    if exact:
        answers = [series.answer(index) for index in exact[:GAINS]]
        gains = [answer.combination.gain for answer in answers if answer.combination is not None]
        parts.append(f"{len(exact)} of {count} exactly (gain {_range(min(gains), max(gains))})")
    if noisy:
        deviations = np.sqrt(series.variances[noisy])
        noise = _range(deviations.min(), deviations.max())
        parts.append(f"{len(noisy)} with noise of standard deviation {noise}")
    return f"{NOUNS[question]}: {', '.join(parts) or f'none of {count}'}"


def _range(low: float, high: float) -> str:
    return f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"


def _reconstruction_statement(result: ReconstructionResult, index: int) -> str:
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


def _membership_statement(result: MembershipResult, ledger: Ledger) -> str:
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
