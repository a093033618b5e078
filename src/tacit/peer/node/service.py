"""The RPC handlers of a node, and who may call them.

TLS has checked that a caller has a certificate of the federation's authority. The handlers decide
what that name may request: neighbours messages, members and the operator the status, and everyone
the signed manifest.
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
from tacit.peer.node.node_state import NodeState
from tacit.peer.wire import transport, wire_pb2 as wire
from tacit.peer.wire.chunks import from_wire, notice_chunk, split_message
from tacit.peer.wire.messages import Rejected

NOTICE_SECONDS = 2.0  # between two notices to a neighbour that waits for a message
MAX_CALLS = 4  # of one caller at a time, besides its stream of messages

M = TypeVar("M", bound=Message)


class Refused(Exception):
    """Ends a call with an error; `reason` is a label for the metrics, None to count nothing."""

    def __init__(self, code: StatusCode, reason: str | None, text: str) -> None:
        super().__init__(text)
        self.code, self.reason = code, reason


def threads_for(members: int) -> int:
    """Enough threads for every member, the operator and all others together to use their calls."""
    return (MAX_CALLS + 1) * (members + 2) + 8


class PeerService:
    def __init__(
        self, state: NodeState, admit: Callable[[str, str], None] = lambda peer, caller: None
    ) -> None:
        """`admit` is told the connection and name of each caller: see `tacit.peer.wire.gate`."""
        self._state, self._admit = state, admit
        self._streams: dict[str, Any] = {}  # the newest stream of each neighbour
        self._calls: Counter[str] = Counter()  # running calls by member; all others together
        self._lock = threading.Lock()

    def handlers(self) -> Any:
        """Generic handlers for a gRPC server. They parse requests, to count malformed ones."""
        return grpc.method_handlers_generic_handler(
            transport.SERVICE,
            {
                "Agree": self._unary(wire.AgreementSheet, self._agree, MAX_SHEET_BYTES),
                "Hello": self._unary(wire.NodeInfo, self._hello),
                "FetchMessages": grpc.stream_stream_rpc_method_handler(self._fetch_messages),
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
        federation = self._state.manifest.federation
        caller, fingerprint = transport.identify_caller(context, federation)
        try:
            if caller is None:
                text = f"the caller's certificate is not of federation {federation}"
                raise Refused(StatusCode.PERMISSION_DENIED, "another federation", text)
            log = self._state.changes.log
            is_accepted = log.accepts(caller, fingerprint)
            if not is_accepted and not even_revoked:
                text = f"the operator revoked this certificate of {caller}: "
                text += f"entry {log.revoked_in(caller)} of its log"
                raise Refused(StatusCode.PERMISSION_DENIED, "revoked", text)
            if is_accepted:
                self._admit(context.peer(), self._group(caller))
            yield caller
        except Refused as refusal:
            if refusal.reason is not None:
                sender = "unknown" if caller is None else caller
                self._state.reject(refusal.reason, sender, str(refusal))
            context.abort(refusal.code, str(refusal))
        except Exception as problem:
            if not context.is_active():
                raise  # the caller hung up
            event, fields = "internal error", {"caller": caller, "why": repr(problem)}
            key = (event, type(problem))
            self._state.event_log.write_throttled(30, key, event, "error", **fields)
            context.abort(StatusCode.INTERNAL, "internal error of this node: see its log")

    @contextmanager
    def _count_call(self, caller: str) -> Iterator[None]:
        """Limit the calls of one caller, so that it cannot take the threads of all others."""
        caller = self._group(caller)
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

    def _group(self, caller: str) -> str:
        """The caller; all callers that are not members share their limits."""
        return caller if self._is_member_or_operator(caller) else "others"

    def _is_member_or_operator(self, caller: str) -> bool:
        manifest = self._state.manifest
        return caller == OPERATOR or caller in manifest.names or caller in dict(manifest.suspended)

    def _hello(self, theirs: wire.NodeInfo, caller: str) -> wire.NodeInfo:
        if why := self._state.find_mismatch(theirs):
            raise Refused(StatusCode.FAILED_PRECONDITION, "configuration", why)
        return self._state.node_info()

    def _fetch_messages(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        state = self._state
        with self._guard(context) as caller:
            if caller not in state.active.outbox.readers:
                generation = state.manifest.generation
                text = f"{caller} gets no messages from {state.name} in generation {generation}"
                raise Refused(StatusCode.PERMISSION_DENIED, "not a neighbour", text)
            with self._lock:
                previous, self._streams[caller] = self._streams.get(caller), context
            if previous is not None:
                previous.cancel()  # left over from a broken connection: a neighbour uses one stream
            context.add_callback(lambda: state.active.outbox.wake())
            for raw in _until_hangup(requests):
                request = _parse(wire.FetchRequest, raw, transport.MAX_REQUEST_BYTES)
                yield from self._send(request, caller, context)

    def _send(self, request: wire.FetchRequest, caller: str, context: Any) -> Iterator[bytes]:
        """Yield notices until the message exists, then the message."""
        exchange, state = from_wire(request.exchange), self._state
        while context.is_active() and not state.stop.is_set():
            active, steps = state.active, state.progress.steps
            if exchange.generation != active.manifest.number:
                yield notice_chunk(state.progress_notice())
                return
            if 0 < steps < exchange.tick:
                text = f"iteration {exchange.tick} of {steps}"
                raise Refused(StatusCode.OUT_OF_RANGE, "future", text)
            if request.manifest_sha256 != active.manifest.hash:
                text = f"another manifest for generation {exchange.generation}"
                raise Refused(StatusCode.FAILED_PRECONDITION, "configuration", text)
            try:
                active.outbox.mark_saved(caller, request.saved_tick)
                message = active.outbox.get(exchange, caller, context.is_active, NOTICE_SECONDS)
            except Rejected as problem:
                raise Refused(StatusCode.OUT_OF_RANGE, problem.reason, str(problem)) from None
            except KeyError:  # the roster changed after the caller was checked
                return
            if message is not None:
                yield from split_message(message, transport.CHUNK_BYTES)
                active.outbox.mark_delivered(caller, exchange.tick)
                size = len(message.frame)
                state.metrics.count("tacit_sent_bytes_total", size, neighbour=caller)
                state.metrics.count("tacit_messages_sent_total", neighbour=caller)
                return
            yield notice_chunk(state.progress_notice())

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
        if not self._is_member_or_operator(caller):
            text = f"{caller} is not a member"
            raise Refused(StatusCode.PERMISSION_DENIED, "not a member", text)

    def _get_manifest(self, _: wire.Empty, caller: str) -> wire.SignedManifest:
        return self._state.signed_update()

    def _agree(self, sheet: wire.AgreementSheet, caller: str) -> wire.AgreementSheet:
        agreement = self._state.agreement
        if agreement is None or caller == OPERATOR or not self._is_member_or_operator(caller):
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
