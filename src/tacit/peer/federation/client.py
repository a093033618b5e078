"""Asking the nodes of a federation how they are, and telling them of a new roster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tacit.peer.federation.identity import Credentials
from tacit.peer.federation.manifest import Manifest, Member
from tacit.peer.node.state import plain_status
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.transport import SERVICE, channel

LONGEST, MOST = (
    300,
    100,
)  # characters of a text that a node says of itself, and names in a list of them


@dataclass(frozen=True, eq=False)
class NodeReport:
    """What a node answered: its status, or why there is none."""

    member: Member
    status: wire.Status | None
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain = {
            "name": self.member.name,
            "address": self.member.address,
            "reached": self.status is not None,
        }
        told = {"problem": self.problem} if self.status is None else plain_status(self.status)
        return {**plain, **told}


class FederationClient:
    """Channels to all nodes of a federation, to ask them as often as needed."""

    def __init__(self, manifest: Manifest, own: Credentials, ca: bytes) -> None:
        self._members = manifest.members
        self._channels = [
            channel(member.address, member.name, manifest.federation, own, ca)
            for member in manifest.members
        ]

    def status(self, seconds: float = 3.0) -> list[NodeReport]:
        """How all nodes are, asked at once; those that do not answer within so many seconds are not reached."""
        raws = self._ask("Tell", b"", seconds)
        return [_answer(member, raw) for member, raw in zip(self._members, raws, strict=True)]

    def announce(self, text: bytes, signature: bytes, seconds: float = 5.0) -> dict[str, str]:
        """Tell all nodes of a new manifest; empty text for those that took it, for the others why not."""
        signed = wire.SignedManifest(manifest=text, signature=signature).SerializeToString()
        told = self._ask("Announce", signed, seconds)
        names = [member.name for member in self._members]
        return {
            name: raw if isinstance(raw, str) else "" for name, raw in zip(names, told, strict=True)
        }

    def close(self) -> None:
        """Give the connections up."""
        for one in self._channels:
            one.close()

    def _ask(self, method: str, raw: bytes, seconds: float) -> list[bytes | str]:
        calls = [
            one.unary_unary(f"/{SERVICE}/{method}").future(raw, timeout=seconds)
            for one in self._channels
        ]
        return [_outcome(call) for call in calls]


def _outcome(call: Any) -> bytes | str:
    """What came back, or why nothing did."""
    try:
        answer: bytes = call.result()
    except grpc.RpcError as problem:
        return in_short(problem)
    return answer


def in_short(problem: Any) -> str:
    """Why a call failed, without gRPC's layers around it."""
    text = str(problem.details() or problem.code().name)
    short = {"Connection refused": "connection refused", "Deadline Exceeded": "no answer in time"}
    return next((said for known, said in short.items() if known in text), _tame(text))


def _answer(member: Member, raw: bytes | str) -> NodeReport:
    if isinstance(raw, str):
        return NodeReport(member, None, raw)
    try:
        status = wire.Status.FromString(raw)
    except DecodeError:
        return NodeReport(member, None, "its answer cannot be read")
    for text in ("name", "phase", "problem", "version"):
        setattr(status, text, _tame(getattr(status, text)))
    status.waiting_for[:] = [_tame(name) for name in status.waiting_for[:MOST]]
    return NodeReport(member, status)


def _tame(text: str) -> str:
    """What a node says, for a terminal: without characters that control it, and no book."""
    return "".join(one if one.isprintable() else "�" for one in text[:LONGEST])
