"""The listening socket of a node. It limits connections before TLS, which gRPC cannot.

The gate accepts connections. It hands streams of messages to threads of their own, and forwards the
bytes of all others to the gRPC server of the same process, which listens on the loopback interface.
It does not decrypt anything. A connection is pending until a server has accepted a call on it,
which takes a certificate of the federation. Pending connections are few and short, so that
strangers cannot use up the files of the process.
"""

from __future__ import annotations

import errno
import ipaddress
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Literal

from tacit.core.errors import NotReady
from tacit.peer.wire import tls
from tacit.peer.wire.connection_limits import BoundedGroups, ConnectionLimits, address_group

Reason = Literal[
    "too many", "timeout", "not tls", "no valid certificate", "closed", "no files", "no threads"
]

HANDSHAKE_SECONDS = 10.0  # from accepting a connection to its first accepted call
CHECK_SECONDS = 0.25  # between two checks of the time
NO_FILES_PAUSE = 0.1
BUFFER_BYTES = 1 << 20
BACKLOG = 128
STREAM_HANDSHAKES = 64  # streams at a time that have a thread, but no known caller
NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

# Serves a stream until it ends. It calls the function with the caller's name once it has found it.
ServeStream = Callable[[socket.socket, Callable[[str], None]], None]


class _Connection:
    """A caller's socket and, unless a thread serves it, one to the gRPC server."""

    def __init__(self, caller: socket.socket, group: str) -> None:
        self.caller, self.group = caller, group
        self.since = time.monotonic()  # when it began, or ended
        self.awaited_bytes = 1  # before the gate looks at the first record
        self.has_thread = False  # that serves it
        self.server: socket.socket | None = None
        self.port = 0  # of the gate's socket to the server: what gRPC calls the peer
        self.unsent: dict[socket.socket, memoryview] = {}  # by the socket that is full
        self.is_held = False  # whether the gate waits until a socket has space
        self.ended = False  # one end has closed; the rest is sent and the other closed


