"""How members agree on the successor of a roster: a state machine without input or output.

1. A member that has heard nothing of another for longer than the patience endorses its suspension;
   it endorses the return of a suspended member that it hears again.
2. When enough members have endorsed a change, one of them starts a ballot. Members promise to take
   part in no earlier one, and say what they accepted last.
3. With the promises of a majority of all members, the proposer proposes the change that was
   accepted last, or else the endorsed one. Members accept it.
4. Acceptances of a majority of all members in one ballot decide. Everyone can check a decision.

Steps 2 to 4 are Paxos (Lamport 1998) with signed messages: whatever is lost, repeated or late, and
whoever crashes, no roster gets two successors, as long as members keep their votes and no one signs
two of them. Two members that propose at the same time only delay each other.

`tick` and `receive` change the state. `votes` must be stored before the next sheet is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tacit.peer.agreement.presence import Presence
from tacit.peer.agreement.quorum import Electorate, Invalid, Roster, Unsafe, latest_accepted
from tacit.peer.agreement.statements import (
    Acceptance,
    Ballot,
    Change,
    Decision,
    Endorsement,
    Promise,
    PromiseEvidence,
    Proposal,
    ProposalEvidence,
    Sheet,
    Signed,
    Votes,
    Word,
)

TICKS = 20  # in the time of the patience, at least
MAX_TICK = 5.0  # seconds

# In ticks:
FRESH = 4  # an endorsement counts for so long after its signer sent it
ATTEMPT = 6  # between two ballots, and between members of consecutive rank
ASLEEP = 5  # a longer pause between two ticks says that this process was stopped
# A longer silence interrupts a member's presence, and a member heard for so long is back.
BREAK = 3


@dataclass(frozen=True)
class Rules:
    """Who agrees, and when.

    Attributes:
        name: This member.
        electorate: All members.
        patience: Seconds of silence after which a member is suspended.
        sign: Signs a statement as this member.
        clock: Unix time, for reports only.
    """

    name: str
    electorate: Electorate
    patience: float
    sign: Callable[[Any], Signed[Any]]
    clock: Callable[[], float]

    @property
    def tick(self) -> float:
        """Seconds between two ticks."""
        return min(MAX_TICK, self.patience / TICKS)


class Agreement:
    """The state of one member. All times are those of one monotonic clock, in seconds."""

    def __init__(self, rules: Rules, votes: Votes, now: float) -> None:
        self.rules, self.votes = rules, votes
        self.roster = Roster.of(votes)  # which is to be succeeded
        self.blocked = ""  # why silent members cannot be suspended
        self._step, self._finished = 0, False
        self.presence = Presence(
            (name for name in rules.electorate.members if name != rules.name),
            now,
            break_after=BREAK * rules.tick,
            asleep_after=ASLEEP * rules.tick,
        )
        self._ready_since: float | None = None
        self._last_progress, self._highest_round = now, 0
        self._endorsed: dict[tuple[str, Word], Signed[Endorsement]] = {}
        self._endorsements: dict[str, tuple[float, tuple[Signed[Endorsement], ...]]] = {}
        self._promises: dict[str, PromiseEvidence] = {}
        self._acceptances: dict[str, Signed[Acceptance]] = {}
        self._proposal: ProposalEvidence | None = None
        self._begin_with_votes(now)

    def tick(self, now: float, step: int, *, finished: bool = False) -> None:
        """Time has passed; this member has done `step` iterations."""
        self.presence.tick(now)
        self._step, self._finished = step, finished
        self._endorse(now)
        if self._ready(now) is None:
            self._ready_since = None
            return
        if self._ready_since is None:
            self._ready_since = now
        if now >= max(self._ready_since, self._last_progress) + self._delay(now):
            self._last_progress = now
            self._promise(Ballot(self._highest_round + 1, self.rules.name))
            self._propose(now)

    def receive(self, sender: str, sheet: Sheet, now: float) -> None:
        """A sheet has arrived, from a sender that TLS has identified.

        Raises:
            Invalid: If a part of it does not hold; the rest may have been used.
        """
        if sender not in self.presence or sheet.generation != self.votes.generation:
            return
        self.presence.hear(sender, sheet, now)
        try:
            if sheet.decision is not None and sheet.decision.change.epoch > self.roster.epoch:
                self.rules.electorate.check_decision(self.votes.generation, sheet.decision)
                self._adopt(sheet.decision, now)
            if sheet.roster == self.roster.digest:
                self._use(sender, sheet, now)
        except Unsafe as problem:
            raise Invalid(str(problem)) from None

    def sheet_for(self, receiver: str) -> Sheet:
        """What to send to another member."""
        votes, roster = self.votes, self.roster
        is_behind = self.presence.epoch(receiver) < roster.epoch
        return Sheet(
            roster.generation,
            roster.epoch,
            roster.digest,
            self._finished,
            tuple(self._endorsed.values()),
            votes.promise,
            self._proposal,
            votes.acceptance,
            votes.decision if is_behind else None,
        )

    def _use(self, sender: str, sheet: Sheet, now: float) -> None:
        """Use the statements of a sheet on the roster of this member."""
        electorate, roster = self.rules.electorate, self.roster
        electorate.check_count(sheet.endorsements)
        for endorsement in sheet.endorsements:
            electorate.check_signature(endorsement, roster.digest)
            if endorsement.signer != sender:
                raise Invalid(f"an endorsement of {endorsement.signer} that is passed on")
        self._endorsements[sender] = (now, sheet.endorsements)
        if sheet.promise is not None:
            electorate.check_promise(roster, sheet.promise)
            self._note_promise(sheet.promise, now)
        if sheet.proposal is not None and self._is_new(sheet.proposal):
            electorate.check_proposal(roster, sheet.proposal)
            self._accept(sheet.proposal, now)
        if sheet.acceptance is not None:
            electorate.check_signature(sheet.acceptance, roster.digest)
            self._count(sheet.acceptance, now)

    def _is_new(self, evidence: ProposalEvidence) -> bool:
        known = self._proposal
        return known is None or evidence.proposal.statement != known.proposal.statement

    def _endorse(self, now: float) -> None:
        """Say which members are silent and which are back."""
        rules, presence, wanted = self.rules, self.presence, set[tuple[str, Word]]()
        absent, epoch = self.roster.absent, self.roster.epoch
        for name in presence.names:
            if name in absent:
                # It must know that it is suspended.
                if presence.is_steady(name, now) and presence.epoch(name) == epoch:
                    wanted.add((name, "back"))
            elif presence.silence(name, now) >= rules.patience and not presence.has_finished(name):
                wanted.add((name, "silent"))
        if rules.name in absent:
            wanted.add((rules.name, "back"))
        kept = {key: signed for key, signed in self._endorsed.items() if key in wanted}
        for subject, word in sorted(wanted - kept.keys()):
            statement = Endorsement(self.roster.digest, subject, word, self._step)
            kept[subject, word] = rules.sign(statement)
        self._endorsed = kept

    def _current_endorsements(self, now: float) -> list[Signed[Endorsement]]:
        oldest = now - FRESH * self.rules.tick
        others = [one for time, found in self._endorsements.values() for one in found
                  if time >= oldest]  # fmt: skip
        return [*self._endorsed.values(), *others]

    def _ready(self, now: float) -> tuple[Change, tuple[Signed[Endorsement], ...]] | None:
        """A change that enough members endorse, if there is one, with their endorsements."""
        electorate, roster = self.rules.electorate, self.roster
        endorsements = self._current_endorsements(now)
        subjects: dict[tuple[str, Word], set[str]] = {}
        for one in endorsements:
            key = (one.statement.subject, one.statement.word)
            subjects.setdefault(key, set()).add(one.signer)
        candidates = sorted(
            key
            for key, names in subjects.items()
            if electorate.is_majority(names) and (key[1] == "back") == (key[0] in roster.absent)
        )
        self.blocked = ""
        for chosen in _selections(candidates):
            silent = frozenset(name for name, word in chosen if word == "silent")
            back = frozenset(name for name, word in chosen if word == "back")
            try:
                change = electorate.make_change(
                    roster, silent, back, int(self.rules.clock()), self._step
                )
                missing = electorate.unendorsed(roster, silent, back, endorsements)
            except Unsafe as problem:
                # The reason for the largest selection names all that are silent.
                self.blocked = self.blocked or (str(problem) if silent else "")
                continue
            if not missing:
                used = [one for one in endorsements
                        if (one.statement.subject, one.statement.word) in chosen]  # fmt: skip
                return change, tuple(used)
        return None

    def _delay(self, now: float) -> float:
        """How long to wait for other proposers: members propose one after the other."""
        members = self.rules.electorate.members
        audible = [
            name
            for name in members
            if name == self.rules.name or self.presence.silence(name, now) < self.rules.patience / 2
        ]
        rank = audible.index(self.rules.name)
        proposed = self._promised is not None
        return ATTEMPT * self.rules.tick * (rank + proposed)

    @property
    def _promised(self) -> Ballot | None:
        promise = self.votes.promise
        return None if promise is None else promise.promise.statement.ballot

    def _promise(self, ballot: Ballot) -> None:
        """Take part in no ballot before this one."""
        vote = self.votes.acceptance
        accepted_in = None if vote is None else vote.statement.ballot
        accepted = None if vote is None else vote.statement.change
        signed = self.rules.sign(Promise(self.roster.digest, ballot, accepted_in, accepted))
        evidence = PromiseEvidence(signed, self.votes.endorsements)
        self.votes = replace(self.votes, promise=evidence)
        self._highest_round = max(self._highest_round, ballot.round)
        self._promises[self.rules.name] = evidence

    def _note_promise(self, evidence: PromiseEvidence, now: float) -> None:
        signer, ballot = evidence.promise.signer, evidence.promise.statement.ballot
        known = self._promises.get(signer)
        if known is None or known.promise.statement.ballot < ballot:
            self._promises[signer] = evidence
        self._highest_round = max(self._highest_round, ballot.round)
        if signer == ballot.proposer and (self._promised is None or ballot > self._promised):
            self._last_progress = now
            self._promise(ballot)
        self._propose(now)

    def _propose(self, now: float) -> None:
        """Propose a change if this member's ballot has the promises of a majority."""
        ballot, roster = self._promised, self.roster
        if ballot is None or ballot.proposer != self.rules.name:
            return
        if self._proposal is not None and self._proposal.proposal.statement.ballot == ballot:
            return
        vote = self.votes.acceptance
        if vote is not None and vote.statement.ballot == ballot:
            # It has proposed in this ballot, before it was restarted.
            return
        promises = [one for one in self._promises.values()
                    if one.promise.statement.ballot == ballot]  # fmt: skip
        if not self.rules.electorate.is_majority(one.promise.signer for one in promises):
            return
        kept, ready = latest_accepted(promises), self._ready(now)
        if kept is not None and kept.promise.statement.accepted is not None:
            change, endorsements = kept.promise.statement.accepted, kept.endorsements
        elif ready is not None:
            change, endorsements = ready
        else:
            return
        signed = self.rules.sign(Proposal(roster.digest, ballot, change))
        self._accept(ProposalEvidence(signed, endorsements, tuple(promises)), now)

    def _accept(self, evidence: ProposalEvidence, now: float) -> None:
        """Vote for a proposal that was checked, unless this member has promised not to."""
        proposal, vote = evidence.proposal.statement, self.votes.acceptance
        if self._promised is not None and proposal.ballot < self._promised:
            return
        if vote is not None and proposal.ballot <= vote.statement.ballot:
            return
        if proposal.ballot != self._promised:
            self._promise(proposal.ballot)
        self._proposal, self._last_progress = evidence, now
        statement = Acceptance(self.roster.digest, proposal.ballot, proposal.change)
        signed = self.rules.sign(statement)
        self.votes = replace(self.votes, acceptance=signed, endorsements=evidence.endorsements)
        self._count(signed, now)

    def _count(self, vote: Signed[Acceptance], now: float) -> None:
        """Count a vote; decide if a majority of all members has given the same."""
        known, ballot = self._acceptances.get(vote.signer), vote.statement.ballot
        if known is not None and known.statement.ballot == ballot and (
            known.statement.change != vote.statement.change
        ):  # fmt: skip
            raise Invalid(f"two votes of {vote.signer} in one ballot: it must not be trusted")
        if known is None or known.statement.ballot < ballot:
            self._acceptances[vote.signer] = vote
        same = [one for one in self._acceptances.values() if one.statement == vote.statement]
        if self.rules.electorate.is_majority(one.signer for one in same):
            self._adopt(Decision(vote.statement.change, tuple(same)), now)

    def _adopt(self, decision: Decision, now: float) -> None:
        """Continue with the decided roster; the votes on it are no longer needed."""
        self.votes = Votes(self.votes.generation, self.votes.base, decision)
        self.roster = Roster.of(self.votes)
        self._begin_with_votes(now)

    def _begin_with_votes(self, now: float) -> None:
        """Begin with this member's votes, and nothing of others."""
        self._ready_since, self._last_progress, self._proposal = None, now, None
        self._highest_round = 0 if self._promised is None else self._promised.round
        for known in (self._endorsed, self._endorsements, self._promises, self._acceptances):
            known.clear()
        if self.votes.promise is not None:
            self._promises[self.rules.name] = self.votes.promise
        if self.votes.acceptance is not None:
            self._acceptances[self.rules.name] = self.votes.acceptance


def _selections(
    candidates: list[tuple[str, Word]],
) -> Iterator[list[tuple[str, Word]]]:
    """All candidates together, then all but one, then each alone."""
    if not candidates:
        return
    yield candidates
    if len(candidates) > 2:
        for left_out in candidates:
            yield [one for one in candidates if one != left_out]
    if len(candidates) > 1:
        yield from ([one] for one in candidates)
