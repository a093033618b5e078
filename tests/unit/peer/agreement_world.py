"""Members that agree on rosters in a simulated network: deterministic, without sockets and clocks.

Messages are lost, repeated, late and out of order; links are cut; members crash and come back with
the votes that they stored, or are stopped and continue. Members also train, as a counter: a member
does its next iteration when all its neighbours under the same roster have done theirs.
"""

import hashlib
import random
from collections import defaultdict
from functools import lru_cache

from tacit.peer.agreement.protocol import Agreement, Rules
from tacit.peer.agreement.quorum import Electorate, Unsafe
from tacit.peer.agreement.statements import (
    Ballot,
    Signed,
    Votes,
    parse_sheet,
    signed_bytes,
    to_json,
)

PATIENCE = 20.0
FEDERATION = "clinics-00000000"


class RingRosters:
    """A ring of those who are left; fewer than `smallest` cannot protect each other."""

    def __init__(self, members, smallest=3):
        self.members, self.smallest = members, smallest

    def neighbours(self, suspended):
        left = [name for name in self.members if name not in suspended]
        if len(left) < self.smallest:
            raise Unsafe(f"only {len(left)} members would be left")
        return {
            name: frozenset({left[i - 1], left[(i + 1) % len(left)]} - {name})
            for i, name in enumerate(left)
        }

    def digest(self, change):
        self.neighbours(change.absent)
        parts = (change.epoch, change.previous, change.suspended, change.returned)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


@lru_cache(maxsize=100_000)
def signature(signer, statement):
    return hashlib.sha256(b"secret" + signed_bytes(FEDERATION, signer, statement)).hexdigest()


def signed(signer, statement):
    return Signed(statement, signer, "", signature(signer, statement))


def verify(one):
    return one.signature == signature(one.signer, one.statement)


def electorate(members, smallest=3):
    return Electorate(tuple(members), RingRosters(members, smallest), verify)


class World:
    def __init__(self, count=5, seed=0, smallest=3, loss=0.0, through_json=False):
        self.names = [f"n{i}" for i in range(count)]
        self.electorate = electorate(self.names, smallest)
        self.random, self.loss, self.through_json = random.Random(seed), loss, through_json
        self.now, self.tick = 0.0, PATIENCE / 20
        self.disk = dict.fromkeys(self.names, Votes(1, "base"))
        self.running, self.stopped = {}, set()
        self.groups = [set(self.names)]
        self.flying = []  # (arrival, order, sender, receiver, sheet)
        self.sent = 0
        self.decided = {}  # epoch → change
        self.steps = dict.fromkeys(self.names, 0)  # None: without a model
        self.entered = dict.fromkeys(self.names, 0)  # the epoch in which each member trains
        self.late_steps = defaultdict(int)  # after another member has entered a newer roster
        for name in self.names:
            self.start(name)

    def start(self, name):
        rules = Rules(
            name, self.electorate, PATIENCE, lambda one: signed(name, one), lambda: self.now
        )
        self.running[name] = Agreement(rules, self.disk[name], self.now)
        self.stopped.discard(name)

    def crash(self, name):
        self.running.pop(name, None)
        self.stopped.discard(name)

    def partition(self, *groups):
        self.groups = [set(group) for group in groups]

    def heal(self):
        self.groups = [set(self.names)]

    def connected(self, a, b):
        return any(a in group and b in group for group in self.groups)

    def active(self, name):
        return name in self.running and name not in self.stopped

    def roster(self, name):
        return self.running[name].roster

    def advance(self, ticks, loses_power=()):
        """Let time pass. Members in `loses_power` crash before they store what they decide next."""
        for _ in range(round(ticks)):
            self.now += self.tick
            for name in self.names:
                if self.active(name):
                    self.running[name].tick(self.now, self.steps[name] or 0)
                    self._after_input(name, loses_power)
            for name in self.names:
                if self.active(name):
                    self._broadcast(name)
            self._deliver(loses_power)
            self._train()

    def _after_input(self, name, loses_power=()):
        """Store votes before anything is sent; what is decided must be unique."""
        votes = self.running[name].votes
        if votes == self.disk[name]:
            return
        if name in loses_power:
            self.crash(name)
            return
        self.disk[name] = votes
        if votes.decision is not None:
            change = votes.decision.change
            known = self.decided.setdefault(change.epoch, change)
            assert known == change, f"two successors of epoch {change.epoch - 1}"

    def _broadcast(self, name):
        for other in self.names:
            if other != name and self.connected(name, other):
                for _ in range(self.random.choices([0, 1, 2], [self.loss, 1, self.loss])[0]):
                    delay = self.random.uniform(0, 1.5 if self.loss else 0.3) * self.tick
                    sheet = self.running[name].sheet_for(other)
                    self.sent += 1
                    self.flying.append((self.now + delay, self.sent, name, other, sheet))

    def _deliver(self, loses_power):
        due = sorted(one for one in self.flying if one[0] <= self.now + self.tick)
        self.flying = [one for one in self.flying if one[0] > self.now + self.tick]
        for _, _, sender, receiver, sheet in due:
            if self.active(receiver) and self.connected(sender, receiver):
                if self.through_json:
                    sheet = parse_sheet(to_json(sheet))
                self.running[receiver].receive(sender, sheet, self.now)
                self._after_input(receiver, loses_power)

    def _train(self):
        """One iteration of each member whose neighbours let it."""
        before, newest = dict(self.steps), max(self.entered.values())
        for name in self.names:
            if not self.active(name):
                continue
            roster = self.roster(name)
            if name in roster.absent:
                continue
            if self.entered[name] < roster.epoch:
                returns = {one.name: one.epoch for one in roster.returned}
                if returns.get(name, 0) > self.entered[name]:
                    before[name] = self.steps[name] = None
                self.entered[name] = roster.epoch
            near = self.electorate.rosters.neighbours(roster.absent)[name]
            here = [other for other in near if self.active(other) and self.connected(name, other)]
            same = [other for other in here if self.entered[other] == roster.epoch]
            if len(same) < len(near):
                continue
            known = [before[other] for other in same if before[other] is not None]
            if self.steps[name] is None:
                self.steps[name] = max(known, default=None)
            elif len(known) == len(near) and all(step >= self.steps[name] for step in known):
                self.steps[name] += 1
                if roster.epoch < newest:
                    self.late_steps[roster.epoch] += 1
                    assert self.late_steps[roster.epoch] <= len(self.names) ** 2, "two rosters"


