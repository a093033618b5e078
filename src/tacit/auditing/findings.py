"""What an audit finds about each victim of each adversary, and about all clients."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from tacit.auditing import statements
from tacit.auditing.active.gains import Gain
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.membership_attacks import MembershipResult
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.bounds.coalition_bounds import CoalitionBound
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.canaries.result import KINDS as CANARIES, CanaryResult, Kind
from tacit.auditing.client_names import client_name
from tacit.auditing.symbolic.exposure import Exposure
from tacit.auditing.symbolic.leakage import QUESTIONS, Leakage
from tacit.engines.setting import Setting


@dataclass(frozen=True)
class Verdict:
    """Statements about one victim: a headline, a summary, and three kinds of evidence."""

    victim: int
    headline: statements.Headline
    summary: str
    proved: list[str]
    bounded: list[str]
    measured: list[str]


@dataclass(frozen=True, eq=False)
class Finding:
    """What was found about one victim of one adversary."""

    result: AdversaryResult
    leakage: Leakage
    ledger: Ledger

    @property
    def adversary(self) -> Adversary:
        return self.result.adversary

    @property
    def victim(self) -> int:
        return self.leakage.victim

    @property
    def reconstructions(self) -> list[tuple[ReconstructionResult, int]]:
        """The inversions of the victim's data, and its position in each."""
        return [
            (attack, index)
            for attack in self.result.reconstructions
            for index, evidence in enumerate(attack.evidence)
            if evidence.victim == self.victim
        ]

    @property
    def levels(self) -> list[str]:
        """How close each of these inversions came."""
        return [attack.score.levels[index] for attack, index in self.reconstructions]

    @property
    def memberships(self) -> list[MembershipResult]:
        return [attack for attack in self.result.memberships if attack.victim == self.victim]

    @property
    def canaries(self) -> list[CanaryResult]:
        return [result for result in self.result.canaries if result.victim == self.victim]

    @cached_property
    def verdict(self) -> Verdict:
        leakage, ledger = self.leakage, self.ledger
        proved = [statements.proved(leakage, q) for q in QUESTIONS if leakage.of(q).when]
        measured = [
            *map(str, self.canaries),
            *(statements.reconstruction(*attack) for attack in self.reconstructions),
            *(statements.membership(attack, ledger) for attack in self.memberships),
        ]
        who, members = self.adversary, ledger.only_sum_of
        if members is None:
            known = statements.StrongestLeak.of(leakage)
            headline = known.headline
            (summary,) = statements.phrases("headline", who=who, known=known)
        else:
            clients = leakage.knowledge.run.clients
            headline = "noisy sum" if len(members) > 1 else "noisy"
            (summary,) = statements.phrases("sums", who=who, ledger=ledger, clients=clients)
        bounded = statements.bounded(ledger)
        return Verdict(self.victim, headline, summary, proved, bounded, measured)


@dataclass(frozen=True, eq=False)
class AdversaryResult:
    """What one adversary learns: proved, bounded and measured."""

    adversary: Adversary
    leakage: list[Leakage]  # per honest victim
    ledgers: list[Ledger]  # per honest victim
    reconstructions: list[ReconstructionResult]
    memberships: list[MembershipResult]
    canaries: list[CanaryResult] = field(default_factory=list)

    @cached_property
    def findings(self) -> list[Finding]:
        """One per honest victim."""
        pairs = zip(self.leakage, self.ledgers, strict=True)
        return [Finding(self, *pair) for pair in pairs]

    @property
    def verdicts(self) -> list[Verdict]:
        """One per honest victim."""
        return [found.verdict for found in self.findings]

    def canaries_of(self, kind: Kind) -> list[CanaryResult]:
        """The canaries of one kind."""
        return [result for result in self.canaries if result.kind == kind]

    def as_dict(self) -> dict[str, Any]:
        return {
            "adversary": str(self.adversary),
            "verdict": [asdict(verdict) for verdict in self.verdicts],
            "proved": [leakage.as_dict() for leakage in self.leakage],
            "bounded": [ledger.as_dict() for ledger in self.ledgers],
            "measured": {
                "inversion": [result.as_dict() for result in self.reconstructions],
                "membership": [result.as_dict() for result in self.memberships],
                **{
                    f"{kind}_canaries": [result.as_dict() for result in self.canaries_of(kind)]
                    for kind in CANARIES
                },
            },
        }


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """What was found in a run, from which the answer and the summary follow."""

    setting: Setting
    iterations: int
    victims: list[int]
    results: list[AdversaryResult]
    exposure: Exposure | None
    notes: list[str] = field(default_factory=list)  # what was not measured, and why
    remarks: list[str] = field(default_factory=list)  # on coalitions, and on what is not linear
    gains: list[Gain] = field(default_factory=list)  # of malicious clients over passive ones
    coalitions: list[CoalitionBound] = field(default_factory=list)  # if all learn is noisy sums

    @property
    def findings(self) -> list[Finding]:
        """What was found about each victim of each adversary."""
        return [found for result in self.results for found in result.findings]

    def name_of(self, client: int) -> str:
        """The name of a client, or its number."""
        return client_name(client, self.setting.task.names)

    @property
    def cut_short(self) -> int:
        """The number of attacks that the time budget stopped: more time may find more."""
        return sum(
            sum(found.cut_short for found in result.reconstructions)
            + sum(found.cut_short for found in result.memberships)
            for result in self.results
        )
