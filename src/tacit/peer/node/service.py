"""What a node answers, and to whom: the service of wire.proto behind mutual TLS.

TLS has checked that a caller holds a certificate of the federation's authority. Here it is decided what that name may
ask: neighbours for letters, members and the operator for status, all for the signed manifest.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from tacit.peer.federation.identity import OPERATOR
from tacit.peer.node.state import NodeState
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.chunks import cut, from_wire, notice_piece
from tacit.peer.wire.frames import Address, Rejected
from tacit.peer.wire.transport import CHUNK, SERVICE, SMALL, caller_of

PATIENCE = 2.0  # seconds after which a neighbour that waits for a letter hears how far we are
CALLS = 4  # of one caller at a time, beside its stream of letters

M = TypeVar("M", bound=Message)


def threads_for(members: int) -> int:
    """As many as all members, the operator and the others can keep busy at once, and some to refuse what is more."""
    return (CALLS + 1) * (members + 2) + 8


class Service:
    """The handlers of one node."""

    def __init__(self, desk: NodeState) -> None:
        self._desk = desk
        self._streams: dict[str, Any] = {}  # one stream of letters per neighbour: the newest
        self._calls: Counter[str] = Counter()  # under way, of each member; of all others together
        self._lock = threading.Lock()

    def handlers(self) -> Any:
        """For a gRPC server; bytes in and out, because what cannot be parsed is ours to count."""
        unary, stream = self._unary, grpc.stream_stream_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Hello": unary(self._hello),
                "Letters": stream(self._letters),
                "Farewell": unary(self._farewell),
                "Tell": unary(self._tell),
                "Roster": unary(self._roster),
                "Announce": unary(self._announce),
            },
        )

    def _unary(self, answer: Callable[[bytes, Any], bytes]) -> Any:
        """A call with one question; who asks is looked at before the question, which may never come."""

        def handle(questions: Iterator[bytes], context: Any) -> bytes:
            who = self._caller(context)
            known = who == OPERATOR or self._desk.manifest.position(who) is not None
            with (
                self._under_way(who if known else "others", context),
                self._no_silence(who, context),
            ):
                raw = next(_until_gone(questions), None)
                if raw is None:
                    if not context.is_active():
                        return b""  # to nobody
                    why = "a call without a question"
                    self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "malformed", who, why)
                return answer(raw, context)

        return grpc.stream_unary_rpc_method_handler(handle)

    @contextmanager
    def _under_way(self, who: str, context: Any) -> Iterator[None]:
        """A call of somebody, refused where it is one too many: nobody may take the threads of all others."""
        with self._lock:
            self._calls[who] += 1
            too_many = self._calls[who] > CALLS
        try:
            if too_many:
                why = f"{CALLS} calls of {who} are under way"
                self._refuse(
                    context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls", who, why
                )
            yield
        finally:
            with self._lock:
                self._calls[who] -= 1

    @contextmanager
    def _no_silence(self, who: str, context: Any) -> Iterator[None]:
        """Log what goes wrong here, and tell the caller no more than that something did."""
        try:
            yield
        except Exception as problem:
            if not context.is_active() or context.code() is not None:
                raise  # refused on purpose, or the caller has gone
            self._desk.event_log.write_throttled(
                30,
                ("mistake", type(problem)),
                "mistake in an answer",
                "error",
                caller=who,
                why=repr(problem),
            )
            context.abort(grpc.StatusCode.INTERNAL, "a mistake in this node; its log says more")

    def _hello(self, raw: bytes, context: Any) -> bytes:
        who = self._caller(context)
        theirs = self._parsed(wire.Greeting, raw, who, context)
        if why := self._desk.mismatch(theirs):
            self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "configuration", who, why)
        return self._desk.greeting().SerializeToString()

    def _letters(self, wants: Iterator[bytes], context: Any) -> Iterator[bytes]:
        who = self._caller(context)
        if who not in self._desk.standing.outbox.readers:
            self._refuse(
                context, grpc.StatusCode.PERMISSION_DENIED, "not a neighbour", who,
                f"{who} gets no letters from {self._desk.name} in generation {self._desk.manifest.generation}",
            )  # fmt: skip
        with self._lock:
            before, self._streams[who] = self._streams.get(who), context
        if before is not None:
            before.cancel()  # a neighbour has one stream: the older one is left over from a broken connection
        context.add_callback(lambda: self._desk.standing.outbox.wake())
        with self._no_silence(who, context):
            for raw in _until_gone(wants):
                want = self._parsed(wire.Want, raw, who, context)
                yield from self._answer(want, who, context)

    def _answer(self, want: wire.Want, who: str, context: Any) -> Iterator[bytes]:
        """Notices until the letter is there, then the letter."""
        address = from_wire(want.address)
        while context.is_active() and not self._desk.stop.is_set():
            standing = self._desk.standing
            if address.generation != standing.manifest.generation:
                yield notice_piece(self._desk.notice())
                return
            if 0 < self._desk.progress.steps < address.tick:
                why = f"iteration {address.tick} of {self._desk.progress.steps}"
                self._refuse(context, grpc.StatusCode.OUT_OF_RANGE, "future", who, why)
            if want.manifest != standing.manifest.hash:
                why = f"another manifest for generation {address.generation}"
                self._refuse(
                    context, grpc.StatusCode.FAILED_PRECONDITION, "configuration", who, why
                )
            try:
                standing.outbox.saved(who, want.saved)
                letter = standing.outbox.take(address, who, context.is_active, PATIENCE)
            except Rejected as problem:
                self._refuse(
                    context, grpc.StatusCode.OUT_OF_RANGE, problem.reason, who, str(problem)
                )
            except KeyError:  # the roster changed in between
                return
            if letter is not None:
                yield from cut(letter, CHUNK)
                self._sent(who, address, len(letter.frame))
                return
            yield notice_piece(self._desk.notice())

    def _sent(self, who: str, address: Address, size: int) -> None:
        standing, metrics = self._desk.standing, self._desk.metrics
        if address.generation == standing.manifest.generation and who in standing.outbox.readers:
            standing.outbox.delivered(who, address.tick)
        metrics.count("tacit_sent_bytes_total", size, neighbour=who)
        metrics.count("tacit_letters_sent_total", neighbour=who)

    def _farewell(self, raw: bytes, context: Any) -> bytes:
        who = self._caller(context)
        ended = self._parsed(wire.Ended, raw, who, context)
        standing, steps = self._desk.standing, self._desk.progress.steps
        if who not in standing.outbox.readers or (ended.generation, ended.tick) != (
            standing.manifest.generation,
            steps,
        ):
            self._refuse(
                context, grpc.StatusCode.FAILED_PRECONDITION, "farewell", who,
                f"a farewell from {who} after iteration {ended.tick} of generation {ended.generation}, which is not the end",
            )  # fmt: skip
        try:
            self._desk.farewell(who)
        except OSError as problem:  # the neighbour says it again until there is room
            context.abort(
                grpc.StatusCode.UNAVAILABLE, f"the farewell cannot be noted: {problem.strerror}"
            )
        return wire.Noted().SerializeToString()

    def _tell(self, raw: bytes, context: Any) -> bytes:
        who = self._caller(context)
        self._parsed(wire.Question, raw, who, context)
        if who != OPERATOR and self._desk.manifest.position(who) is None:
            self._refuse(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                "not a member",
                who,
                f"{who} is not a member",
            )
        return self._desk.status().SerializeToString()

    def _roster(self, raw: bytes, context: Any) -> bytes:
        self._parsed(wire.Question, raw, self._caller(context), context)
        newer = self._desk.newer
        text, signature = (newer.text, newer.signature) if newer else self._desk.folder.signed()
        return wire.SignedManifest(manifest=text, signature=signature).SerializeToString()

    def _announce(self, raw: bytes, context: Any) -> bytes:
        who = self._caller(context)
        signed = self._parsed(wire.SignedManifest, raw, who, context, limit=len(raw))
        if why := self._desk.told(signed, who):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        return wire.Noted().SerializeToString()

    def _caller(self, context: Any) -> str:
        """Who calls, by the certificate; one of another federation under the same authority is refused."""
        who = caller_of(context, self._desk.manifest.federation)
        if who is None:
            why = f"the caller's certificate is not of federation {self._desk.manifest.federation}"
            self._refuse(
                context, grpc.StatusCode.PERMISSION_DENIED, "another federation", "unknown", why
            )
        return who

    def _parsed(
        self, kind: Callable[[], M], raw: bytes, who: str, context: Any, limit: int = SMALL
    ) -> M:
        message = kind()
        try:
            if len(raw) > limit:
                raise DecodeError(f"{len(raw)} bytes")
            message.ParseFromString(raw)
        except DecodeError:
            why = f"{len(raw)} bytes that are no {message.DESCRIPTOR.name}"
            self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "malformed", who, why)
        return message

    def _refuse(self, context: Any, code: Any, reason: str, who: str, why: str) -> NoReturn:
        self._desk.reject(reason, who, why)
        context.abort(code, why)
        raise AssertionError("abort raises")


def _until_gone(questions: Iterator[bytes]) -> Iterator[bytes]:
    """What a caller asks, until it hangs up.

    gRPC keeps the exception by which it says so, and that, through its traceback, the call: until the next garbage
    collection, which is far away in a node that waits, it would be one of those that a connection may have open.
    """
    try:
        yield from questions
    except grpc.RpcError as gone:
        gone.__traceback__ = None
