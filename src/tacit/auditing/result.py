"""What an audit finds: results and verdicts, which a reviewer can check against the numbers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tacit.auditing import statements
from tacit.auditing.active.gains import gain_summary
from tacit.auditing.adversary import Adversary
from tacit.auditing.answer import Answer
from tacit.auditing.findings import Finding, Findings
from tacit.auditing.judgement import answer_of
from tacit.core.notebooks import html_table
from tacit.core.version import __version__

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
SEVERITY = {
    "recovered": 4,
    "exposed": 3,
    "partly exposed": 2,
    "noisy": 1,
    "noisy sum": 0,
    "nothing proved": 0,
}


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Findings):
    """What leaks in a run. `print(audit)` shows the verdicts, without data of victims."""

    def __repr__(self) -> str:
        counted = Counter(finding.verdict.headline for finding in self.findings)
        counts = ", ".join(f"{count} {headline}" for headline, count in counted.items())
        return f"Audit({self.setting.algorithm.name}, {self.iterations} iterations: {counts})"

    def _repr_html_(self) -> str:
        """The verdicts as a table, for notebooks."""
        rows = [
            [found.adversary, found.verdict.headline, found.verdict.summary]
            for found in self.findings
        ]
        return html_table(self.summary, ["adversary", "verdict", "what it learns"], rows)

    def __str__(self) -> str:
        lines = [f"Audit({self.setting.algorithm.name}, {self.iterations} iterations)"]
        for found in self.findings:
            verdict, bound = found.verdict, found.ledger.best
            lines.append(f"  {verdict.headline}: {verdict.summary}; {bound.statement}")
        return "\n".join(lines)

    @property
    def answer(self) -> Answer:
        """Whether it is safe to take part, for people who do not read proofs."""
        return answer_of(self)

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
            "graph": setting.world.describe(),
            "clients": setting.graph.clients,
            "parameters": setting.task.parameters,
            "seed": setting.seed,
            "iterations": self.iterations,
            "victims": self.victims,
            "names": list(setting.task.names),
            "adversaries": [result.as_dict() for result in self.results],
            "active": [gain.as_dict() for gain in self.gains],
            "coalitions": [bound.as_dict() for bound in self.coalitions],
            "exposure": None if self.exposure is None else self.exposure.as_dict(),
            "assumptions": list(ASSUMPTIONS),
            "notes": self.notes,
            "remarks": self.remarks,
        }


def _plain_summary(audit: Audit) -> str:
    if all(finding.ledger.only_sum_of is not None for finding in audit.findings):
        sentences = [
            statements.phrases(
                "guaranteed_sums",
                learns=finding.verdict.summary,
                ledger=finding.ledger,
                scope=statements.covered(finding.ledger, audit.iterations),
                budget=audit.setting.algorithm.budget,
                canaries=[result for result in finding.canaries if result.kind == "gradient"],
            )[0]
            for finding in audit.findings
        ]
        return " ".join(dict.fromkeys(sentences[:MOST_SENTENCES]))
    # The worst finding; of equal ones, that of the adversary that needs the least.
    worst = max(
        audit.findings, key=lambda found: (SEVERITY[_headline(found)], -_effort(found.adversary))
    )
    ledger = worst.ledger
    (sentence,) = statements.phrases(
        "worst",
        headline=_headline(worst),
        who=worst.adversary,
        victim=worst.leakage.victim_text,
        bound=ledger.best.statement if math.isfinite(ledger.best.epsilon) else "",
        scope=statements.covered(ledger, audit.iterations),
    )
    return sentence


def _headline(finding: Finding) -> str:
    return "recovered" if "recovered" in finding.levels else finding.verdict.headline


def _effort(adversary: Adversary) -> float:
    """How hard it is to be this adversary: to be one client is easier than to tap all edges."""
    return len(adversary.corrupt) or 1.5
