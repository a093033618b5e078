"""Serves a relay's connections: members wait here, and others are connected to them.

The relay checks who calls by certificates of the federation, pairs two members, and forwards bytes
that are encrypted between these two. A gate in front limits connections before TLS.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import OPERATOR, certificate_info, certified_name
from tacit.peer.federation.change_log import MAX_BYTES
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.followed_log import FollowedLog
from tacit.peer.relay.forwarding import BUFFER_BYTES, Connection, abort, close, forward
from tacit.peer.relay.frames import BadFrame, read_frame, write_frame
from tacit.peer.relay.pairing import Pairing
from tacit.peer.wire import tls
from tacit.peer.wire.connection_limits import BoundedGroups

REQUEST_SECONDS = 10.0
READY_SECONDS = 5.0  # for a waiting member to answer that it is still there
PAIR_SECONDS = 2.0  # for a member to wait again, if all its connections are in use
PING_SECONDS = 20.0
IDLE_SECONDS = 3600.0  # without a byte in a tunnel; gRPC sends one every 20 seconds
UPDATE_SECONDS = 10.0
MAX_TUNNELS = 8  # from one member to another; further ones replace the oldest
OTHERS = "others"  # the group of connections that bring a log

Admit = Callable[[str, str], None]


class Refused(Exception):
    """Ends a request; `reason` is also a label for the metrics."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(eq=False)
class Waiting:
    """A connection of a member that waits to be connected with another."""

    connection: Connection
    caller: asyncio.Future[str] = field(default_factory=asyncio.Future)
    ready: asyncio.Future[bool] = field(default_factory=asyncio.Future)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Tunnel:
    """Two connected members. Nothing of what they say is kept."""

    caller: Connection
    member: Connection
    used: float  # when the last byte was forwarded

    def abort(self) -> None:
        for each in (self.caller, self.member):
            abort(each.writer)


