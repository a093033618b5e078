"""What an active adversary gains over the same clients when they follow the protocol."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit.auditing.active.recovered import RecoveredSamples
from tacit.auditing.attacks.membership_attacks import MembershipResult
from tacit.auditing.statements import phrases

ONE_SIDED = 1.645  # standard deviations that a normal variable exceeds with probability 5 %


@dataclass(frozen=True)
class Outcome:
    """What one adversary measured about one victim."""

    recovered: tuple[RecoveredSamples, ...]
    membership: MembershipResult | None  # the score with the largest AUC

    def of(self, kind: str) -> RecoveredSamples | None:
        return next((samples for samples in self.recovered if samples.kind == kind), None)


@dataclass(frozen=True)
class Gain:
    """The outcomes of a malicious behaviour and of honest behaviour, for one victim."""

    adversary: str
    victim: int
    victim_name: str
    passive: Outcome
    active: Outcome

    @property
    def pairs(self) -> list[tuple[int, RecoveredSamples]]:
        """For each kind of evidence: samples recovered passively, and actively."""
        return [
            (0 if (before := self.passive.of(after.kind)) is None else before.recovered, after)
            for after in self.active.recovered
        ]

    @property
    def most(self) -> tuple[int, RecoveredSamples] | None:
        """The kind of evidence that gained most."""
        return max(self.pairs, key=lambda pair: pair[1].recovered - pair[0], default=None)

    @property
    def gains_samples(self) -> bool:
        """Whether more samples are recovered than by chance, if counts are Poisson (95 %)."""
        if self.most is None:
            return False
        before, after = self.most[0], self.most[1].recovered
        return after - before > ONE_SIDED * math.sqrt(after + before)

    @property
    def gains_membership(self) -> bool:
        """Whether the AUC is larger by more than its uncertainty: intervals do not overlap."""
        before, after = self.passive.membership, self.active.membership
        if before is None or after is None:
            return False
        return after.roc.interval[0] > before.roc.interval[1]

    @property
    def was_counted(self) -> bool:
        """Whether recovered samples were counted."""
        return bool(self.active.recovered or self.passive.recovered)

    @property
    def statement(self) -> str:
        return phrases("gain", gain=self)[0]

    def as_dict(self) -> dict[str, Any]:
        def plain(outcome: Outcome) -> dict[str, Any]:
            best = outcome.membership
            member = None
            if best is not None:
                low, high = best.roc.interval
                member = {"score": best.score, "auc": best.roc.auc, "low": low, "high": high}
            recovered = [samples.as_dict() for samples in outcome.recovered]
            return {"recovered": recovered, "membership": member}

        return {
            "adversary": self.adversary,
            "victim": self.victim,
            "passive": plain(self.passive),
            "active": plain(self.active),
            "statement": self.statement,
        }


GAIN_COLUMNS = ("evidence", "recovered", "of samples", "membership AUC")


def gain_cells(gain: Gain, between: str = "\n") -> list[str]:
    """Evidence, samples recovered passively → actively, of how many, and the AUC, as text.

    Several kinds of evidence are joined by `between`.
    """
    lines = [
        (
            f"{after.kind} × {after.values}" if after.values > 1 else after.kind,
            f"{before} → {after.recovered}",
            str(after.samples),
        )
        for before, after in gain.pairs
    ]
    scores = [
        "–" if outcome.membership is None else f"{outcome.membership.roc.auc:.3f}"
        for outcome in (gain.passive, gain.active)
    ]
    columns = zip(*lines, strict=True) if lines else [("–",)] * 3
    return [*(between.join(column) for column in columns), " → ".join(scores)]


def gain_summary(gains: Sequence[Gain]) -> str:
    """What deviating gains, in one sentence: the behaviour that recovers most samples."""
    if not gains:
        return ""
    useful = [gain for gain in gains if gain.gains_samples or gain.gains_membership]
    if not useful:
        counted = [gain for gain in gains if gain.was_counted]
        return phrases("no_gain", gain=(counted or gains)[0])[0]
    best = max(useful, key=lambda gain: 0 if gain.most is None else gain.most[1].recovered)
    return f"{best.statement[0].upper()}{best.statement[1:]}."
