"""gRPC client for all nodes of a federation: query their status, announce a new manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError, Message

from tacit.core.missing_numbers import finite_or_none
from tacit.peer.federation.certificates import Credentials
from tacit.peer.federation.change_log import ChangeLog
from tacit.peer.federation.manifest import Manifest
from tacit.peer.federation.relays import known_relays
from tacit.peer.federation.roster import OUTGOING, Member
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.transport import SERVICE, open_channel

if TYPE_CHECKING:
    from tacit.peer.relay.dialer import RelayDialer

MAX_CHARACTERS = 300  # of a text from a node
MAX_NAMES = 100  # of a list from a node
MAX_STEP = 1 << 53  # what every reader of JSON can hold
MAX_SCORES = 1_000  # of a node
SHORT_ERRORS = {
    "Connection refused": "connection refused",
    "Deadline Exceeded": "no answer in time",
}

Score = tuple[int, float | None, float | None]  # step, loss, accuracy in percent


@dataclass(frozen=True, eq=False)
class NodeReport:
    """The status of a node, or the reason why there is none."""

    member: Member
    status: wire.Status | None
    problem: str = ""
    relay: str = ""  # through which it was reached

    def as_dict(self, finished: bool = False) -> dict[str, Any]:
        """JSON values; `finished` says whether a node that was not reached is known to be."""
        report = {"name": self.member.name, "address": self.member.address, "relay": self.relay}
        if self.status is None:
            return report | {"reached": False, "problem": self.problem, "finished": finished}
        # Last, so that no node passes for another.
        return {"reached": True} | status_to_dict(self.status) | report


class FederationClient:
    def __init__(
        self,
        manifest: Manifest,
        own: Credentials,
        ca: bytes,
        log: ChangeLog | None = None,
        relay_log: ChangeLog | None = None,
    ) -> None:
        """Open a channel to each member.

        Args:
            manifest: Members and addresses.
            own: Credentials of the operator or of a node.
            ca: Certificate of the authority, as PEM.
            log: The operator's log. With it, nodes with a revoked certificate are not called.
            relay_log: A log that only names relays, if `log` is not given.
        """
        log = log or ChangeLog()
        self._relay_log = relay_log or log
        self._user = (manifest.federation, ca, lambda: own, lambda: self._relay_log)
        self._dialer: RelayDialer | None = None
        self._members = manifest.members
        self._channels = [
            open_channel(self._reach(member), member.name, manifest.federation, own, roots)
            if (roots := log.trusted_roots(member.name, ca))
            else None
            for member in manifest.members
        ]

    def status(self, seconds: float = 3.0) -> list[NodeReport]:
        """Query all nodes in parallel, with this timeout."""
        answers = self._call_all("GetStatus", b"", seconds)
        return [
            _report(member, raw, self._relay_of(member))
            for member, raw in zip(self._members, answers, strict=True)
        ]

    def scores(self, seconds: float = 3.0) -> dict[str, list[Score]]:
        """Past scores of the nodes that tell them, by name; at most MAX_SCORES of each."""
        answers = self._call_all("GetScores", b"", seconds)
        found = zip(self._members, answers, strict=True)
        return {member.name: points for member, raw in found if (points := _scores(raw))}

    def announce(
        self, text: bytes, signature: bytes, log: bytes = b"", seconds: float = 5.0
    ) -> dict[str, str]:
        """Send a new manifest and the log of all changes to all nodes.

        Returns why each node refused it, "" if it did not.
        """
        signed = wire.SignedManifest(manifest=text, signature=signature, log=log)
        answers = self._call_all("AnnounceManifest", signed.SerializeToString(), seconds)
        return {
            member.name: answer if isinstance(answer, str) else ""
            for member, answer in zip(self._members, answers, strict=True)
        }

    def close(self) -> None:
        for each in self._channels:
            if each is not None:
                each.close()
        if self._dialer is not None:
            self._dialer.close()

    def announce_to_relays(self) -> dict[str, bool]:
        """Send the log to all relays; return which of them have got it."""
        dialer = self._relay_dialer()
        relays = known_relays(self._relay_log, self._user[1])
        return {relay.name: dialer.send_log(relay) for relay in relays}

    def _reach(self, member: Member) -> str:
        """The address to connect to."""
        if member.address != OUTGOING:
            return member.address
        return self._relay_dialer().address(member.name)

    def _relay_of(self, member: Member) -> str:
        return "" if self._dialer is None else self._dialer.relay_of(member.name)

    def _relay_dialer(self) -> RelayDialer:
        # Imported here because few federations need it, and asyncio takes a while.
        from tacit.peer.relay.client import RelayUser
        from tacit.peer.relay.dialer import RelayDialer

        self._dialer = self._dialer or RelayDialer(RelayUser(*self._user))
        return self._dialer

    def _call_all(self, method: str, request: bytes, seconds: float) -> list[bytes | str]:
        """The answer of each node, or as text why there is none."""
        calls = [
            each and each.unary_unary(f"/{SERVICE}/{method}").future(request, timeout=seconds)
            for each in self._channels
        ]
        answers = [_answer(call) if call else "its certificate is revoked" for call in calls]
        if self._dialer is None:
            return answers
        # What gRPC says about a socket of this machine helps no one.
        problems = [self._dialer.problem(member.name) for member in self._members]
        return [
            problem if isinstance(answer, str) and problem else answer
            for answer, problem in zip(answers, problems, strict=True)
        ]


def _answer(call: Any) -> Any:
    """The answer to a call, or as text why there is none, without the details of gRPC."""
    try:
        return call.result()
    except grpc.RpcError as problem:
        text = str(problem.details() or problem.code().name)
        known = (short for long, short in SHORT_ERRORS.items() if long in text)
        return next(known, _printable(text))


def _report(member: Member, answer: bytes | str, relay: str = "") -> NodeReport:
    if isinstance(answer, str):
        return NodeReport(member, None, answer)
    try:
        status = wire.Status.FromString(answer)
    except DecodeError:
        return NodeReport(member, None, "its answer cannot be parsed")
    for field in ("name", "phase", "problem", "version", "certificate_notice"):
        setattr(status, field, _printable(getattr(status, field)))
    for one in status.suspended:
        one.name = _printable(one.name)
    status.waiting_for[:] = [_printable(name) for name in status.waiting_for[:MAX_NAMES]]
    return NodeReport(member, status, relay=relay)


def _scores(answer: bytes | str) -> list[Score]:
    """The finite points of an answer in the order of their steps; none if it makes no sense."""
    try:
        scores = wire.Scores.FromString(answer if isinstance(answer, bytes) else b"")
        rows = list(zip(scores.step, scores.loss, scores.accuracy, strict=True))
    # DecodeError, and ValueError for lists of different lengths.
    except (DecodeError, ValueError):
        return []
    points = {
        step: (step, finite_or_none(loss), finite_or_none(accuracy))
        for step, loss, accuracy in rows
        if step < MAX_STEP
    }
    return [points[step] for step in sorted(points)[-MAX_SCORES:]]


def _printable(text: str) -> str:
    """A text from a node, cut and without characters that control a terminal."""
    return "".join(each if each.isprintable() else "�" for each in text[:MAX_CHARACTERS])


def status_to_dict(status: wire.Status) -> dict[str, Any]:
    """A status as plain values.

    Loss, accuracy and baseline are None before the first evaluation, privacy without a promised
    guarantee.
    """
    values = _values(status)
    values["privacy"] = _values(status.privacy)
    for optional in ("loss", "accuracy", "baseline", "privacy"):
        values[optional] = values[optional] if status.HasField(optional) else None
    return {
        **values,
        "waiting_for": list(status.waiting_for),
        "suspended": {one.name: one.since for one in status.suspended},
        "manifest": status.manifest.hex(),
    }


def _values(message: Message) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}
