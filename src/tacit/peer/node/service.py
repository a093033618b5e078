"""The RPC handlers of a node, and who may call them.

TLS has checked that a caller has a certificate of the federation's authority. The handlers decide
what that name may request: members and the operator the status, and everyone the signed manifest.
Messages have streams of their own: see tacit.peer.node.message_server.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from tacit.peer.agreement.statements import MAX_SHEET_BYTES
from tacit.peer.federation.certificates import OPERATOR
from tacit.peer.node.callers import Caller, Refused, is_member_or_operator
from tacit.peer.node.node_state import NodeState
from tacit.peer.wire import transport, wire_pb2 as wire
from tacit.peer.wire.messages import Rejected

MAX_CALLS = 4  # of one caller at a time

M = TypeVar("M", bound=Message)


def threads_for(members: int) -> int:
    """Enough threads for every member, the operator and all others together to use their calls."""
    return (MAX_CALLS + 1) * (members + 2) + 8


class PeerService:
    def __init__(
        self, state: NodeState, admit: Callable[[str, str], None] = lambda peer, caller: None
    ) -> None:
        """`admit` is told the connection and name of each caller: see `tacit.peer.wire.gate`."""
        self._state, self._admit = state, admit
        self._calls: Counter[str] = Counter()  # running calls by member; all others together
        self._lock = threading.Lock()

    def handlers(self) -> Any:
        """Generic handlers for a gRPC server. They parse requests, to count malformed ones."""
        return grpc.method_handlers_generic_handler(
            transport.SERVICE,
            {
                "Agree": self._unary(wire.AgreementSheet, self._agree, MAX_SHEET_BYTES),
                "Hello": self._unary(wire.NodeInfo, self._hello),
                "NotifyFinished": self._unary(wire.Finished, self._notify_finished),
                "GetStatus": self._unary(wire.Empty, self._get_status),
                "GetScores": self._unary(wire.Empty, self._get_scores),
                "GetManifest": self._unary(wire.Empty, self._get_manifest),
                "AnnounceManifest": self._unary(
                    wire.SignedManifest,
                    self._announce_manifest,
                    transport.MAX_MANIFEST_BYTES,
                    # After a revocation, a member brings the log that has its new certificate.
                    even_revoked=True,
                ),
                "CompareDigests": self._unary(
                    wire.DigestRequest, self._compare_digests, transport.MAX_DIGEST_BYTES
                ),
            },
        )

    def _unary(
        self,
        kind: type[M],
        answer: Callable[[M, str], Message],
        limit: int = transport.MAX_REQUEST_BYTES,
        *,
        even_revoked: bool = False,
    ) -> Any:
        """A handler of single requests; it checks the caller first, as a request may never come."""

        def handle(requests: Iterator[bytes], context: Any) -> bytes:
            with self._guard(context, even_revoked) as caller, self._count_call(caller):
                raw = next(_until_hangup(requests), None)
                if raw is not None:
                    return answer(_parse(kind, raw, limit), caller).SerializeToString()
                if context.is_active():
                    text = "a call without a request"
                    raise Refused(StatusCode.INVALID_ARGUMENT, "malformed", text)
                return b""

        return grpc.stream_unary_rpc_method_handler(handle)

    @contextmanager
    def _guard(self, context: Any, even_revoked: bool = False) -> Iterator[str]:
        """Yield the caller's name; log errors of the block and end the call with them."""
        caller = Caller(self._state, transport.caller_certificate(context))
        try:
            name = caller.identified(even_revoked=even_revoked)
            if not caller.is_revoked:
                self._admit(context.peer(), caller.group)
            yield name
        except Refused as refusal:
            caller.log_refusal(refusal)
            context.abort(refusal.code, str(refusal))
        except Exception as problem:
            if not context.is_active():
                raise  # the caller hung up
            caller.log_error(problem)
            context.abort(StatusCode.INTERNAL, "internal error of this node: see its log")

    @contextmanager
    def _count_call(self, caller: str) -> Iterator[None]:
        """Limit the calls of one caller, so that it cannot take the threads of all others."""
        if not is_member_or_operator(self._state, caller):
            caller = "others"
        with self._lock:
            self._calls[caller] += 1
            too_many = self._calls[caller] > MAX_CALLS
        try:
            if too_many:
                text = f"{MAX_CALLS} calls of {caller} are running already"
                raise Refused(StatusCode.RESOURCE_EXHAUSTED, "too many calls", text)
            yield
        finally:
            with self._lock:
                self._calls[caller] -= 1

    def _hello(self, theirs: wire.NodeInfo, caller: str) -> wire.NodeInfo:
        if why := self._state.find_mismatch(theirs):
            raise Refused(StatusCode.FAILED_PRECONDITION, "configuration", why)
        return self._state.node_info()

    def _notify_finished(self, end: wire.Finished, caller: str) -> wire.Empty:
        active, steps = self._state.active, self._state.progress.steps
        at_end = (end.generation, end.tick) == (active.manifest.number, steps)
        if caller not in active.outbox.readers or not at_end:
            when = f"iteration {end.tick} of generation {end.generation}"
            text = f"{caller} cannot have finished at {when}"
            raise Refused(StatusCode.FAILED_PRECONDITION, "not finished", text)
        try:
            active.finished_peers.add(caller)
        except OSError as problem:  # the neighbour repeats the call until the disk has space
            text = f"cannot be saved: {problem.strerror}"
            raise Refused(StatusCode.UNAVAILABLE, None, text) from None
        return wire.Empty()

    def _get_status(self, _: wire.Empty, caller: str) -> wire.Status:
        self._check_member(caller)
        return self._state.status(scores=self._state.shares_scores)

    def _get_scores(self, _: wire.Empty, caller: str) -> wire.Scores:
        self._check_member(caller)
        return self._state.scores.to_wire() if self._state.shares_scores else wire.Scores()

    def _check_member(self, caller: str) -> None:
        if not is_member_or_operator(self._state, caller):
            text = f"{caller} is not a member"
            raise Refused(StatusCode.PERMISSION_DENIED, "not a member", text)

    def _get_manifest(self, _: wire.Empty, caller: str) -> wire.SignedManifest:
        return self._state.signed_update()

    def _agree(self, sheet: wire.AgreementSheet, caller: str) -> wire.AgreementSheet:
        agreement, is_known = self._state.agreement, is_member_or_operator(self._state, caller)
        if agreement is None or caller == OPERATOR or not is_known:
            text = f"{caller} and {self._state.name} have nothing to agree on"
            raise Refused(StatusCode.FAILED_PRECONDITION, None, text)
        try:
            return wire.AgreementSheet(content=agreement.answer(caller, sheet.content))
        except ValueError as problem:
            text = f"{len(sheet.content)} bytes that are no sheet: {problem}"
            raise Refused(StatusCode.INVALID_ARGUMENT, "malformed", text) from None
        except OSError as problem:  # the caller repeats the call until the disk has space
            text = f"cannot be saved: {problem.strerror}"
            raise Refused(StatusCode.UNAVAILABLE, None, text) from None

    def _announce_manifest(self, signed: wire.SignedManifest, caller: str) -> wire.Empty:
        if why := self._state.receive_manifest(signed, caller):
            raise Refused(StatusCode.FAILED_PRECONDITION, None, why)
        return wire.Empty()

    def _compare_digests(self, request: wire.DigestRequest, caller: str) -> wire.SignedDigestLists:
        state = self._state
        if caller not in state.manifest.names:
            text = f"{caller} is not a member"
            raise Refused(StatusCode.PERMISSION_DENIED, "not a member", text)
        # A node that has just changed to a roster knows the salts of its members a little later.
        if request.generation != state.witness.generation:
            return wire.SignedDigestLists()
        try:
            for signed in request.known.lists:
                state.witness.receive(signed, caller)
        except Rejected as problem:
            raise Refused(StatusCode.INVALID_ARGUMENT, problem.reason, str(problem)) from None
        lists = state.witness.own_lists(request.after, state.folder.credentials)
        return wire.SignedDigestLists(lists=[one.signed for one in lists])


def _parse(kind: type[M], raw: bytes, limit: int) -> M:
    try:
        if len(raw) > limit:
            raise DecodeError(f"{len(raw)} bytes")
        return kind.FromString(raw)
    except DecodeError:
        text = f"{len(raw)} bytes that are no {kind.DESCRIPTOR.name}"
        raise Refused(StatusCode.INVALID_ARGUMENT, "malformed", text) from None


def _until_hangup(requests: Iterator[bytes]) -> Iterator[bytes]:
    """Yield requests until the caller hangs up.

    gRPC keeps the exception that it raises then. Through its traceback the exception would keep the
    call open until the next garbage collection, and a connection may have few open calls.
    """
    try:
        yield from requests
    except grpc.RpcError as hangup:
        hangup.__traceback__ = None
