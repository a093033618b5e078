"""When a change of the roster is valid: whose signatures it needs.

- A member is suspended, or comes back, if a majority of all members of the operator's roster and a
  majority of its neighbours have signed that it is silent, or back. Neighbours that are suspended
  by the same change do not count.
- A change is decided if a majority of all members of the operator's roster have accepted it in one
  ballot. All members, and not only those who are left: any two majorities then share a member, so
  two parts of a divided network cannot both decide.
- A proposal must keep what may have been decided before. Its promises show that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from tacit.peer.agreement.statements import (
    Absence,
    Change,
    Decision,
    Endorsement,
    PromiseEvidence,
    ProposalEvidence,
    Return,
    Signed,
    Votes,
    Word,
    signers,
)


class Invalid(Exception):
    """What a member sent does not hold."""


class Unsafe(Exception):
    """A roster under which the remaining members cannot train as they agreed; says why."""


class Rosters(Protocol):
    """The rosters that can follow on the operator's, as pure functions of what is suspended."""

    def digest(self, change: Change) -> str:
        """The digest of a successor; raises Unsafe. `change.digest` is ignored."""

    def neighbours(self, suspended: frozenset[str]) -> Mapping[str, frozenset[str]]:
        """The neighbours of each member that is not suspended; raises Unsafe."""


@dataclass(frozen=True)
class Roster:
    """The roster that is to be succeeded."""

    generation: int
    epoch: int
    digest: str
    suspended: tuple[Absence, ...] = ()
    returned: tuple[Return, ...] = ()

    @classmethod
    def of(cls, votes: Votes) -> Roster:
        """The newest roster that a member knows to be decided."""
        if votes.decision is None:
            return cls(votes.generation, 0, votes.base)
        change = votes.decision.change
        return cls(
            change.generation, change.epoch, change.digest, change.suspended, change.returned
        )

    @cached_property
    def absent(self) -> frozenset[str]:
        return frozenset(absence.name for absence in self.suspended)


