"""Is it safe to take part? The answer of an audit, for people who do not read proofs.

The worst finding decides: about any victim, of any adversary, and of any client in the heat map.
Without a proof the answer is never yes. "Not proven" is an answer, too.
"""

from __future__ import annotations

import math
from typing import Any

from tacit.auditing.adversary import Adversary
from tacit.auditing.answer import Answer, Level
from tacit.auditing.bounds.added_noise import IDEAL_NOISE
from tacit.auditing.findings import Finding, Findings
from tacit.auditing.scoring.reconstruction import LEVELS as RECONSTRUCTIONS
from tacit.auditing.statements import StrongestLeak, promise_of
from tacit.auditing.symbolic.exposure import LEVELS
from tacit.auditing.symbolic.leakage import Leakage
from tacit.core.templates import Phrases
from tacit.privacy.interpretation import SCALE, in_short, in_words, strength
from tacit.privacy.planning import round_up
from tacit.tasks.parts import Parts

DETECTED = 0.6  # AUC, at the lower end of its interval


# A level, the macro of the template that says why, and its values.
Decision = tuple[Level, str, dict[str, Any]]


def answer_of(audit: Findings) -> Answer:
    """The answer of an audit, without what would change it."""
    findings = audit.findings
    level, macro, values = _decide(audit, findings)
    verdict, reason = _say(macro, **values)
    learns = [sentence for found in findings for sentence in _say("learns", **_learnt(found))]
    learns += _heat_map(audit) + [f"{capital(gain.statement)}." for gain in audit.gains]
    return Answer(level, verdict, reason, learns, _guarantee(audit, findings), _limits(audit))


def _learnt(found: Finding) -> dict[str, Any]:
    """The best attacks on a victim."""
    levels, curves = found.levels, [attack.roc for attack in found.memberships]
    return {
        "found": found,
        "levels": levels,
        "level": max(levels, key=RECONSTRUCTIONS.index, default=""),
        "roc": max(curves, key=lambda roc: roc.auc, default=None),
    }


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
    return f"Deviating {who}" if adversary.malicious else capital(who)


def describe_knowledge(leakage: Leakage) -> str:
    """The most revealing knowledge of an adversary, as the end of a sentence."""
    return _say("knows", known=StrongestLeak.of(leakage))[0]


def _decide(audit: Findings, findings: list[Finding]) -> Decision:
    """The worst finding decides."""
    if defect := next(filter(_has_defect, findings), None):
        return "no", "refuted", {"found": defect}
    if found := next(filter(_is_recovered, findings), None):
        return "no", "rebuilt", {"found": found}
    if gain := next((gain for gain in audit.gains if gain.gains_samples), None):
        return "no", "rebuilt_actively", {"gain": gain}
    headlines = {finding.verdict.headline: finding for finding in reversed(findings)}
    worst = LEVELS[0 if audit.exposure is None else int(audit.exposure.levels.max())]
    if found := headlines.get("exposed"):
        return "no", "exposed", {"found": found}
    if worst == "gradient":
        return "no", "others_exposed", {}
    if found := headlines.get("partly exposed"):
        return "leaks", "partly_exposed", {"found": found}
    if worst in ("difference", "sum"):
        return "leaks", "others_partly_exposed", {"kind": worst}
    judged = _judge_guarantee(audit, findings)
    judged = _broken_promise(audit, findings, judged[0]) or judged
    return (_detected(findings) if judged[0] == "unproven" else None) or judged


def _detected(findings: list[Finding]) -> Decision | None:
    """The best membership attack; None if none is clearly better than guessing."""
    scores = [
        (attack.roc.interval[0], attack.roc.auc, finding)
        for finding in findings
        for attack in finding.memberships
    ]
    low, auc, found = max(scores, key=lambda score: score[0], default=(0.0, 0.0, None))
    return None if low < DETECTED else ("leaks", "detected", {"found": found, "auc": auc})


