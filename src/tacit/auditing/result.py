"""What an audit finds: one result per adversary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.membership_attacks import MembershipResult
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.symbolic.exposure import Exposure
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.verdict import ASSUMPTIONS, Verdict
from tacit.core.version import __version__
from tacit.simulation import Setting


@dataclass(frozen=True, eq=False)
class AdversaryResult:
    """What one adversary learns: proved, bounded and measured."""

    adversary: Adversary
    leakage: list[Leakage]  # per honest victim
    ledgers: list[Ledger]  # per honest victim
    reconstructions: list[ReconstructionResult]
    memberships: list[MembershipResult]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """One per honest victim."""
        pairs = zip(self.leakage, self.ledgers, strict=True)
        return [Verdict.of(*pair, self.reconstructions, self.memberships) for pair in pairs]

    def as_dict(self) -> dict[str, Any]:
        return {
            "adversary": str(self.adversary),
            "verdict": [asdict(verdict) for verdict in self.verdicts],
            "proved": [leakage.as_dict() for leakage in self.leakage],
            "bounded": [ledger.as_dict() for ledger in self.ledgers],
            "measured": {
                "inversion": [result.as_dict() for result in self.reconstructions],
                "membership": [result.as_dict() for result in self.memberships],
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

    def __repr__(self) -> str:
        lines = [f"Audit({self.setting.algorithm.name}, {self.iterations} iterations)"]
        for result in self.results:
            for verdict, ledger in zip(result.verdicts, result.ledgers, strict=True):
                lines.append(f"  {verdict.headline}: {verdict.summary}; {ledger.upper}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in audit.json."""
        setting = self.setting
        return {
            "version": __version__,
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
            "exposure": None if self.exposure is None else self.exposure.as_dict(),
            "assumptions": list(ASSUMPTIONS),
            "notes": self.notes,
        }