class Contention:
    """Members that all propose something else at the same time; `chance` chooses what happens.

    Time stands still, so nothing but ballots decides.
    """

    def __init__(self, chance, count=5):
        self.chance = chance
        members = [f"n{i}" for i in range(count)]
        self.names = [name for name in members if name != "n1"]
        self.electorate, self.members, self.queue = electorate(members), {}, []
        self.disk = dict.fromkeys(self.names, Votes(1, "base"))
        # What they propose differs, as their clocks do.
        self.clocks = {name: 1000 + at for at, name in enumerate(self.names)}
        self.decided, self.now = {}, 0.0
        for name in self.names:
            self.restart(name)
        # n1 is silent until all endorse its suspension, and know it of each other.
        while self.now <= PATIENCE:
            self.now += 3.0
            for name in self.names:
                for other in self.names:
                    if other != name:
                        sheet = self.members[other].sheet_for(name)
                        self.members[name].receive(other, sheet, self.now)
                self.members[name].tick(self.now, 7)
                self.members[name]._last_progress = self.now + PATIENCE
        for name in self.names:
            self.store(name)

    def restart(self, name):
        """Crash and start again with what is on disk."""
        at = self.clocks[name]
        rules = Rules(name, self.electorate, PATIENCE, lambda one: signed(name, one), lambda: at)
        before = self.members.get(name)
        self.members[name] = Agreement(rules, self.disk[name], self.now)
        if before is not None:
            # It still hears nothing of n1.
            self.members[name].presence = before.presence
            self.members[name]._endorse(self.now)

    def store(self, name):
        self.disk[name] = votes = self.members[name].votes
        if votes.decision is not None:
            change = votes.decision.change
            known = self.decided.setdefault(change.epoch, change)
            assert known == change, f"two successors of epoch {change.epoch - 1}"

    def act(self):
        """One member starts a ballot; some messages between some members arrive; some crash."""
        chance = self.chance
        group = chance.sample(self.names, chance.choice([2, 3, 3, 4]))
        proposer = self.members[group[0]]
        proposer._promise(Ballot(proposer._highest_round + 1, group[0]))
        proposer._propose(self.now)
        self.store(group[0])
        for _ in range(chance.randrange(1, 5)):
            self.queue += [
                (name, other, self.members[name].sheet_for(other))
                for name in group
                for other in group
                if name != other and chance.random() < 0.7
            ]
            chance.shuffle(self.queue)
            # The others are late, or lost.
            arriving = [one for one in self.queue if one[1] in group]
            for sender, receiver, sheet in arriving[chance.choice([0, 0, len(arriving) // 2]) :]:
                self.members[receiver].receive(sender, sheet, self.now)
                self.store(receiver)
            self.queue = self.queue[-12:]
        for name in chance.sample(self.names, chance.choice([0, 0, 1, 1])):
            self.restart(name)
