"""What a node knows about who sent what: finds members that tell different nodes different things.

Where an algorithm sends one row to all neighbours, a member that sends them different rows is not
noticed by any of them alone. So every node signs lists of the digests of what it has sent, and

- compares a neighbour's list with the messages that it received from it. If they differ, it refuses
  further messages of this neighbour; that is its own observation, which proves nothing to others;
- passes the lists on, and compares those that reach it. Two lists of one member with different
  digests are a proof (`tacit.peer.federation.equivocation`), which it keeps in a file.

A list is believed if its sender signed it, for the active roster and with the salt that all members
agreed on. Nothing else that another member says about a third one is believed.

What is not found: a member all of whose neighbours lie with it, or are connected only through it or
through liars; and messages of the last iterations, if nodes end before the lists have reached all.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tacit.core import storage
from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import Credentials
from tacit.peer.federation.equivocation import (
    MAX_SENT,
    DigestList,
    Exchange,
    Proof,
    Sender,
    read_proof,
    sign_list,
    verify_list,
)
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.messages import ExchangeId, Rejected

KEPT = 2 * MAX_SENT  # digests of what this node has sent
MAX_KEPT = 4 * KEPT  # digests in all kept lists of one member, which may sign as many as it likes
# Comparisons without a list that covers a message, before further messages are refused. Only those
# count before which something was received: an outage is no refusal to sign.
UNSIGNED = 120


@dataclass(frozen=True, eq=False)
class _Kept:
    """A list, with its number in the order of arrival."""

    number: int
    fingerprint: bytes
    found: DigestList


@dataclass(eq=False)
class _Known:
    """What is known of one member under the active roster."""

    lists: deque[_Kept] = field(default_factory=deque)
    size: int = 0  # digests in these lists
    signed: dict[Exchange, DigestList] = field(default_factory=dict)
    # Not signed yet: the digest, and the number of comparisons until then.
    received: dict[Exchange, tuple[bytes, int]] = field(default_factory=dict)
    compared: int = 0
    is_heard: bool = False  # since the last comparison
    last: int = 0  # tick up to which its own lists have reached this node


class DigestWitness:
    """The digests that one node knows, and the members that it has found to lie. Thread-safe.

    Args:
        folder: Where proofs are kept.
        ca: Reads the certificate of the authority.
        on_proof: Called with each new proof, and the file that it is kept in.
    """

    def __init__(
        self, folder: Path, ca: Callable[[], bytes], on_proof: Callable[[Proof, Path], None]
    ) -> None:
        self._folder, self._ca, self._on_proof = folder, ca, on_proof
        self._lock = threading.RLock()
        self.refused: dict[str, str] = {}  # why messages of a member are refused
        self._proved: set[str] = set()
        self._senders: dict[str, Sender] = {}
        self._own: Sender | None = None
        self._clear()
        self._load_proofs()

    def begin(
        self, name: str, senders: Mapping[str, Sender], sent: Mapping[Exchange, bytes]
    ) -> None:
        """Start with a roster: who may send what, and what this node has sent before a restart."""
        with self._lock:
            self._clear()
            self._senders, self._own = dict(senders), senders[name]
            for exchange in sorted(sent)[-KEPT:]:
                self._note_sent(exchange, sent[exchange])

    def _clear(self) -> None:
        self._known: defaultdict[str, _Known] = defaultdict(_Known)
        self._sent: dict[Exchange, bytes] = {}
        self._own_lists: deque[DigestList] = deque()
        self._lists: dict[int, DigestList] = {}  # of others, by number
        self._seen: dict[bytes, DigestList] = {}  # the same by fingerprint
        self._arrived = 0  # lists of others so far
        self._newest, self._finished = 0, False

    # What this node sends.

    def record_sent(self, exchange: ExchangeId, digest: bytes) -> None:
        """Note the digest of what this node sends in an exchange."""
        with self._lock:
            self._note_sent((exchange.tick, exchange.index), digest)

    def _note_sent(self, exchange: Exchange, digest: bytes) -> None:
        if exchange[0]:
            self._sent[exchange] = digest
            self._newest = max(self._newest, exchange[0])
        while len(self._sent) > KEPT:
            del self._sent[next(iter(self._sent))]

    def finish(self) -> None:
        """This node sends nothing more: the last iteration is complete."""
        with self._lock:
            self._finished = True

    def own_lists(self, after: int, credentials: Callable[[], Credentials]) -> list[DigestList]:
        """Signed lists of what this node has sent after a tick, without the current iteration."""
        with self._lock:
            if self._own is None:
                return []
            begin = self._own_lists[-1].last if self._own_lists else 0
            end = self._newest if self._finished else self._newest - 1
            new = {one: digest for one, digest in self._sent.items() if begin < one[0] <= end}
            if new:
                own = credentials()
                for part, (first, last) in _parts(new, begin):
                    self._own_lists.append(sign_list(self._own, first, last, part, own))
                while sum(len(one.digests) for one in self._own_lists) > KEPT:
                    self._own_lists.popleft()
            return [one for one in self._own_lists if one.last > after]

    # What this node receives.

    def record_received(self, name: str, exchange: ExchangeId, sha256: bytes) -> None:
        """Note a message that a neighbour sends to all alike.

        Raises:
            Rejected: The neighbour has signed another one, or does not sign what it sends.
        """
        place, digest = (exchange.tick, exchange.index), digest_of_one(sha256)
        with self._lock:
            self.check(name)
            if name not in self._senders or not exchange.tick:
                return
            known = self._known[name]
            known.is_heard = True
            if (earlier := known.signed.get(place)) is None:
                known.received[place] = digest, known.compared
            elif earlier.digests[place] != digest:
                self._refuse_contradiction(name, place)
                self.check(name)
            _, oldest = next(iter(known.received.values()), (b"", known.compared))
            if known.compared - oldest > UNSIGNED:
                raise Rejected("unsigned", f"{name} does not sign the digests of what it sends")

    def check(self, name: str) -> None:
        """Raise Rejected if messages of a member are refused."""
        if why := self.refused.get(name):
            raise Rejected("equivocation", why)

    def note_comparison(self, name: str) -> None:
        """Count that a neighbour was asked for its lists."""
        with self._lock:
            known = self._known[name]
            known.compared += known.is_heard
            known.is_heard = False

    @property
    def generation(self) -> int | None:
        """The version of the roster that is compared; None before the first."""
        return None if self._own is None else self._own.generation

    def last_signed(self, name: str) -> int:
        """The tick up to which a neighbour's lists have reached this node."""
        with self._lock:
            return self._known[name].last if name in self._known else 0

    def receive(self, signed: wire.SignedDigestList, source: str) -> None:
        """Compare a list, which `source` sent, with all that is known of its sender.

        Raises:
            Rejected: The list is not what its sender signed; nothing changes.
        """
        fingerprint = hashlib.sha256(signed.list + signed.signature).digest()
        with self._lock:
            found = self._seen.get(fingerprint)
        if found is None:
            found = self._verified(signed)
        with self._lock:
            if self._senders.get(found.sender.name) != found.sender:
                text = f"a list of digests of {found.sender.name}, but of another roster or start"
                raise Rejected("digests", text)
            if fingerprint not in self._seen:
                self._add(fingerprint, found)
            if source == found.sender.name:
                self._cover(found)

    def _verified(self, signed: wire.SignedDigestList) -> DigestList:
        try:
            return verify_list(signed, self._ca())
        except Misuse as problem:
            raise Rejected("digests", str(problem)) from None

    def _add(self, fingerprint: bytes, found: DigestList) -> None:
        kept, known = _Kept(self._arrived, fingerprint, found), self._known[found.sender.name]
        self._arrived += 1
        self._seen[fingerprint] = self._lists[kept.number] = found
        known.lists.append(kept)
        known.size += 1 + len(found.digests)
        self._compare(found)
        while known.size > MAX_KEPT:
            self._forget(known, known.lists.popleft())

    def _forget(self, known: _Known, kept: _Kept) -> None:
        known.size -= 1 + len(kept.found.digests)
        del self._seen[kept.fingerprint], self._lists[kept.number]
        for place in kept.found.digests:
            if known.signed.get(place) is kept.found:
                del known.signed[place]

    def _compare(self, found: DigestList) -> None:
        name, known = found.sender.name, self._known[found.sender.name]
        for place, digest in found.digests.items():
            earlier = known.signed.setdefault(place, found)
            if earlier.digests[place] != digest:
                self._keep(Proof.of(earlier, found))
            received = known.received.get(place)
            if received is not None and received[0] != digest:
                self._refuse_contradiction(name, place)

    def _cover(self, found: DigestList) -> None:
        """Take a neighbour's own list as complete: what it sent here must be in it."""
        name, known = found.sender.name, self._known[found.sender.name]
        known.last = max(known.last, found.last)
        for place in [place for place in known.received if place[0] <= found.last]:
            del known.received[place]
            if place not in known.signed:
                self._refuse_contradiction(name, place)

    def _refuse_contradiction(self, name: str, place: Exchange) -> None:
        why = (
            f"{name} has signed that it sent something else in iteration {place[0]} than it sent "
            "to this node"
        )
        self.refused.setdefault(name, why)

    # What is passed on.

    def lists_since(self, number: int, name: str, most: int) -> tuple[int, wire.SignedDigestLists]:
        """Up to so many bytes of lists that arrived after the first `number`, for a neighbour.

        Returns how many have then been passed on, and the lists.
        """
        with self._lock:
            chosen: list[wire.SignedDigestList] = []
            size = 0
            for place, one in self._lists.items():
                if place < number:
                    continue
                size += one.signed.ByteSize()
                if chosen and size > most:
                    return place, wire.SignedDigestLists(lists=chosen)
                if one.sender.name != name:
                    chosen.append(one.signed)
            number = self._arrived
            return number, wire.SignedDigestLists(lists=chosen)

    # Proofs.

    def _keep(self, proof: Proof) -> None:
        path = self._folder / f"equivocation-{proof.name}.json"
        if proof.name in self._proved:
            return
        self._proved.add(proof.name)
        self.refused[proof.name] = f"{proof.statement}: {path.name} proves it"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            storage.write_text(path, proof.to_json(), durable=True)
        except OSError:
            # It will be found again after a restart: other nodes have the lists.
            self.refused[proof.name] = f"{proof.statement}; the disk has no room for the proof"
        self._on_proof(proof, path)

    def _load_proofs(self) -> None:
        """A member that was proved to lie is not believed again after a restart."""
        for path in sorted(self._folder.glob("equivocation-*.json")):
            try:
                proof = read_proof(path, self._ca())
            except Misuse:
                continue
            self._proved.add(proof.name)
            self.refused[proof.name] = f"{proof.statement}: {path.name} proves it"


def digest_of_one(sha256: bytes) -> bytes:
    """The digest, in a list, of an exchange with one message to all neighbours."""
    return hashlib.sha256(sha256).digest()


def _parts(
    digests: Mapping[Exchange, bytes], begin: int
) -> list[tuple[dict[Exchange, bytes], tuple[int, int]]]:
    """Digests in lists of at most MAX_SENT, by whole ticks, and the range of ticks of each."""
    parts: list[tuple[dict[Exchange, bytes], tuple[int, int]]] = []
    part: dict[Exchange, bytes] = {}
    for exchange in sorted(digests):
        if len(part) >= MAX_SENT // 2 and exchange[0] > max(part)[0]:
            parts.append((part, (begin, max(part)[0])))
            part, begin = {}, max(part)[0]
        part[exchange] = digests[exchange]
    return [*parts, (part, (begin, max(part)[0]))]
