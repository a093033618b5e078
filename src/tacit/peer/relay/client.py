"""How a member or the operator uses a relay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit.peer.federation.certificates import Credentials, server_name
from tacit.peer.federation.change_log import ChangeLog
from tacit.peer.federation.relays import Relay, known_relays
from tacit.peer.relay.forwarding import BUFFER_BYTES, Connection, abort, close
from tacit.peer.relay.frames import BadFrame, read_frame, write_frame
from tacit.peer.wire import tls

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 10.0
# Refusals that a newer log of the operator may change.
OUTDATED = ("not a member", "revoked", "unknown")


class RelayRefused(Exception):
    """The relay refused a request."""

    def __init__(self, relay: Relay, answer: dict[str, Any]) -> None:
        reason, why = str(answer.get("reason"))[:40], str(answer.get("why"))[:300]
        super().__init__(f"relay {relay.name}: {why}")
        self.reason = reason


# What may go wrong with a relay; another one may work.
FAILURES = (OSError, BadFrame, RelayRefused)


@dataclass(frozen=True)
class RelayUser:
    """A member or the operator, as a user of relays.

    Attributes:
        federation: The federation's name.
        ca: Certificate of the authority (PEM).
        credentials: The user's current certificate and key.
        log: The operator's current log.
    """

    federation: str
    ca: bytes
    credentials: Callable[[], Credentials]
    log: Callable[[], ChangeLog]

    def relays(self) -> list[Relay]:
        """The relays of the federation, now."""
        return known_relays(self.log(), self.ca)

    async def connect(self, relay: Relay, member: str) -> Connection:
        """A connection to a member through a relay; raise one of FAILURES."""
        return (await self._request(relay, "connected", "connect", to=member))[0]

    async def wait(self, relay: Relay) -> Connection:
        """A connection on which a relay will say who calls; raise one of FAILURES."""
        connection, answer = await self._request(relay, "waiting", "wait")
        try:
            await self._share_log(relay, answer)
        except FAILURES:
            pass  # it may get the log from another member
        except BaseException:
            abort(connection.writer)
            raise
        return connection

    async def send_log(self, relay: Relay) -> None:
        """Send the operator's log to a relay; raise one of FAILURES."""
        text, connection = self.log().text, await self._open(relay)
        try:
            await write_frame(connection.writer, "log", size=len(text))
            connection.writer.write(text)
            await connection.writer.drain()
            answer = await read_frame(connection.reader, ANSWER_SECONDS)
            if answer["kind"] != "received":
                raise RelayRefused(relay, answer)
        finally:
            await close(connection.writer)

    async def _request(
        self, relay: Relay, expected: str, kind: str, **fields: str
    ) -> tuple[Connection, dict[str, Any]]:
        """The connection and the answer; a relay with an old log gets ours, and is asked again."""
        for is_last in (False, True):
            connection = await self._open(relay)
            try:
                await write_frame(connection.writer, kind, **fields)
                answer = await read_frame(connection.reader, ANSWER_SECONDS)
                if answer["kind"] == expected:
                    return connection, answer
            except BaseException:
                abort(connection.writer)
                raise
            await close(connection.writer)
            is_outdated = answer.get("reason") in OUTDATED and await self._share_log(relay, answer)
            if is_last or not is_outdated:
                break
        raise RelayRefused(relay, answer)

    async def _share_log(self, relay: Relay, answer: dict[str, Any]) -> bool:
        """Send the log to a relay whose answer shows that it has fewer entries; return whether."""
        entries = answer.get("log")
        if not isinstance(entries, int) or entries >= self.log().number:
            return False
        await self.send_log(relay)
        return True

    async def _open(self, relay: Relay) -> Connection:
        host, _, port = relay.address.rpartition(":")
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                host.strip("[]"),
                int(port),
                ssl=tls.client_context(self.credentials(), relay.roots, tls.RELAY),
                server_hostname=server_name(relay.name, self.federation),
                limit=BUFFER_BYTES,
            )
        tls.keep_alive(writer.get_extra_info("socket"))
        return Connection(reader, writer)
