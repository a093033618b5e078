"""What an audit finds about each victim of each adversary, and about all clients."""

from __future__ import annotations

from collections.abc import Sequence
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
from tacit.auditing.sum_verdicts import sum_headline
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

    @classmethod
    def of(
        cls,
        leakage: Leakage,
        ledger: Ledger,
        reconstructions: Sequence[ReconstructionResult],
        memberships: Sequence[MembershipResult],
        canaries: Sequence[CanaryResult] = (),
    ) -> Verdict:
        """The verdict on one victim; attacks on other victims are ignored."""
        victim = leakage.victim
        measured = [str(found) for found in canaries if found.victim == victim]
        measured += [
            statements.reconstruction(result, index)
            for result in reconstructions
            for index, evidence in enumerate(result.evidence)
            if evidence.victim == victim
        ]
        measured += [statements.membership(m, ledger) for m in memberships if m.victim == victim]
        proved = [statements.proved(leakage, q) for q in QUESTIONS if leakage.of(q).when]
        found = statements.headline(leakage)
        if ledger.only_sum_of is not None:
            knowledge = leakage.knowledge
            found = sum_headline(knowledge.adversary, ledger, knowledge.run.clients)
        return cls(victim, *found, proved, statements.bounded(ledger), measured)


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
    def verdicts(self) -> list[Verdict]:
        """One per honest victim."""
        pairs = zip(self.leakage, self.ledgers, strict=True)
        return [
            Verdict.of(*pair, self.reconstructions, self.memberships, self.canaries)
            for pair in pairs
        ]

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