@dataclass(frozen=True)
class Electorate:
    """The members of the operator's roster, and how their signatures are verified.

    Attributes:
        members: Their names.
        rosters: What can follow on the operator's roster.
        verify: Whether a member has signed a statement.
        is_trusted: Whether the certificate of a statement is not revoked. What was decided before a
            revocation still holds.
    """

    members: tuple[str, ...]
    rosters: Rosters
    verify: Callable[[Signed[Any]], bool]
    is_trusted: Callable[[Signed[Any]], bool] = lambda _: True

    def is_majority(self, names: Iterable[str]) -> bool:
        return 2 * len(set(names) & set(self.members)) > len(self.members)

    def check_count(self, statements: Sequence[object], subjects: int = 1) -> None:
        """Raise Invalid if there are more statements than members can make; each costs time."""
        if len(statements) > subjects * len(self.members):
            raise Invalid(f"{len(statements)} statements of {len(self.members)} members")

    def check_signature(self, signed: Signed[Any], roster: str, *, decided: bool = False) -> None:
        """Raise Invalid unless a member has signed a statement on a roster."""
        if signed.signer not in self.members:
            raise Invalid(f"{signed.signer[:40]!r} is not a member")
        if signed.statement.roster != roster:
            raise Invalid(f"a statement of {signed.signer} on another roster")
        if not self.verify(signed):
            raise Invalid(f"a signature that is not of {signed.signer}")
        if not decided and not self.is_trusted(signed):
            raise Invalid(f"a statement of {signed.signer} with a revoked certificate")

    def make_change(
        self, roster: Roster, silent: Iterable[str], back: Iterable[str], since: int, step: int
    ) -> Change:
        """The successor in which members are suspended and come back; raises Unsafe."""
        epoch, gone, here = roster.epoch + 1, set(silent), set(back)
        suspended = [one for one in roster.suspended if one.name not in here]
        suspended += [Absence(name, since, epoch) for name in gone]
        returned = [one for one in roster.returned if one.name not in here]
        returned += [Return(name, epoch) for name in here]
        change = Change(
            roster.generation,
            epoch,
            roster.digest,
            "",
            tuple(sorted(suspended, key=lambda one: one.name)),
            tuple(sorted(returned, key=lambda one: one.name)),
            step,
        )
        return replace(change, digest=self.rosters.digest(change))

    def check_change(
        self, roster: Roster, change: Change, endorsements: Sequence[Signed[Endorsement]]
    ) -> None:
        """Raise Invalid unless a change follows on a roster and is endorsed; may raise Unsafe."""
        silent, back = change.absent - roster.absent, roster.absent - change.absent
        since = next((one.since for one in change.suspended if one.name in silent), 0)
        if not silent | back:
            raise Invalid("a change of nothing")
        if not silent <= set(self.members):
            raise Invalid("a suspension of a node that is not a member")
        if self.make_change(roster, silent, back, since, change.step) != change:
            raise Invalid("a change that does not follow on the roster")
        self.check_count(endorsements, subjects=len(silent | back))
        for signed in endorsements:
            self.check_signature(signed, roster.digest)
        if missing := self.unendorsed(roster, silent, back, endorsements):
            raise Invalid(f"too few members say that {missing} is silent or back")

    def unendorsed(
        self,
        roster: Roster,
        silent: frozenset[str],
        back: frozenset[str],
        endorsements: Sequence[Signed[Endorsement]],
    ) -> str:
        """A subject of a change that too few members have endorsed; empty if there is none."""
        after = (roster.absent | silent) - back
        before, later = self.rosters.neighbours(roster.absent), self.rosters.neighbours(after)
        kinds: list[tuple[frozenset[str], Word, Mapping[str, frozenset[str]]]] = [
            (silent, "silent", before),
            (back, "back", later),
        ]
        for subjects, word, neighbours in kinds:
            for subject in sorted(subjects):
                said = {
                    one.signer
                    for one in endorsements
                    if (one.statement.subject, one.statement.word) == (subject, word)
                }
                witnesses = neighbours[subject] - after
                near = 2 * len(said & witnesses) > len(witnesses) or not witnesses
                if not (near and self.is_majority(said)):
                    return subject
        return ""

    def check_promise(self, roster: Roster, evidence: PromiseEvidence) -> None:
        """Raise Invalid unless a promise is signed and what it accepted was endorsed."""
        self.check_signature(evidence.promise, roster.digest)
        promise = evidence.promise.statement
        if promise.accepted is None or promise.accepted_in is None:
            return
        if promise.accepted_in >= promise.ballot:
            raise Invalid(f"a promise of {evidence.promise.signer} that comes after its vote")
        self.check_change(roster, promise.accepted, evidence.endorsements)

    def check_proposal(self, roster: Roster, evidence: ProposalEvidence) -> None:
        """Raise Invalid unless a proposal may be accepted."""
        proposal = evidence.proposal.statement
        self.check_signature(evidence.proposal, roster.digest)
        if evidence.proposal.signer != proposal.ballot.proposer:
            raise Invalid(f"a proposal of {evidence.proposal.signer} in another member's ballot")
        self.check_count(evidence.promises)
        for one in evidence.promises:
            self.check_promise(roster, one)
            if one.promise.statement.ballot != proposal.ballot:
                raise Invalid("a promise for another ballot")
        if not self.is_majority(signers([one.promise for one in evidence.promises])):
            raise Invalid("a proposal without the promises of a majority of all members")
        kept = latest_accepted(evidence.promises)
        if kept is not None and kept.promise.statement.accepted != proposal.change:
            raise Invalid("a proposal that drops what may be decided already")
        self.check_change(roster, proposal.change, evidence.endorsements)

    def check_decision(self, generation: int, decision: Decision) -> None:
        """Raise Invalid unless a majority of all members has decided a change."""
        change, votes = decision.change, decision.acceptances
        if change.generation != generation:
            raise Invalid(f"a decision of generation {change.generation}")
        if len({vote.statement.ballot for vote in votes}) != 1:
            raise Invalid("a decision with votes of several ballots")
        self.check_count(votes)
        for vote in votes:
            self.check_signature(vote, change.previous, decided=True)
            if vote.statement.change != change:
                raise Invalid("a decision with votes for another change")
        if not self.is_majority(signers(votes)):
            raise Invalid("a decision without the votes of a majority of all members")
        if self.rosters.digest(change) != change.digest:
            raise Invalid("a decision for a roster that this node computes otherwise")


def latest_accepted(promises: Iterable[PromiseEvidence]) -> PromiseEvidence | None:
    """The promise that reports the latest vote: what it accepted may be decided already."""
    reports = [
        (one.promise.statement.accepted_in, one)
        for one in promises
        if one.promise.statement.accepted_in is not None
        and one.promise.statement.accepted is not None
    ]
    return max(reports, key=lambda report: report[0])[1] if reports else None
