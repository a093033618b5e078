"""Is it safe to take part? The answer of an audit, for people who do not read proofs.

The worst finding decides: about any victim, of any adversary, and of any client in the heat map.
Without a proof the answer is never yes. "Not proven" is an answer, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import IDEAL_NOISE
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.findings import AdversaryResult, Findings, Verdict
from tacit.auditing.scoring.reconstruction import LEVELS as RECONSTRUCTIONS
from tacit.auditing.statements import NOUNS, image_steps
from tacit.auditing.sum_verdicts import promise_of
from tacit.auditing.symbolic.exposure import LEVELS
from tacit.auditing.symbolic.leakage import Leakage
from tacit.core.notebooks import html_table
from tacit.privacy.interpretation import SCALE, Strength, in_short, in_words, strength
from tacit.privacy.planning import round_up
from tacit.tasks.parts import Parts

# From the worst to the best.
Level = Literal["no", "leaks", "unproven", "weak", "proven"]
DETECTED = 0.6  # AUC, at the lower end of its interval
GRADIENTS = "A gradient is computed from training data, and data can be read from it"


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer, what it rests on, and what it leaves open.

    Attributes:
        level: "no" if data or gradients leak exactly, "leaks" if parts of them do, "unproven"
            without a guarantee that means something, "weak" or "proven" with one.
        verdict: A few words.
        reason: The finding that decided, in one sentence.
        learns: What each adversary gets, one sentence or two each.
        guarantee: What ε means, or why there is none.
        changes: What would change the answer; see `tacit.experiment.alternatives`.
        limits: What was examined and what was not.
    """

    level: Level
    verdict: str
    reason: str
    learns: list[str]
    guarantee: list[str]
    limits: list[str]
    changes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        return f"Answer({self.level!r}, {self.verdict!r})"

    @property
    def _parts(self) -> dict[str, list[str]]:
        parts = {
            "What others can learn": self.learns,
            "The guarantee": self.guarantee,
            "What would change the answer": self.changes,
            "What was examined": self.limits,
        }
        return {title: sentences for title, sentences in parts.items() if sentences}

    def __str__(self) -> str:
        lines = [f"Is it safe to take part? {self.verdict}", self.reason]
        for title, sentences in self._parts.items():
            lines += [f"{title}:", *(f"  - {sentence}" for sentence in sentences)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The answer and what it rests on, for notebooks."""
        rows = [[title, " ".join(sentences)] for title, sentences in self._parts.items()]
        title = f"Is it safe to take part? {self.verdict}"
        return html_table(title, rows=[["Why", self.reason], *rows])


@dataclass(frozen=True, eq=False)
class Finding:
    """What was found about one victim of one adversary."""

    result: AdversaryResult
    verdict: Verdict
    leakage: Leakage
    ledger: Ledger

    @property
    def reconstructions(self) -> list[str]:
        """How close each reconstruction of the victim's data came."""
        return [
            attack.score.levels[index]
            for attack in self.result.reconstructions
            for index, evidence in enumerate(attack.evidence)
            if evidence.victim == self.verdict.victim
        ]

    @property
    def is_recovered(self) -> bool:
        """Whether an attack rebuilt at least one sample."""
        return any(level in ("recovered", "recovered in part") for level in self.reconstructions)

    @property
    def who(self) -> str:
        return describe_adversary(self.result.adversary)

    @property
    def victim(self) -> str:
        return self.leakage.victim_text

    @property
    def is_proof(self) -> bool:
        """Whether the bound covers the whole run and noise as computers add it."""
        ledger = self.ledger
        covers_run = ledger.whole_run is not None or ledger.run_steps is None
        return covers_run and IDEAL_NOISE not in ledger.best.assumptions


def answer_of(audit: Findings) -> Answer:
    """The answer of an audit, without what would change it."""
    findings = list(_findings(audit))
    level, verdict, reason = _decide(audit, findings)
    return Answer(
        level,
        verdict,
        reason,
        [_learns(finding) for finding in findings] + _heat_map(audit) + _gains(audit),
        _guarantee(audit, findings),
        _limits(audit),
    )


def describe_adversary(adversary: Adversary) -> str:
    """An adversary in plain words, to start a sentence with.

    Example:
        >>> describe_adversary(Adversary.parse("curious(1,4)+eavesdropper"))
        'Clients 1, 4 and an eavesdropper together'
    """
    members = [adversary.name_of(client) for client in sorted(adversary.corrupt)]
    if adversary.listens and members:
        members.append("an eavesdropper")
    if adversary.is_server:
        return "The server"
    if not members:
        return "An eavesdropper"
    who = f"{'client' if len(adversary.corrupt) == 1 else 'clients'} {join(members)}"
    who = f"{who} together" if len(members) > 1 else who
    return f"Deviating {who}" if adversary.malicious else _capital(who)


def _findings(audit: Findings) -> Iterator[Finding]:
    for result in audit.results:
        rows = zip(result.verdicts, result.leakage, result.ledgers, strict=True)
        yield from (Finding(result, *row) for row in rows)


def _decide(audit: Findings, findings: list[Finding]) -> tuple[Level, str, str]:
    if defect := next((one for one in findings if _has_defect(one)), None):
        reason = (
            f"A measurement contradicts the proved bound on {defect.victim}: "
            "either the implementation or the analysis has a defect."
        )
        return "no", "No: the guarantee was refuted", reason
    if found := next((one for one in findings if one.is_recovered), None):
        reason = f"{found.who} rebuilt training data of {found.victim} in an attack."
        return "no", "No: training data can be rebuilt", reason
    if gain := next((one for one in audit.gains if one.gains_samples), None):
        return "no", "No: training data can be rebuilt", f"{_capital(gain.statement)}."
    headlines = {finding.verdict.headline: finding for finding in reversed(findings)}
    worst = LEVELS[0 if audit.exposure is None else int(audit.exposure.levels.max())]
    if found := headlines.get("exposed"):
        reason = f"{found.who} can compute gradients of {found.victim} exactly."
        return "no", "No: gradients leak exactly", f"{reason} {GRADIENTS}."
    if worst == "gradient":
        reason = f"Some clients compute gradients of others exactly. {GRADIENTS}."
        return "no", "No: gradients leak exactly", reason
    if found := headlines.get("partly exposed"):
        known = describe_knowledge(found.leakage)
        return "leaks", "Not safe as it is: parts leak exactly", f"{found.who} {known}."
    if worst in ("difference", "sum"):
        reason = f"Some clients compute {worst}s of gradients of others exactly."
        return "leaks", "Not safe as it is: parts leak exactly", reason
    if broken := _broken_promise(audit, findings):
        return broken
    judged = _judge_guarantee(audit, findings)
    if judged[0] == "unproven" and (detected := _detected(findings)) is not None:
        return "leaks", "Not safe as it is: membership can be detected", detected
    return judged


def _detected(findings: list[Finding]) -> str | None:
    """The best membership attack, in one sentence; None if none is clearly better than guessing."""
    scores = [
        (attack.roc.interval[0], attack.roc.auc, finding)
        for finding in findings
        for attack in finding.result.memberships
        if attack.victim == finding.verdict.victim
    ]
    low, auc, found = max(scores, key=lambda one: one[0], default=(0.0, 0.0, None))
    if found is None or low < DETECTED:
        return None
    return (
        f"In an attack {_lower(found.who)} told training samples of {found.victim} "
        f"from others with an AUC of {auc:.2f}; 0.5 is guessing."
    )


def _broken_promise(audit: Findings, findings: list[Finding]) -> tuple[Level, str, str] | None:
    """The answer if an adversary may learn more than was promised; None if all is as promised."""
    budget = audit.setting.algorithm.budget
    bounded = [one for one in findings if _is_bounded(one)]
    if budget is None or not bounded:
        return None
    worst = max(bounded, key=lambda one: one.ledger.best.epsilon)
    epsilon, clients = worst.ledger.best.epsilon, audit.setting.graph.clients
    if epsilon <= budget.epsilon:
        return None
    alone = worst.ledger.only_sum_of
    honest = clients - len(worst.result.adversary.corrupt) if alone is None else len(alone)
    reason = (
        f"Against {_lower(worst.who)} no more is proved than ε = {_number(epsilon)} per "
        f"{worst.ledger.unit} of {worst.victim}. {promise_of(audit.setting.algorithm, clients)}"
    )
    if honest < budget.honest:
        reason += f" Here {honest} {'is' if honest == 1 else 'are'}."
    return "no", f"No: ε is above the promised {budget.epsilon:g}", reason


def _judge_guarantee(audit: Findings, findings: list[Finding]) -> tuple[Level, str, str]:
    """The answer if nothing exact is known: it depends on the guarantee."""
    nothing = "No gradient was found to be computable exactly"
    worst = max(findings, key=lambda one: one.ledger.best.epsilon)
    bound, against = worst.ledger.best, f"against {_lower(worst.who)}"
    if math.isinf(bound.epsilon):
        return "unproven", "Not proven", f"{nothing}, but nothing is guaranteed {against}."
    found = strength(bound.epsilon)
    if found == "vacuous":
        reason = f"{nothing}, but the guarantee {against} is vacuous: ε = {_number(bound.epsilon)}."
        return "unproven", "Not proven: ε is vacuous", reason
    if not worst.is_proof or not all(one.is_proof for one in findings):
        return "unproven", "Not proven for this run", f"{nothing}. {_why_no_proof(audit, findings)}"
    if (gap := _gap(audit, findings)) is not None:
        verdict, why = gap
        return "unproven", verdict, f"{nothing} from messages. {why}"
    title: dict[Strength, tuple[Level, str]] = {
        "strong": ("proven", "Yes, with a strong guarantee"),
        "moderate": ("proven", "Yes, within a moderate guarantee"),
        "weak": ("weak", "Only with a weak guarantee"),
    }
    level, verdict = title[found]
    known = worst.ledger.whole_run is not None
    scope = "the whole run" if known else f"{audit.iterations} iterations"
    reason = (
        f"It is proved from the messages that {_lower(worst.who)} can learn at most "
        f"ε = {_number(bound.epsilon)} per {worst.ledger.unit} of {worst.victim} in "
        f"{scope}; no adversary of this audit learns more."
    )
    promise = promise_of(audit.setting.algorithm, audit.setting.graph.clients)
    return level, verdict, f"{reason} {promise}".rstrip()


def _gap(audit: Findings, findings: list[Finding]) -> tuple[str, str] | None:
    """What bounds of messages leave out, as a verdict and a sentence; None if nothing."""
    task, graph = audit.setting.task, audit.setting.graph
    if task.disclosure:
        why = (
            f"But what is shared before training has no noise, and no ε covers it: "
            f"{task.disclosure}."
        )
        return "Not proven: what is shared before training has no noise", why
    edges = graph.edges.tolist()
    for victim in audit.victims:
        neighbours = {b if a == victim else a for a, b in edges if victim in (a, b)}
        seen = [one for one in findings if one.verdict.victim == victim]
        if not any(one.result.adversary.corrupt & neighbours for one in seen):
            why = (
                f"But what neighbours of client {audit.name_of(victim)} can learn was not bounded."
            )
            return "Not proven against neighbours", why
    if audit.setting.algorithm.needs_server and not any(
        one.result.adversary.is_server for one in findings
    ):
        return "Not proven against the server", "But what the server can learn was not bounded."
    unit, parts = findings[0].ledger.unit, task.parts
    units = task.clients
    if unit == "sample" and isinstance(parts, Parts):
        units = int(parts.sizes.sum())
    delta = max(one.ledger.best.delta for one in findings)
    if delta * units >= 1:
        why = f"But δ = {delta:g} is not below 1/{units:,}, and would allow to publish one {unit}."
        return "Not proven: δ is too large", why
    return None


def _why_no_proof(audit: Findings, findings: list[Finding]) -> str:
    missing = next(one for one in findings if not one.is_proof)
    if IDEAL_NOISE in missing.ledger.best.assumptions:
        return (
            "The bound is for ideal real-valued noise. Noise in floating point has gaps, so it "
            "does not hold for this implementation."
        )
    steps = missing.ledger.run_steps or 0
    return f"The bound covers {audit.iterations} of {steps:,} iterations; the others have none."


def _has_defect(finding: Finding) -> bool:
    result = finding.result
    return any(
        one.is_defect and one.victim == finding.verdict.victim
        for one in (*result.canaries_of("client"), *result.canaries_of("gradient"))
    )


def _learns(finding: Finding) -> str:
    """What an adversary gets, and what attacks made of it."""
    known = describe_knowledge(finding.leakage)
    if finding.ledger.only_sum_of is not None:
        members = finding.ledger.only_sum_of
        known = f"can learn nothing but noisy sums over {len(members)} clients"
        if len(members) == 1:
            alone = finding.result.adversary.name_of(members[0])
            known = (
                f"can see noisy sums of client {alone} alone: all its neighbours are in the "
                "coalition, so only its own noise protects it"
            )
    return f"{finding.who} {known}.{_attacks(finding)}"


def describe_knowledge(leakage: Leakage) -> str:
    """The most revealing knowledge of an adversary, as the end of a sentence."""
    victim = leakage.victim_text
    if leakage.strongest is None:
        return (
            f"cannot compute gradients of {victim} by linear combinations; other attacks are not "
            "ruled out"
        )
    question, status = leakage.strongest
    series = leakage.of(question)
    share = f"{len(series.indices('exact'))} of {len(series.when)}"
    if status == "noisy":
        variances = series.variances[series.indices("noisy")]
        least = math.sqrt(float(np.min(variances)))
        return f"can see gradients of {victim} only with noise of deviation {least:.3g} or more"
    match question:
        case "gradient" | "update":
            return f"can compute {share} {NOUNS[question]} of {victim} exactly"
        case "difference":
            return f"can compute exactly how gradients of {victim} change between batches ({share})"
        case "sum":
            others = len(leakage.honest_component) - 1
            return (
                f"can compute the exact sum of the gradients of {victim} and of {others} other"
                f"{'s' * (others > 1)} ({share}), but no gradient alone by linear combinations"
            )
        case "image":
            return (
                f"can know the results of {image_steps(leakage)} on gradients of {victim} exactly"
            )
        case _:
            whose = f"{victim} and other clients" if question == "group" else victim
            return f"can compute combinations of gradients of {whose} exactly"


def _attacks(finding: Finding) -> str:
    """What reconstruction and membership attacks achieved, or that there were none."""
    result, victim = finding.result, finding.verdict.victim
    levels = finding.reconstructions
    text = ""
    if finding.is_recovered:
        text = " An attack rebuilt its training data from that."
    elif levels:
        best = max(levels, key=RECONSTRUCTIONS.index)
        which = "The" if len(levels) == 1 else f"The best of {len(levels)}"
        text = f" {which} reconstruction attack{'s' * (len(levels) > 1)} was {best}."
    scores = [one.roc for one in result.memberships if one.victim == victim]
    if scores:
        best_score = max(scores, key=lambda roc: roc.auc)
        low, high = best_score.interval
        text += f" The best membership attack reached an AUC of {best_score.auc:.2f} "
        text += f"({low:.2f} to {high:.2f}; 0.5 is guessing)."
    return text


def _heat_map(audit: Findings) -> list[str]:
    """How many pairs of clients leak, from the map of all pairs."""
    if audit.exposure is None:
        return []
    levels = audit.exposure.levels
    pairs = int((levels >= 0).sum())
    exact = int((levels == LEVELS.index("gradient")).sum())
    parts = int(((levels > LEVELS.index("noisy")) & (levels < LEVELS.index("gradient"))).sum())
    if not exact and not parts:
        return ["No single client can compute gradients of another, or sums of them, exactly."]
    found = [f"exact gradients in {exact}"] * (exact > 0)
    found += [f"exact sums, differences or combinations of gradients in {parts}"] * (parts > 0)
    return [f"Each client about each other, {pairs} pairs: {', '.join(found)}."]


def _gains(audit: Findings) -> list[str]:
    return [f"{_capital(gain.statement)}." for gain in audit.gains]


def _guarantee(audit: Findings, findings: list[Finding]) -> list[str]:
    """The guarantee against each adversary: the worst in words, the others in short."""
    without: dict[str, list[str]] = {}
    bounded: dict[tuple[float, float], list[Finding]] = {}
    for finding in findings:
        best = finding.ledger.best
        if math.isinf(best.epsilon):
            # The formula is in the tables and proofs.
            reason = best.why.split(": ")[0] if "·" in best.why else best.why
            without.setdefault(reason, []).append(_lower(finding.who))
        else:
            bounded.setdefault((best.epsilon, best.delta), []).append(finding)
    sentences = [f"Nothing against {join(who)}: {why}." for why, who in without.items()]
    for (epsilon, delta), several in sorted(bounded.items(), key=lambda item: -item[0][0]):
        who = join([_lower(one.who) for one in several])
        rounded, unit = _rounded(epsilon), several[0].ledger.unit
        if rounded == max(_rounded(value) for value, _ in bounded):
            sentences.append(f"Against {who}: {in_words(rounded, delta, unit)}")
        else:
            sentences.append(f"Against {who}: {in_short(rounded, delta)}")
    sentences += _coalitions(audit)
    if bounded:
        sentences.append(SCALE)
        known = [finding for finding in findings if _is_bounded(finding)]
        if not all(finding.is_proof for finding in known):
            sentences.append(_why_no_proof(audit, known))
    return sentences


def _coalitions(audit: Findings) -> list[str]:
    """The worst ε of coalitions of each size, if noisy sums are all that they learn."""
    worst: dict[int, float] = {}
    for one in audit.coalitions:
        size = len(one.example)
        worst[size] = max(worst.get(size, 0.0), one.bound.epsilon)
    sizes: dict[str, list[int]] = {}
    for size, epsilon in sorted(worst.items()):
        sizes.setdefault(_number(epsilon), []).append(size)
    listed = [
        f"{those[0]}{f' to {those[-1]}' if len(those) > 1 else ''} "
        f"client{'s' * (those[-1] > 1)}: ε = {epsilon}"
        for epsilon, those in sizes.items()
    ]
    return [f"Proved against the worst coalition of {'; of '.join(listed)}."] if listed else []


def _is_bounded(finding: Finding) -> bool:
    return math.isfinite(finding.ledger.best.epsilon)


def _limits(audit: Findings) -> list[str]:
    clients = audit.setting.graph.clients
    victims = join([audit.name_of(victim) for victim in audit.victims])
    subject = f"client{'s' * (len(audit.victims) > 1)} {victims}"
    who = join(
        list(dict.fromkeys(_lower(describe_adversary(one.adversary)) for one in audit.results))
    )
    examined = f"Examined: what {who} can learn about {subject} "
    examined += f"({clients} clients in all) in the first {audit.iterations} iterations"
    if audit.exposure is not None:
        examined += ", and what every single client learns about every other"
    others = "Bounds cover coalitions of every size shown" if audit.coalitions else ""
    limits = [f"{examined}. {others or 'Other coalitions were not examined'}."]
    if not any(result.reconstructions or result.memberships for result in audit.results):
        limits.append("No attack was run: only what is proved and bounded is known.")
    else:
        limits.append("A failed attack proves nothing: another one may succeed.")
    task = audit.setting.task
    if task.disclosure:
        limits.append(f"Not part of any message: before training, {task.disclosure}.")
    if task.local is not None:
        limits.append("Local parameters have no noise: the answer holds if they are not published.")
    return limits


def join(items: list[str]) -> str:
    """Different items as a list in words: a, b and c."""
    distinct = list(dict.fromkeys(items))
    return distinct[0] if len(distinct) == 1 else f"{', '.join(distinct[:-1])} and {distinct[-1]}"


def _rounded(epsilon: float) -> float:
    return round_up(epsilon, 3)


def _number(epsilon: float) -> str:
    value = _rounded(epsilon)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