class Gate:
    """Accepts, limits and forwards connections. One thread runs it; any may call `admit`.

    Args:
        address: host:port to listen on; port 0 chooses a free one.
        limits: How many connections may be open.
        on_refused: Called from the gate's thread with the reason and address of a connection that
            ended before a call was accepted.
    """

    def __init__(
        self, address: str, limits: ConnectionLimits, on_refused: Callable[[Reason, str], None]
    ) -> None:
        self._listening = _listen(address)
        self.port = int(self._listening.getsockname()[1])
        self._on_refused, self._server_port = on_refused, 0
        self._pending = BoundedGroups[_Connection](limits.pending_per_address, limits.pending)
        self._admitted = BoundedGroups[_Connection](limits.admitted_per_caller, limits.admitted)
        handshakes = STREAM_HANDSHAKES
        self._handshakes = BoundedGroups[_Connection](handshakes // 2, handshakes)
        self._by_port: dict[int, _Connection] = {}
        self._known: set[int] = set()  # ports of connections that are or will be admitted
        self._serve_stream: ServeStream | None = None
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()  # for the gate's thread
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._closed = threading.Event()
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)

    def start(self, server_port: int, serve_stream: ServeStream | None = None) -> None:
        """Forward to a gRPC server on this port of the loopback interface.

        `serve_stream` is called in a thread for each stream of messages, and closes its socket.
        """
        self._server_port, self._serve_stream = server_port, serve_stream
        self._thread.start()

    def admit(self, peer: str, caller: str) -> None:
        """Keep a connection: the server accepted a call of this caller on it.

        `peer` is gRPC's name of the other end, which is the gate.
        """
        port = peer.rpartition(":")[2]
        if port.isdigit() and int(port) not in self._known:
            self._call(lambda: self._admit(self._by_port.get(int(port)), caller))

    def close_connections(self, caller: str) -> None:
        """Close all admitted connections of a caller; any thread may call this."""

        def close() -> None:
            for one in self._admitted.items_of(caller):
                self._drop(one)

        self._call(close)

    def _call(self, function: Callable[[], None]) -> None:
        """Call a function in the gate's thread, soon."""
        self._calls.put(function)
        with suppress(OSError):
            self._wake.send(b"\0")

    @property
    def open_connections(self) -> int:
        return len(self._pending) + len(self._admitted)

    @property
    def pending_connections(self) -> int:
        return len(self._pending)

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._closed.set()
        with suppress(OSError):
            self._wake.send(b"\0")
        if self._thread.is_alive():
            self._thread.join()
        self._selector.close()
        for each in (self._listening, self._wake, self._woken):
            each.close()

    def _run(self) -> None:
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        checked = time.monotonic()
        while not self._closed.is_set():
            for key, events in self._selector.select(CHECK_SECONDS):
                if key.data is not None:
                    self._handle(key.data, key.fileobj, events)  # type: ignore[arg-type]
                elif key.fileobj is self._listening:
                    self._accept()
                else:
                    self._run_calls()
            if time.monotonic() - checked >= CHECK_SECONDS:
                checked = time.monotonic()
                self._close_late(checked - HANDSHAKE_SECONDS)
        for one in [*self._pending.items(), *self._admitted.items()]:
            self._drop(one)

    def _accept(self) -> None:
        try:
            caller, address = self._listening.accept()
            caller.setblocking(False)
            tls.keep_alive(caller)
        except OSError as problem:
            if problem.errno in NO_FILES:
                self._on_refused("no files", "")
                self._closed.wait(NO_FILES_PAUSE)
            return
        one = _Connection(caller, address_group(address[0]))
        self._selector.register(caller, selectors.EVENT_READ, one)
        if (oldest := self._pending.add(one, one.group)) is not None:
            self._refuse(oldest, "too many")

    def _run_calls(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(BUFFER_BYTES)
        with suppress(Empty):
            while True:
                self._calls.get_nowait()()

    def _admit(self, one: _Connection | None, caller: str) -> None:
        if one is None or one not in self._pending:
            return
        self._known.add(one.port)
        self._pending.remove(one)
        self._handshakes.remove(one)
        if (oldest := self._admitted.add(one, caller)) is not None:
            self._drop(oldest)

    def _close_late(self, before: float) -> None:
        """Close connections that began before this time and had no call, or ended before it."""
        for one in self._pending.items():
            if one.since > before:
                break
            self._refuse(one, "timeout")
        for one in self._admitted.items():
            if one.ended and one.since <= before:  # the other end does not read the rest
                self._drop(one)

    def _handle(self, one: _Connection, ready: socket.socket, events: int) -> None:
        """Send what could not be sent before, and forward what has arrived."""
        if ready.fileno() < 0:  # closed by an earlier event
            return
        try:
            if one.server is None:
                self._begin(one)
                return
            if events & selectors.EVENT_WRITE and ready in one.unsent:
                self._send(one, ready, one.unsent.pop(ready))
            if events & selectors.EVENT_READ and not one.ended:
                other = one.server if ready is one.caller else one.caller
                if other not in one.unsent:
                    size = ready.recv_into(self._buffer)
                    if size == 0:
                        one.ended, one.since = True, time.monotonic()
                    self._send(one, other, self._buffer[:size])
            if one.ended and not one.unsent:
                self._end(one)
            elif one.ended or one.unsent or one.is_held:
                self._select(one)
        except BlockingIOError:
            pass
        except OSError as problem:
            if problem.errno in NO_FILES and one in self._pending:
                self._refuse(one, "no files")
            else:
                self._end(one)

    def _begin(self, one: _Connection) -> None:
        """Find a server for a connection, when its first record has arrived."""
        hello = one.caller.recv(tls.RECORD_HEADER_BYTES + tls.MAX_HELLO_BYTES, socket.MSG_PEEK)
        if hello and hello[0] != tls.HANDSHAKE:
            return self._refuse(one, "not tls")
        if len(hello) < one.awaited_bytes:  # it ended before its first record
            return self._refuse(one, "closed")
        size = tls.RECORD_HEADER_BYTES
        if len(hello) >= size:
            size += int.from_bytes(hello[3:5], "big")
        if size > tls.RECORD_HEADER_BYTES + tls.MAX_HELLO_BYTES:
            return self._refuse(one, "not tls")
        one.awaited_bytes = 1 if len(hello) >= size else size
        # The socket counts as readable when it has so many bytes, or has ended.
        one.caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, one.awaited_bytes)
        if len(hello) < size:
            return None
        if self._serve_stream is not None and tls.asks_for_messages(hello[:size]):
            return self._hand_over(one, self._serve_stream)
        return self._connect(one)

    def _hand_over(self, one: _Connection, serve_stream: ServeStream) -> None:
        """Let a thread of its own serve a stream; the gate can still end it."""
        # Strangers cannot use up the threads of the process either.
        if (oldest := self._handshakes.add(one, one.group)) is not None:
            self._refuse(oldest, "too many")
        self._selector.unregister(one.caller)
        stream, one.has_thread = one.caller.dup(), True

        def serve() -> None:
            stream.setblocking(True)
            try:
                admit = partial(self._admit, one)
                serve_stream(stream, lambda caller: self._call(lambda: admit(caller)))
            finally:
                self._call(lambda: self._end(one))

        try:
            threading.Thread(target=serve, name="stream", daemon=True).start()
        except RuntimeError:  # the system has no thread left
            stream.close()
            self._refuse(one, "no threads")

    def _connect(self, one: _Connection) -> None:
        """Connect a caller to the gRPC server."""
        one.server = server = socket.create_connection(("127.0.0.1", self._server_port), 1.0)
        server.setblocking(False)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.port = int(server.getsockname()[1])
        self._by_port[one.port] = one
        self._selector.register(server, selectors.EVENT_READ, one)

    def _send(self, one: _Connection, to: socket.socket, data: memoryview) -> None:
        """Send as much as the socket takes, and keep the rest."""
        try:
            sent = to.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            one.unsent[to] = memoryview(bytes(data[sent:]))

    def _select(self, one: _Connection) -> None:
        """Wait for space in full sockets; read nothing for them until they have some."""
        assert one.server is not None
        for each, other in ((one.caller, one.server), (one.server, one.caller)):
            events = selectors.EVENT_WRITE if each in one.unsent else 0
            if other not in one.unsent and not one.ended:
                events |= selectors.EVENT_READ
            with suppress(KeyError):
                self._selector.unregister(each)
            if events:
                self._selector.register(each, events, one)
        one.is_held = bool(one.unsent)

    def _end(self, one: _Connection) -> None:
        """Close a connection of which one end has closed."""
        if one not in self._pending:
            self._drop(one)
        elif one.server is None and not one.has_thread:
            self._refuse(one, "closed")
        else:
            self._refuse(one, "no valid certificate")

    def _refuse(self, one: _Connection, reason: Reason) -> None:
        self._drop(one)
        self._on_refused(reason, one.group)

    def _drop(self, one: _Connection) -> None:
        for group in (self._pending, self._handshakes, self._admitted):
            group.remove(one)
        self._by_port.pop(one.port, None)
        self._known.discard(one.port)
        one.unsent.clear()
        for each in (one.caller, one.server):
            if each is not None and each.fileno() >= 0:
                with suppress(KeyError):
                    self._selector.unregister(each)
                tls.abort(each)  # a thread may serve it
                each.close()


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        if host == "::" and socket.has_dualstack_ipv6():
            return socket.create_server(
                (host, int(port)), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        host = "0.0.0.0" if host == "::" else host
        family, _, _, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except (OSError, ValueError, OverflowError):
        raise NotReady(
            f"Cannot listen on {address}: another program uses the port, or this machine does not "
            "have the address.",
            "Give a free address of this machine with --listen host:port.",
        ) from None


def bind_address(address: str) -> str:
    """The address to listen on: itself if it is an IP address, all interfaces if it is a name."""
    host, _, port = address.rpartition(":")
    if host == "localhost":
        return f"127.0.0.1:{port}"
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return f"[::]:{port}"
    return address