class RelayServer:
    """Serves connections, in one event loop.

    Args:
        federation: The federation's name.
        changes: The operator's log: it says who the members are, and who is revoked.
        event_log: The relay's log.
        metrics: The relay's metrics.
        admit: Told the address and owner of each accepted connection; see `Gate.admit`.
        tunnels: How many may be open.
    """

    def __init__(
        self,
        federation: str,
        changes: FollowedLog,
        event_log: EventLog,
        metrics: Metrics,
        admit: Admit = lambda peer, caller: None,
        tunnels: int = 1024,
    ) -> None:
        self._federation, self._changes, self._event_log = federation, changes, event_log
        self._metrics, self._admit = metrics, admit
        self.pairing: Pairing[Waiting] = Pairing(lambda one: one.ended.set())
        self.tunnels: BoundedGroups[Tunnel] = BoundedGroups(MAX_TUNNELS, tunnels)

    async def listen(self, context: ssl.SSLContext, port: int = 0) -> asyncio.Server:
        """Listen on the loopback interface."""
        return await asyncio.start_server(
            self._serve,
            "127.0.0.1",
            port,
            ssl=context,
            ssl_handshake_timeout=REQUEST_SECONDS,
            limit=BUFFER_BYTES,
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, name = Connection(reader, writer), "unknown"
        try:
            name, fingerprint = self._identify(writer)
            request = await read_frame(reader, REQUEST_SECONDS)
            peer = f"127.0.0.1:{writer.get_extra_info('peername')[1]}"
            if request["kind"] == "log":
                # Whoever has a certificate may bring what the operator signed.
                self._admit(peer, OTHERS)
                return await self._receive_log(connection, request)
            self._check_caller(name, fingerprint)
            self._admit(peer, name)
            # A revocation just before would not have closed this connection.
            self._check_caller(name, fingerprint)
            if request["kind"] == "wait" and name != OPERATOR:
                await self._wait(connection, name)
            elif request["kind"] == "connect":
                await self._connect(connection, name, str(request.get("to")))
            else:
                raise BadFrame("an unknown request")
        except (Refused, BadFrame) as problem:
            reason = problem.reason if isinstance(problem, Refused) else "malformed"
            await self._refuse(connection, name, reason, str(problem))
        except OSError:
            pass  # includes errors of TLS: the other end is gone
        except asyncio.CancelledError:  # the relay stops
            abort(writer)
        except Exception as problem:
            self._event_log.write_throttled(
                30, ("error", type(problem)), "internal error", "error", why=repr(problem)
            )
        finally:
            await close(writer)

    def _identify(self, writer: asyncio.StreamWriter) -> tuple[str, str]:
        """The owner of the certificate that TLS has verified, and its fingerprint."""
        der = writer.get_extra_info("ssl_object").getpeercert(True)
        info = certificate_info(ssl.DER_cert_to_PEM_cert(der).encode())
        name = certified_name(info, self._federation)
        if name is None:
            raise Refused("another federation", f"it is not of federation {self._federation}")
        return name, info.fingerprint

    def _check_caller(self, name: str, fingerprint: str) -> None:
        log = self._changes.log
        if not log.accepts(name, fingerprint):
            entry = log.revoked_in(name)
            raise Refused("revoked", f"entry {entry} of the operator's log revokes its certificate")
        if name != OPERATOR and name not in log.members:
            raise Refused("not a member", f"{name} is not a member")

    async def _refuse(self, connection: Connection, name: str, reason: str, text: str) -> None:
        self._metrics.count("tacit_relay_refused_total", reason=reason)
        # That a member does not wait here is no mistake: it may use another relay.
        if reason != "absent":
            self._event_log.write_throttled(
                10, ("refused", reason, name), "refused", "warning",
                caller=name, reason=reason, why=text,
            )  # fmt: skip
        entries = self._changes.log.number
        with suppress(OSError):
            await write_frame(connection.writer, "refused", reason=reason, why=text, log=entries)

    async def _receive_log(self, connection: Connection, request: dict[str, Any]) -> None:
        size = request.get("size")
        if not isinstance(size, int) or not 0 <= size <= MAX_BYTES:
            raise BadFrame("a log without a valid size")
        try:
            async with asyncio.timeout(UPDATE_SECONDS):
                text = await connection.reader.readexactly(size)
            await asyncio.to_thread(self._changes.update, text)
        except asyncio.IncompleteReadError:
            raise BadFrame("a log that is cut off") from None
        except Misuse as problem:
            raise Refused("log", str(problem)) from None
        await write_frame(connection.writer, "received", log=self._changes.log.number)

    async def _wait(self, connection: Connection, name: str) -> None:
        """Keep a connection until another member wants it, and then until their tunnel ends."""
        waiting = Waiting(connection)
        await write_frame(connection.writer, "waiting", log=self._changes.log.number)
        answer = asyncio.ensure_future(read_frame(connection.reader, 1e9))
        discarded = asyncio.ensure_future(waiting.ended.wait())
        self.pairing.add(name, waiting)
        try:
            first: set[asyncio.Future[Any]] = {waiting.caller, answer, discarded}
            while not any(one.done() for one in first):
                await asyncio.wait(first, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not any(one.done() for one in first):
                    await write_frame(connection.writer, "ping")
            if not waiting.caller.done():
                return
            await write_frame(connection.writer, "connected", caller=waiting.caller.result())
            async with asyncio.timeout(READY_SECONDS):
                is_ready = (await answer)["kind"] == "ready"
            waiting.ready.set_result(is_ready)
            if is_ready:
                await waiting.ended.wait()
        finally:
            self.pairing.remove(name, waiting)
            answer.cancel()
            discarded.cancel()
            await asyncio.gather(answer, discarded, return_exceptions=True)
            if not waiting.ready.done():
                waiting.ready.set_result(False)

    async def _connect(self, caller: Connection, name: str, to: str) -> None:
        """Connect a caller with a member, and forward bytes until one of them closes."""
        if to not in self._changes.log.members:
            raise Refused("unknown", "no member has this name")
        if not self.pairing.may_request(name):
            raise Refused("too many", f"{name} has too many requests that are not answered yet")
        waiting = await self._take(name, to)
        try:
            await write_frame(caller.writer, "connected", log=self._changes.log.number)
            tunnel = Tunnel(caller, waiting.connection, time.monotonic())
            if (oldest := self.tunnels.add(tunnel, f"{name} {to}")) is not None:
                oldest.abort()
            try:
                await self._forward(tunnel, name)
            finally:
                self.tunnels.remove(tunnel)
        finally:
            waiting.ended.set()

    async def _take(self, name: str, to: str) -> Waiting:
        """A connection of a member that answers."""
        deadline = time.monotonic() + PAIR_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            waiting = await self.pairing.take(name, to, left)
            if waiting is None:
                break
            if waiting.ended.is_set() or waiting.ready.done():
                continue
            waiting.caller.set_result(name)
            if await asyncio.shield(waiting.ready):
                return waiting
        raise Refused("absent", f"{to} is not connected to this relay")

    async def _forward(self, tunnel: Tunnel, name: str) -> None:
        def count(size: int) -> None:
            tunnel.used = time.monotonic()
            self._metrics.count("tacit_relay_forwarded_bytes_total", size, caller=name)

        await forward(tunnel.caller, tunnel.member, count)

    def close_idle(self, now: float) -> None:
        """Close tunnels that have not been used for long."""
        for tunnel in self.tunnels.items():
            if now - tunnel.used > IDLE_SECONDS:
                tunnel.abort()


def server_context(own: Any, ca: bytes, current: Callable[[], Any]) -> ssl.SSLContext:
    """Accepts certificates of the federation's authority; `current` may renew the relay's own."""
    context = tls.server_context(own, ca, tls.RELAY)

    def renew(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        with suppress(Exception):  # keep the one that works
            connection.context = tls.server_context(current(), ca, tls.RELAY)

    context.sni_callback = renew
    return context
