"""Fetches the messages of one neighbour, and retries until they arrive."""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode
from torch import Tensor

from tacit.peer.federation.roster import OUTGOING, Member
from tacit.peer.monitoring.event_log import Level
from tacit.peer.node.member_channel import MemberChannel
from tacit.peer.node.node_state import NodeState, Stopped
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.message_stream import MessageStream, StreamRefused, to_wire
from tacit.peer.wire.messages import (
    FINAL_REASONS,
    ExchangeId,
    ExpectedMessage,
    Rejected,
    Tensors,
    WireMessage,
)
from tacit.peer.wire.transport import SERVICE

MIN_PAUSE, MAX_PAUSE = 0.05, 3.0  # seconds between attempts, doubled each time
REFUSALS = 3  # of one message in a row, after which the pauses grow to MAX_REFUSED_PAUSE
MAX_REFUSED_PAUSE = 300.0
CALL_TIMEOUT = 10.0  # seconds
FINISHED_TIMEOUT = 2.0
MAX_NAMES = 4  # of nodes that a neighbour says it waits for
MAX_REPORT = 200  # characters
UNREACHABLE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class RosterChanged(Exception):
    """The neighbour uses the roster of another generation."""


class NeighbourClient:
    """Client of one in-neighbour. One thread calls `request` and `receive`, any may `cancel`."""

    def __init__(self, state: NodeState, member: Member) -> None:
        self.member = member
        self.report = ""  # what is known about a neighbour that this node waits for
        self.refusal = ""  # why its message is refused, if it has sent it several times
        self.generation = state.manifest.number
        self._state = state
        self._channel = MemberChannel(state, member)
        self._unsubscribe = state.changes.subscribe(lambda _: self._follow_changes())
        self._stream: MessageStream | None = None
        self._wanted: tuple[ExchangeId, int] | None = None  # what `receive` waits for
        self._requested: ExchangeId | None = None  # what the neighbour has not sent yet
        self._cancelled = threading.Event()
        self._refused = 0  # how often the awaited message was refused

    def request(self, exchange: ExchangeId, saved: int) -> None:
        """Request a message, without waiting. Those up to tick `saved` are not needed again."""
        self._wanted = (exchange, saved)
        if self._requested not in (None, exchange):
            self._close_stream()  # `request_early` has guessed wrong
        self.request_early(exchange, saved)

    def request_early(self, exchange: ExchangeId, saved: int) -> None:
        """Request a message that will probably be wanted next, so that it is sent at once."""
        if self._stream is not None and self._requested is None:
            try:
                self._send(self._stream, exchange, saved)
            except OSError:  # `receive` opens another
                self._close_stream()

    def receive(
        self,
        expected: ExpectedMessage,
        decode: Callable[[dict[str, Tensor]], Tensors],
        on_wait: Callable[[], None],
        frame: bytearray | None = None,
        keep: Callable[[WireMessage], None] | None = None,
    ) -> Tensors:
        """Wait for the requested message, retrying as long as necessary.

        Raises Stopped after `cancel`. `decode` turns the tensors into the result and may raise
        Rejected; `on_wait` is called from time to time while nothing arrives. The tensors share the
        memory of `frame`, if it is given; it has the size of the message. `keep` gets the message
        once it is accepted.

        A message that is refused again and again sets `refusal`. This node then keeps its state and
        asks ever less often: the sender may be repaired, or removed from the roster.
        """
        metrics, name, begin = self._state.metrics, self.member.name, time.monotonic()
        longest, self._refused = MIN_PAUSE, 0
        frame = bytearray(expected.size) if frame is None else frame

        def fetch() -> Tensors:
            sha256 = self._fetch(expected, frame, on_wait)
            received = expected.unpack(frame)
            # What goes to all neighbours alike is compared with theirs.
            if not expected.envelope.receiver:
                self._state.witness.record_received(name, expected.envelope.exchange, sha256)
            tensors = decode(received)
            if keep is not None:
                keep(WireMessage(expected.envelope, memoryview(frame), sha256))
            return tensors

        while not self._cancelled.is_set():
            found = self._attempt(fetch)
            if found is not None:
                self.report, self.refusal = "", ""
                metrics.count("tacit_received_bytes_total", expected.size, neighbour=name)
                metrics.count("tacit_messages_received_total", neighbour=name)
                metrics.count("tacit_wait_seconds_total", time.monotonic() - begin, neighbour=name)
                return found
            self._close_stream()
            on_wait()
            metrics.count("tacit_retries_total", neighbour=name)
            # Longer each time, and randomly so that nodes spread out.
            self._cancelled.wait(longest * random.uniform(0.5, 1.0))
            most = MAX_REFUSED_PAUSE if self.refusal else MAX_PAUSE
            longest = min(most, 2 * longest)
        raise Stopped

    def notify_finished(self, generation: int, tick: int) -> bool:
        """Say that this node needs nothing more; return whether the neighbour has noted that."""
        try:
            finished = wire.Finished(generation=generation, tick=tick)
            self._call("NotifyFinished", finished, FINISHED_TIMEOUT)
        except Rejected:  # a revocation
            return False
        except grpc.RpcError as problem:
            self._log_failure(problem.code().name, problem.details())
            if problem.code() == StatusCode.FAILED_PRECONDITION:
                self._attempt(self._hello)  # the neighbour may use a newer roster
            return False
        return True

    def compare_digests(self, request: wire.DigestRequest) -> wire.SignedDigestLists | None:
        """The neighbour's signed digests; None if it does not answer. Any thread may call this."""
        try:
            reply = self._call("CompareDigests", request, FINISHED_TIMEOUT)
            return _parse(wire.SignedDigestLists, reply)
        except (grpc.RpcError, ValueError, Rejected):  # ValueError: the channel is closed
            return None

    def cancel(self) -> None:
        """Make `receive` raise Stopped, now and in future."""
        self._cancelled.set()
        self._abort_stream()

    def close(self) -> None:
        self._unsubscribe()
        self.cancel()
        self._close_stream()
        self._channel.close()

    def _attempt(self, call: Callable[[], T]) -> T | None:
        """The result of a call, or None if it failed, which is logged."""
        try:
            return call()
        except Rejected as problem:
            # `cancel` cuts messages off.
            if not self._cancelled.is_set():
                self._state.reject(problem.reason, self.member.name, str(problem))
                self._note_rejection(problem)
        except grpc.RpcError as problem:
            self._log_failure(problem.code().name, problem.details())
        except StreamRefused as problem:
            self._log_failure(problem.code, str(problem))
        except OSError as problem:
            code = "UNKNOWN" if isinstance(problem, ssl.SSLError) else "UNAVAILABLE"
            self._log_failure(code, str(problem))
        except RosterChanged:
            pass  # the next Hello brings both nodes to the same roster
        return None

    def _fetch(
        self, expected: ExpectedMessage, frame: bytearray, on_wait: Callable[[], None]
    ) -> bytes:
        """Fill the frame with the message, check it, and return its digest."""
        exchange = expected.envelope.exchange
        self._state.witness.check(self.member.name)
        if self._stream is None:
            self._hello()
            self._open_stream()
        stream = self._stream
        assert stream is not None
        if self._requested is None and self._wanted is not None:
            self._send(stream, *self._wanted)
        try:
            header = self._await_header(stream, exchange, on_wait)
            stream.receive_message(header, exchange, memoryview(frame))
        except TimeoutError as problem:
            if problem.errno is not None:  # TCP found out that the neighbour is gone
                raise
            raise Rejected("stalled", f"the stream stalled: {problem}") from None
        self._requested = None
        return header.sha256

    def _await_header(
        self, stream: MessageStream, exchange: ExchangeId, on_wait: Callable[[], None]
    ) -> wire.MessageHeader:
        """The header of the message, after any notices."""
        while (answer := stream.receive(wire.StreamAnswer)) is not None:
            kind = answer.WhichOneof("kind")
            if kind == "header":
                return answer.header
            if kind == "refusal":
                code = answer.refusal.code
                # It becomes part of the log, which is throttled by it.
                code = code if code in StatusCode.__members__ else StatusCode.UNKNOWN.name
                raise StreamRefused(code, answer.refusal.text)
            if kind is None:
                raise Rejected("malformed", "an answer on a stream without content")
            self._note_progress(answer.notice, exchange)
            on_wait()
        raise ConnectionError("the stream ended before the message")

    def _note_rejection(self, problem: Rejected) -> None:
        """After several refusals of one message, say that this node waits for another one."""
        name = self.member.name
        revoked = problem.reason == "revoked"
        self.report = str(problem) if revoked else f"sent what this node rejects: {problem}"
        self.report = self.report[:MAX_REPORT]
        if problem.reason not in FINAL_REASONS:
            return
        self._refused += 1
        if self._refused < REFUSALS:
            return
        self.refusal = f"refuses a message of {name}: {problem}"
        if self._refused == REFUSALS:
            remedy = (
                f"Ask the operator of {name}. This node keeps its state, and waits until {name} "
                f"sends another message or is removed: tacit federation remove FOLDER {name}."
            )
            fields = {"sender": name, "reason": problem.reason, "why": str(problem)}
            self._state.event_log.write("message refused", "error", **fields, remedy=remedy)

    def _note_progress(self, notice: wire.ProgressNotice, exchange: ExchangeId) -> None:
        if notice.generation != exchange.generation:
            raise RosterChanged
        # The neighbour may claim anything, but not make this node show names that do not exist.
        members = set(self._state.manifest.names) - {self.member.name}
        names = [name for name in notice.waiting_for[:MAX_NAMES] if name in members]
        others = f", says it waits for {', '.join(names)}" if names else ""
        self.report = f"at iteration {notice.tick}{others}"

    def _follow_changes(self) -> None:
        """End the stream if the operator changed the neighbour's address or certificates."""
        if self._channel.is_stream_outdated:
            self._abort_stream()

    def _open_stream(self) -> None:
        self._requested, self._stream = None, self._channel.open_stream()
        # Whoever changed that meanwhile found no stream to abort.
        if self._cancelled.is_set() or self._channel.is_stream_outdated:
            self._stream.abort()

    def _send(self, stream: MessageStream, exchange: ExchangeId, saved: int) -> None:
        self._requested, digest = exchange, self._state.manifest.hash
        stream.send(
            wire.FetchRequest(exchange=to_wire(exchange), manifest_sha256=digest, saved_tick=saved)
        )

    def _abort_stream(self) -> None:
        if (stream := self._stream) is not None:
            stream.abort()

    def _close_stream(self) -> None:
        stream, self._stream, self._requested = self._stream, None, None
        if stream is not None:
            stream.close()

    def _hello(self) -> None:
        """Check that both nodes have the same manifest; the one with the older gets the newer."""
        state, name = self._state, self.member.name
        ours = state.node_info()
        theirs = _parse(wire.NodeInfo, self._call("Hello", ours))
        if why := state.find_mismatch(theirs):
            raise Rejected("configuration", why)
        same = theirs.generation == ours.generation
        # With as many entries and another head, their log is a fork: it tells from which entry on.
        may_be_longer = theirs.log_head != ours.log_head and theirs.log_entries >= ours.log_entries
        if theirs.generation > ours.generation or (same and may_be_longer):
            signed = _parse(wire.SignedManifest, self._call("GetManifest", wire.Empty()))
            if same:
                if why := state.receive_manifest(signed, name):
                    raise Rejected("configuration", why)
                if state.changes.log.number <= ours.log_entries:
                    raise Rejected("manifest", "it claims another log than it sends")
                # Its address or certificate may be another now: connect again.
                raise RosterChanged
            if signed.manifest == state.manifest.text:
                raise Rejected("manifest", "it claims a newer manifest but sends the one we have")
            state.receive_manifest(signed, name)
            raise RosterChanged
        if theirs.generation < ours.generation or theirs.log_entries < ours.log_entries:
            self._call("AnnounceManifest", state.signed_update())
            if not same:
                raise RosterChanged
        if same and theirs.epoch != ours.epoch:
            self.report = f"uses the roster of epoch {theirs.epoch}, this node of {ours.epoch}"
            raise RosterChanged  # one of them will learn what the members have agreed on
        state.metrics.set("tacit_neighbour_up", 1, neighbour=name)
        through = state.dialer.relay_of(name)
        fields: dict[str, Any] = {"neighbour": name} | ({"relay": through} if through else {})
        state.event_log.write_throttled(60, ("connected", name, through), "connected", **fields)

    def _call(self, method: str, request: Message, timeout: float = CALL_TIMEOUT) -> bytes:
        call = self._channel.current().unary_unary(f"/{SERVICE}/{method}")
        return bytes(call(request.SerializeToString(), timeout=timeout))

    def _log_failure(self, code: str, why: object) -> None:
        """Log why a call failed. An unreachable neighbour is no error: it may start later."""
        if self._cancelled.is_set():
            return
        name, state = self.member.name, self._state
        is_relayed = state.changes.address(self.member, state.manifest) == OUTGOING
        # What gRPC says about a socket of this machine helps no one.
        why = (is_relayed and state.dialer.problem(name)) or str(why)[:500]
        place = "is connected to a relay" if is_relayed else f"runs at {self.member.address}"
        fields = {"neighbour": name, "why": why}
        level: Level = "warning"
        self._state.metrics.set("tacit_neighbour_up", 0, neighbour=name)
        if "CERTIFICATE_VERIFY_FAILED" in why:
            event, expired = "certificate rejected", "expired" in why
            reason = "has expired" if expired else "is not of our authority"
            self.report = f"its certificate {reason}"
            renew = f"The operator renews it: tacit federation renew FOLDER {name}."
            fields["remedy"] = renew if expired else f"Check that {name} {place}."
        elif code in UNREACHABLE:
            event, level, self.report = "neighbour not reached", "info", "not reached"
            fields["remedy"] = f"Check that {name} {place}. This node keeps trying."
        else:
            event, self.report = "rejected by neighbour", f"rejects us: {why[:200]}"
            fields |= {"code": code, "remedy": f"Compare the logs of {name} and this node."}
        key = (event, name, fields.get("code"))
        self._state.event_log.write_throttled(30, key, event, level, **fields)


def _parse(kind: type[M], raw: bytes) -> M:
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise Rejected("malformed", f"an answer that is no {kind.DESCRIPTOR.name}") from None
