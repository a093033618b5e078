"""Streams of messages between two nodes, over a TLS connection of their own.

The reader sends requests. The sender answers each with notices until the message exists, then with
the header of the message and its bytes, which go straight into the memory of the tensors. Requests
and answers (protobuf) start with their length in four bytes; all integers are little-endian.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tacit.peer.federation.certificates import Credentials, server_name
from tacit.peer.wire import tls, wire_pb2 as wire
from tacit.peer.wire.messages import ExchangeId, Rejected, WireMessage

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 1 << 14  # of requests, notices and headers
HASHED_BYTES = 1 << 22  # at a time: handing over smaller parts takes longer than hashing them
THREAD_BYTES = 1 << 23  # of a message, from which on a thread hashes it
CONNECT_SECONDS = 10.0
END_SECONDS = 1.0  # for the other end to read a refusal and close
# A sender without the message sends a notice every two seconds, and a record of TLS takes a few
# seconds over a slow modem.
SILENCE_SECONDS = 60.0
MIN_BYTES_PER_SECOND = 16_384.0  # of a whole message, after its first minute

M = TypeVar("M", bound=Message)


class StreamRefused(Exception):
    """The sender has refused a request; `code` is the name of a status code of gRPC."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class HashBeside:
    """SHA-256 of a message; a large one is hashed in a thread while it arrives."""

    def __init__(self, size: int) -> None:
        self._hash = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1) if size >= THREAD_BYTES else None
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> HashBeside:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown()

    def update(self, part: memoryview) -> None:
        """Add bytes, which must not change until `digest` has returned."""
        if self._thread is not None:
            try:
                self._pending.append(self._thread.submit(self._hash.update, part))
                return
            except RuntimeError:  # it cannot be started: the system has no thread left
                self._thread = None
        self._hash.update(part)

    def digest(self) -> bytes:
        for one in self._pending:
            one.result()
        return self._hash.digest()


class MessageStream:
    """One end of a stream. One thread uses it, but any may `abort`."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection

    def send(self, part: Message) -> None:
        """Send a request or an answer."""
        body = part.SerializeToString()
        self._connection.sendall(len(body).to_bytes(LENGTH_BYTES, "little") + body)

    def send_message(self, message: WireMessage) -> None:
        """Send the header of a message, and its bytes."""
        exchange, size = to_wire(message.envelope.exchange), len(message.frame)
        header = wire.MessageHeader(exchange=exchange, size=size, sha256=message.sha256)
        self.send(wire.StreamAnswer(header=header))
        self._connection.sendall(message.frame)

    def receive(self, kind: type[M]) -> M | None:
        """The next request or answer; None if the other end has closed the stream.

        Raises:
            Rejected: It is malformed, or the stream ended within it.
            OSError: The connection is broken; TimeoutError after SILENCE_SECONDS.
        """
        prefix = bytearray(LENGTH_BYTES)
        first = self._connection.recv_into(prefix)
        if not first:
            return None
        deadline = time.monotonic() + SILENCE_SECONDS
        self._fill(memoryview(prefix)[first:], deadline)
        size = int.from_bytes(prefix, "little")
        if size > MAX_FRAME_BYTES:
            raise Rejected("malformed", f"a part of a stream that claims {size:,} bytes")
        body = bytearray(size)
        self._fill(memoryview(body), deadline)
        try:
            return kind.FromString(bytes(body))
        except DecodeError:
            text = f"{size} bytes that are no {kind.DESCRIPTOR.name}"
            raise Rejected("malformed", text) from None

    def receive_message(
        self, header: wire.MessageHeader, exchange: ExchangeId, frame: memoryview
    ) -> None:
        """Receive the bytes of a message after its header.

        Raises:
            Rejected: It is not of this exchange, of another size, or not what the header says.
            OSError: As `receive`; TimeoutError also if the whole message takes too long.
        """
        if (found := from_wire(header.exchange)) != exchange:
            raise Rejected("iteration", f"a message of {found}, not of {exchange}")
        if header.size != len(frame):
            raise Rejected("size", f"a message of {header.size} bytes, not {len(frame)}")
        deadline = time.monotonic() + SILENCE_SECONDS + len(frame) / MIN_BYTES_PER_SECOND
        with HashBeside(len(frame)) as digest:
            for start in range(0, len(frame), HASHED_BYTES):
                part = frame[start : start + HASHED_BYTES]
                self._fill(part, deadline)
                digest.update(part)
            found_digest = digest.digest()
        if found_digest != header.sha256:
            raise Rejected("checksum", "a message that does not match its checksum")

    def wait(self, seconds: float | None) -> None:
        """How long each following use of the connection may take; None: for ever."""
        self._connection.settimeout(seconds)

    def abort(self) -> None:
        """Make every use of the stream fail."""
        tls.abort(self._connection)

    def end(self) -> None:
        """Close after the last answer, which the other end may read before it notices."""
        deadline = time.monotonic() + END_SECONDS
        with suppress(OSError):
            socket.socket.shutdown(self._connection, socket.SHUT_WR)
            self._connection.settimeout(END_SECONDS)
            # Closing with unread requests would reset the connection, and lose the answer.
            while self._connection.recv(MAX_FRAME_BYTES) and time.monotonic() < deadline:
                pass
        self.close()

    def close(self) -> None:
        self._connection.close()

    def _fill(self, view: memoryview, deadline: float) -> None:
        """Receive as many bytes as there is space in the view."""
        receive, missing = self._connection.recv_into, len(view)
        while missing:
            # One record of TLS at most. Python takes longer if it has to find out the size.
            received = receive(view, missing)
            if not received:
                raise Rejected("truncated", "the stream ended within a message")
            if time.monotonic() > deadline:
                raise TimeoutError("it takes too long")
            missing -= received
            view = view[received:]


def open_stream(
    address: str, name: str, federation: str, own: Credentials, roots: bytes
) -> MessageStream:
    """Open a stream of the messages of a node, which must show the certificate of its name.

    Raises OSError, of which ssl.SSLError is one.

    Args:
        address: host:port of the node, or unix:PATH.
        name: The node's name.
        federation: The federation's name.
        own: Certificate and key of the caller.
        roots: The certificates (PEM) that the node is trusted by.
    """
    raw = _connect(address)
    try:
        tls.keep_alive(raw)
        context = tls.client_context(own, roots)
        connection = context.wrap_socket(raw, server_hostname=server_name(name, federation))
    except BaseException:
        raw.close()
        raise
    connection.settimeout(SILENCE_SECONDS)
    return MessageStream(connection)


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if host != "unix":
        return socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS)
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    raw.settimeout(CONNECT_SECONDS)
    try:
        raw.connect(port)
    except BaseException:
        raw.close()
        raise
    return raw


def to_wire(exchange: ExchangeId) -> wire.ExchangeId:
    return wire.ExchangeId(generation=exchange.generation, tick=exchange.tick, index=exchange.index)


def from_wire(exchange: wire.ExchangeId) -> ExchangeId:
    return ExchangeId(exchange.generation, exchange.tick, exchange.index)