def _broken_promise(audit: Findings, findings: list[Finding], level: Level) -> Decision | None:
    """The answer if an adversary may learn more than was promised; None if all is as promised.

    A promise counts on some honest clients. Against an adversary that leaves fewer it is not
    broken, but what was proved, of this level, is at best weak.
    """
    algorithm, clients = audit.setting.algorithm, audit.setting.graph.clients
    budget = algorithm.budget
    worst = max(filter(_is_bounded, findings), key=_epsilon, default=None)
    if budget is None or worst is None or _epsilon(worst) <= budget.epsilon:
        return None
    members = worst.ledger.only_sum_of
    honest = clients - len(worst.adversary.corrupt) if members is None else len(members)
    promise = promise_of(algorithm, clients)
    values = {"found": worst, "budget": budget, "promise": promise, "honest": honest}
    if honest >= budget.honest:
        return "no", "broken_promise", values
    return ("weak", "beyond_promise", values) if level in ("proven", "weak") else None


def _judge_guarantee(audit: Findings, findings: list[Finding]) -> Decision:
    """The answer if nothing exact is known: it depends on the guarantee."""
    worst = max(findings, key=_epsilon)
    if not _is_bounded(worst):
        return "unproven", "unbounded", {"found": worst}
    found = strength(_epsilon(worst))
    if found == "vacuous":
        return "unproven", "vacuous", {"found": worst}
    if why := _why_no_proof(audit, findings):
        return "unproven", "no_proof", {"why": why}
    if (gap := _gap(audit, findings)) is not None:
        return gap
    promise = promise_of(audit.setting.algorithm, audit.setting.graph.clients)
    values = {"found": worst, "strength": found, "promise": promise}
    level: Level = "weak" if found == "weak" else "proven"
    return level, "proven", values | {"iterations": audit.iterations}


def _gap(audit: Findings, findings: list[Finding]) -> Decision | None:
    """What bounds of messages leave out; None if nothing."""
    task, graph = audit.setting.task, audit.setting.graph
    if task.disclosure:
        return "unproven", "disclosed", {"disclosure": task.disclosure}
    edges = graph.edges.tolist()
    for victim in audit.victims:
        neighbours = {b if a == victim else a for a, b in edges if victim in (a, b)}
        about = [finding for finding in findings if finding.victim == victim]
        if not any(finding.adversary.corrupt & neighbours for finding in about):
            return "unproven", "neighbours_unbounded", {"client": audit.name_of(victim)}
    if audit.setting.algorithm.needs_server and not any(
        finding.adversary.is_server for finding in findings
    ):
        return "unproven", "server_unbounded", {}
    unit, parts = findings[0].ledger.unit, task.parts
    units = task.clients
    if unit == "sample" and isinstance(parts, Parts):
        units = int(parts.sizes.sum())
    delta = max(finding.ledger.best.delta for finding in findings)
    if delta * units >= 1:
        return "unproven", "large_delta", {"delta": delta, "units": f"{units:,}", "unit": unit}
    return None


def _why_no_proof(audit: Findings, findings: list[Finding]) -> str:
    """Why bounds do not cover the run; "" if they do."""
    missing = next((finding for finding in findings if not _is_proof(finding)), None)
    if missing is None:
        return ""
    if IDEAL_NOISE in missing.ledger.best.assumptions:
        return _say("ideal_noise")[0]
    steps = f"{missing.ledger.run_steps or 0:,}"
    return _say("part_of_run", iterations=audit.iterations, steps=steps)[0]


def _heat_map(audit: Findings) -> list[str]:
    """How many pairs of clients leak, from the map of all pairs."""
    if audit.exposure is None:
        return []
    levels = audit.exposure.levels
    gradient, noisy = LEVELS.index("gradient"), LEVELS.index("noisy")
    return _say(
        "heat_map",
        pairs=int((levels >= 0).sum()),
        exact=int((levels == gradient).sum()),
        parts=int(((levels > noisy) & (levels < gradient)).sum()),
    )


