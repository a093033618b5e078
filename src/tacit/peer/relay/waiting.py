"""Keeps connections of a member to relays open, on which others reach its node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tacit.peer.federation.relays import Relay
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.relay.client import FAILURES, RelayUser
from tacit.peer.relay.forwarding import BUFFER_BYTES, Connection, abort, forward
from tacit.peer.relay.frames import BadFrame, read_frame, write_frame
from tacit.peer.relay.loop_thread import LoopThread, log_errors
from tacit.peer.relay.server import PING_SECONDS

CONNECTIONS = 3  # that wait at each relay
CHECK_SECONDS = 1.0  # between two looks at the operator's log
SILENCE_SECONDS = 3 * PING_SECONDS  # after which a relay is gone
MIN_PAUSE, MAX_PAUSE = 0.2, 5.0  # seconds between attempts, doubled each time
LOG_SECONDS = 60.0  # between two lines about a relay that is not reached


class RelayWaiter:
    """Waits at all relays while the member's address is OUTGOING.

    Args:
        user: The member.
        is_outgoing: Whether others reach this member through relays, now.
        event_log: The node's log.
        port: The port of the node's gate on the loopback interface; 0 if it is not open yet.
    """

    def __init__(
        self,
        user: RelayUser,
        is_outgoing: Callable[[], bool],
        event_log: EventLog,
        port: int = 0,
    ) -> None:
        self._user, self._is_outgoing, self._event_log = user, is_outgoing, event_log
        self.port = port
        self._tunnels: set[asyncio.Task[None]] = set()
        self._reached: dict[str, bool] = {}

    @contextmanager
    def run(self) -> Iterator[None]:
        """Wait at relays while the block runs."""
        thread = LoopThread("waiting at relays", log_errors(self._event_log))
        thread.start(self._follow())
        try:
            yield
        finally:
            thread.close()

    async def _follow(self) -> None:
        """Wait at the relays that the operator's log names now."""
        tasks: dict[Relay, list[asyncio.Task[None]]] = {}
        while True:
            wanted = self._user.relays() if self.port and self._is_outgoing() else []
            for relay in tasks.keys() - set(wanted):
                for task in tasks.pop(relay):
                    task.cancel()
            for relay in wanted:
                if relay not in tasks:
                    keep = [asyncio.create_task(self._keep(relay)) for _ in range(CONNECTIONS)]
                    tasks[relay] = keep
            await asyncio.sleep(CHECK_SECONDS if self.port else MIN_PAUSE)

    async def _keep(self, relay: Relay) -> None:
        """Keep one connection waiting at a relay, and open the next when it is used."""
        longest = MIN_PAUSE
        while True:
            try:
                await self._wait_once(relay)
                longest = MIN_PAUSE
            except FAILURES as problem:
                self._note(relay, problem)
                await asyncio.sleep(longest * random.uniform(0.5, 1.0))
                longest = min(MAX_PAUSE, 2 * longest)

    async def _wait_once(self, relay: Relay) -> None:
        """Return when another member is connected; its tunnel goes on in a task of its own."""
        connection = await self._user.wait(relay)
        self._note(relay, None)
        try:
            kind = "ping"
            while kind == "ping":
                frame = await read_frame(connection.reader, SILENCE_SECONDS)
                kind = frame["kind"]
            if kind != "connected":
                raise BadFrame(f"relay {relay.name} sent {kind!r:.40}")
            gate = Connection(
                *await asyncio.open_connection("127.0.0.1", self.port, limit=BUFFER_BYTES)
            )
        except BaseException:
            abort(connection.writer)
            raise
        task = asyncio.create_task(self._serve(connection, gate))
        self._tunnels.add(task)
        task.add_done_callback(self._tunnels.discard)

    async def _serve(self, connection: Connection, gate: Connection) -> None:
        """Forward between a member and the node's own gate, which limits it as any other."""
        with suppress(OSError):
            await write_frame(connection.writer, "ready")
        await forward(connection, gate)

    def _note(self, relay: Relay, problem: Exception | None) -> None:
        """Log that a relay is reached, or why not."""
        if problem is None:
            if not self._reached.get(relay.name):
                self._event_log.write("relay reached", relay=relay.name, address=relay.address)
            self._reached[relay.name] = True
            return
        self._reached[relay.name] = False
        self._event_log.write_throttled(
            LOG_SECONDS, ("relay", relay.name), "relay not reached", "warning",
            relay=relay.name, address=relay.address, why=str(problem) or type(problem).__name__,
            remedy="This node keeps trying. Others reach it through other relays, if there are.",
        )  # fmt: skip
