"""The listening socket of a node. It limits connections before TLS, which gRPC cannot.

The gate accepts connections and forwards their bytes to the gRPC server of the same process, which
listens on the loopback interface. It does not decrypt anything. A connection is pending until the
server has accepted a call on it, which takes a certificate of the federation. Pending connections
are few and short, so that strangers cannot use up the files of the process.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Literal

from tacit.core.errors import NotReady
from tacit.peer.wire.connection_limits import BoundedGroups, ConnectionLimits, address_group

Reason = Literal["too many", "timeout", "not tls", "no valid certificate", "closed", "no files"]

HANDSHAKE_SECONDS = 10.0  # from accepting a connection to its first accepted call
CHECK_SECONDS = 0.25  # between two checks of the time
NO_FILES_PAUSE = 0.1
BUFFER_BYTES = 1 << 20
BACKLOG = 128
TLS_HANDSHAKE = 0x16  # the first byte of a TLS connection
NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class _Connection:
    """A caller's socket and, after its first byte, one to the gRPC server."""

    def __init__(self, caller: socket.socket, group: str) -> None:
        self.caller, self.group = caller, group
        self.since = time.monotonic()  # when it began, or ended
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
        self._by_port: dict[int, _Connection] = {}
        self._known: set[int] = set()  # ports of connections that are or will be admitted
        self._calls: SimpleQueue[tuple[int, str]] = SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._closed = threading.Event()
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)

    def start(self, server_port: int) -> None:
        """Forward to a gRPC server on this port of the loopback interface."""
        self._server_port = server_port
        self._thread.start()

    def admit(self, peer: str, caller: str) -> None:
        """Keep a connection: the server accepted a call of this caller on it.

        `peer` is gRPC's name of the other end, which is the gate.
        """
        port = peer.rpartition(":")[2]
        if port.isdigit() and int(port) not in self._known:
            self._calls.put((int(port), caller))
            with suppress(OSError):
                self._wake.send(b"\0")

    def close_connections(self, caller: str) -> None:
        """Close all admitted connections of a caller; any thread may call this."""
        self._calls.put((0, caller))
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
                    self._admit_callers()
            if time.monotonic() - checked >= CHECK_SECONDS:
                checked = time.monotonic()
                self._close_late(checked - HANDSHAKE_SECONDS)
        for one in [*self._pending.items(), *self._admitted.items()]:
            self._drop(one)

    def _accept(self) -> None:
        try:
            caller, address = self._listening.accept()
            caller.setblocking(False)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as problem:
            if problem.errno in NO_FILES:
                self._on_refused("no files", "")
                self._closed.wait(NO_FILES_PAUSE)
            return
        one = _Connection(caller, address_group(address[0]))
        self._selector.register(caller, selectors.EVENT_READ, one)
        if (oldest := self._pending.add(one, one.group)) is not None:
            self._refuse(oldest, "too many")

    def _admit_callers(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(BUFFER_BYTES)
        with suppress(Empty):
            while True:
                port, caller = self._calls.get_nowait()
                if port == 0:
                    for closing in self._admitted.items_of(caller):
                        self._drop(closing)
                    continue
                one = self._by_port.get(port)
                if one is None or one not in self._pending:
                    continue
                self._known.add(port)
                self._pending.remove(one)
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
                self._connect(one)
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

    def _connect(self, one: _Connection) -> None:
        """Connect to the server when the first byte of a caller has arrived."""
        first = one.caller.recv(1, socket.MSG_PEEK)
        if not first:
            self._refuse(one, "closed")
        elif first[0] != TLS_HANDSHAKE:
            self._refuse(one, "not tls")
        else:
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
            return self._drop(one)
        return self._refuse(one, "closed" if one.server is None else "no valid certificate")

    def _refuse(self, one: _Connection, reason: Reason) -> None:
        self._drop(one)
        self._on_refused(reason, one.group)

    def _drop(self, one: _Connection) -> None:
        self._pending.remove(one)
        self._admitted.remove(one)
        self._by_port.pop(one.port, None)
        self._known.discard(one.port)
        one.unsent.clear()
        for each in (one.caller, one.server):
            if each is not None and each.fileno() >= 0:
                with suppress(KeyError):
                    self._selector.unregister(each)
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