def _guarantee(audit: Findings, findings: list[Finding]) -> list[str]:
    """The guarantee against each adversary: the worst in words, the others in short."""
    unbounded: dict[str, list[str]] = {}
    bounded: dict[tuple[float, float], list[Finding]] = {}
    for finding in findings:
        best = finding.ledger.best
        if _is_bounded(finding):
            bounded.setdefault((best.epsilon, best.delta), []).append(finding)
        else:
            # The formula is in the tables and proofs.
            reason = best.why.split(": ")[0] if "·" in best.why else best.why
            unbounded.setdefault(reason, []).append(lower_first(_who(finding)))
    worst = max((_rounded(epsilon) for epsilon, _ in bounded), default=math.inf)
    meanings = []
    for (epsilon, delta), several in sorted(bounded.items(), key=lambda item: -item[0][0]):
        rounded, unit = _rounded(epsilon), several[0].ledger.unit
        meaning = in_words(rounded, delta, unit) if rounded == worst else in_short(rounded, delta)
        meanings.append((join([lower_first(_who(finding)) for finding in several]), meaning))
    return _say(
        "guarantee",
        unbounded=[(why, join(who)) for why, who in unbounded.items()],
        bounded=meanings,
        coalitions=_coalitions(audit),
        scale=SCALE,
        why_no_proof=_why_no_proof(audit, list(filter(_is_bounded, findings))),
    )


def _coalitions(audit: Findings) -> list[tuple[int, int, str]]:
    """The smallest and largest coalitions with the same worst ε, if they learn noisy sums only."""
    worst: dict[int, float] = {}
    for coalition in audit.coalitions:
        size = len(coalition.example)
        worst[size] = max(worst.get(size, 0.0), coalition.bound.epsilon)
    sizes: dict[str, list[int]] = {}
    for size, epsilon in sorted(worst.items()):
        sizes.setdefault(_number(epsilon), []).append(size)
    return [(those[0], those[-1], epsilon) for epsilon, those in sizes.items()]


def _limits(audit: Findings) -> list[str]:
    return _say(
        "limits",
        who=[lower_first(describe_adversary(result.adversary)) for result in audit.results],
        victims=[audit.name_of(victim) for victim in audit.victims],
        clients=audit.setting.graph.clients,
        iterations=audit.iterations,
        every_pair=audit.exposure is not None,
        coalitions=audit.coalitions,
        attacked=any(result.reconstructions or result.memberships for result in audit.results),
        task=audit.setting.task,
    )


def _who(finding: Finding) -> str:
    return describe_adversary(finding.adversary)


def _epsilon(finding: Finding) -> float:
    return finding.ledger.best.epsilon


def _is_bounded(finding: Finding) -> bool:
    return math.isfinite(_epsilon(finding))


def _is_proof(finding: Finding) -> bool:
    """Whether the bound covers the whole run and noise as computers add it."""
    ledger = finding.ledger
    covers_run = ledger.whole_run is not None or ledger.run_steps is None
    return covers_run and IDEAL_NOISE not in ledger.best.assumptions


def _has_defect(finding: Finding) -> bool:
    """Whether canaries contradict the bound; those of one run are no trials of it."""
    return any(result.is_defect for result in finding.canaries if result.kind != "sample")


def _is_recovered(finding: Finding) -> bool:
    """Whether an attack rebuilt at least one sample."""
    return any(level in ("recovered", "recovered in part") for level in finding.levels)


def join(items: list[str]) -> str:
    """Different items as a list in words: a, b and c."""
    distinct = list(dict.fromkeys(items))
    return distinct[0] if len(distinct) == 1 else f"{', '.join(distinct[:-1])} and {distinct[-1]}"


def _rounded(epsilon: float) -> float:
    return round_up(epsilon, 3)


def _number(epsilon: float) -> str:
    value = _rounded(epsilon)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def lower_first(text: str) -> str:
    return text[0].lower() + text[1:]


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


_say = Phrases(
    "tacit.auditing",
    "answer.txt.jinja",
    capital=capital,
    epsilon=_number,
    join_words=join,
    knows=describe_knowledge,
    lower_first=lower_first,
    rebuilt=_is_recovered,
    who=_who,
)
