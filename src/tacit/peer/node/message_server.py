"""Serves the streams on which neighbours fetch messages."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from grpc import StatusCode

from tacit.peer.node.callers import Caller, Refused
from tacit.peer.node.node_state import NodeState
from tacit.peer.wire import tls, wire_pb2 as wire
from tacit.peer.wire.message_stream import SILENCE_SECONDS, MessageStream, from_wire
from tacit.peer.wire.messages import Rejected

NOTICE_SECONDS = 2.0  # between two notices to a neighbour that waits for a message


class MessageServer:
    """Serves the messages in a node's outbox; each stream has a thread."""

    def __init__(self, state: NodeState) -> None:
        self._state, self._ca = state, state.folder.ca()
        self._streams: dict[str, MessageStream] = {}  # the newest of each neighbour
        self._lock = threading.Lock()

    def serve(self, raw: socket.socket, admit: Callable[[str], None]) -> None:
        """Serve a stream until it ends. `admit` is called when the caller is known."""
        with suppress(OSError), closing(raw):  # includes errors of TLS
            raw.settimeout(SILENCE_SECONDS)
            tls.keep_alive(raw)
            context = tls.server_context(self._state.credentials.current(), self._ca)
            with context.wrap_socket(raw, server_side=True) as connection:
                self._serve_caller(connection, admit)

    def _serve_caller(self, connection: ssl.SSLSocket, admit: Callable[[str], None]) -> None:
        stream = MessageStream(connection)
        caller = Caller(self._state, tls.peer_certificate(connection))
        try:
            name = caller.identified()
            admit(caller.group)
            # A revocation closes admitted streams only; it may have come just before.
            caller.identified()
            self._check_neighbour(name)
            with self._only_stream(name, stream):
                self._answer_requests(stream, name)
        except Refused as refusal:
            caller.log_refusal(refusal)
            self._refuse(stream, refusal.code, str(refusal))
        except OSError:
            pass  # the caller hung up, or does not read
        except Exception as problem:
            caller.log_error(problem)
            self._refuse(stream, StatusCode.INTERNAL, "internal error of this node: see its log")

    def _refuse(self, stream: MessageStream, code: StatusCode, text: str) -> None:
        stream.wait(SILENCE_SECONDS)
        stream.send(wire.StreamAnswer(refusal=wire.Refusal(code=code.name, text=text)))
        stream.end()

    def _check_neighbour(self, name: str) -> None:
        state = self._state
        if name not in state.active.outbox.readers:
            generation = state.manifest.generation
            text = f"{name} gets no messages from {state.name} in generation {generation}"
            raise Refused(StatusCode.PERMISSION_DENIED, "not a neighbour", text)

    @contextmanager
    def _only_stream(self, name: str, stream: MessageStream) -> Iterator[None]:
        """End the previous stream of a neighbour: it is left over from a broken connection."""
        with self._lock:
            previous, self._streams[name] = self._streams.get(name), stream
        if previous is not None:
            previous.abort()
            self._state.active.outbox.wake()
        try:
            yield
        finally:
            with self._lock:
                if self._streams.get(name) is stream:
                    del self._streams[name]

    def _answer_requests(self, stream: MessageStream, name: str) -> None:
        # A neighbour that requests a message early reads it when it needs it.
        stream.wait(None)
        while name in self._state.active.outbox.readers:
            try:
                request = stream.receive(wire.FetchRequest)
            except Rejected as problem:
                code = StatusCode.INVALID_ARGUMENT
                raise Refused(code, problem.reason, str(problem)) from None
            if request is None:
                return
            self._answer(request, name, stream)

    def _answer(self, request: wire.FetchRequest, name: str, stream: MessageStream) -> None:
        """Send notices until the message exists, then the message."""
        exchange, state = from_wire(request.exchange), self._state
        while self._streams.get(name) is stream and not state.stop.is_set():
            active, steps = state.active, state.progress.steps
            if exchange.generation != active.manifest.number:
                stream.send(wire.StreamAnswer(notice=state.progress_notice()))
                return
            if 0 < steps < exchange.tick:
                text = f"iteration {exchange.tick} of {steps}"
                raise Refused(StatusCode.OUT_OF_RANGE, "future", text)
            if request.manifest_sha256 != active.manifest.hash:
                text = f"another manifest for generation {exchange.generation}"
                raise Refused(StatusCode.FAILED_PRECONDITION, "configuration", text)
            try:
                active.outbox.mark_saved(name, request.saved_tick)
                is_newest = lambda: self._streams.get(name) is stream  # noqa: E731
                message = active.outbox.get(exchange, name, is_newest, NOTICE_SECONDS)
            except Rejected as problem:
                raise Refused(StatusCode.OUT_OF_RANGE, problem.reason, str(problem)) from None
            except KeyError:  # the roster changed after the caller was checked
                return
            if message is not None:
                stream.send_message(message)
                active.outbox.mark_delivered(name, exchange.tick)
                size = len(message.frame)
                state.metrics.count("tacit_sent_bytes_total", size, neighbour=name)
                state.metrics.count("tacit_messages_sent_total", neighbour=name)
                return
            stream.send(wire.StreamAnswer(notice=state.progress_notice()))
