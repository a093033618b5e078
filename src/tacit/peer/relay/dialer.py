"""Addresses on this machine at which members are reached through relays.

gRPC connects to addresses. So each member behind a firewall gets a socket in a folder that only
this user can open. Bytes from there go through a relay to the member, as they are: the connection
inside is encrypted between the two nodes.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.peer.federation.relays import Relay
from tacit.peer.relay.client import FAILURES, RelayUser
from tacit.peer.relay.forwarding import BUFFER_BYTES, Connection, close, forward
from tacit.peer.relay.loop_thread import ErrorHandler, LoopThread

NO_RELAY = "the federation has no relay: the operator adds one by tacit federation add-relay"


class RelayDialer:
    """Connects to members through relays; threads may share it. It costs nothing until used."""

    def __init__(self, user: RelayUser, on_error: ErrorHandler | None = None) -> None:
        self._user, self._on_error, self._lock = user, on_error, threading.Lock()
        self._thread: LoopThread | None = None
        self._folder: Path | None = None
        self._paths: dict[str, Path] = {}  # of the sockets, by member
        self._servers: list[asyncio.Server] = []
        self._relays: dict[str, str] = {}  # the relay that each member was last reached through
        self._problems: dict[str, str] = {}
        self._closed = False

    def address(self, member: str) -> str:
        """An address, unix:PATH, that leads to a member."""
        with self._lock:
            if member not in self._paths:
                self._paths[member] = self._make_socket(member)
            return f"unix:{self._paths[member]}"

    def _make_socket(self, member: str) -> Path:
        """Listen on a new socket. Its path is short, because systems allow about 100 characters."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tacit-"))
        path = self._folder / f"{len(self._paths)}"
        if not self._closed:
            self._thread = self._thread or LoopThread("relays", self._on_error)
            try:
                server = self._thread.run(self._listen(member, path))
            except OSError as problem:
                remedy = "Set TMPDIR to a folder of this machine with a short name."
                raise Misuse(f"Cannot make the socket {path}: {problem}.", remedy) from None
            self._servers.append(server)
        return path

    def relay_of(self, member: str) -> str:
        """The relay through which a member was reached last; "" if it was not."""
        return "" if member in self._problems else self._relays.get(member, "")

    def problem(self, member: str) -> str:
        """Why the last attempt to reach a member failed; "" if it did not."""
        return self._problems.get(member, "")

    def send_log(self, relay: Relay) -> bool:
        """Send the operator's log to a relay; return whether it has got it."""
        with self._lock:
            if self._closed:
                return False
            thread = self._thread = self._thread or LoopThread("relays", self._on_error)
        try:
            thread.run(self._user.send_log(relay))
        except (*FAILURES, CancelledError):
            return False
        return True

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            self._closed = True
            if self._thread is not None:
                self._thread.run(self._stop_listening())
                self._thread.close()
                self._thread = None
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    async def _listen(self, member: str, path: Path) -> asyncio.Server:
        serve = partial(self._serve, member)
        return await asyncio.start_unix_server(serve, path, limit=BUFFER_BYTES)

    async def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()

    async def _serve(
        self, member: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            found = await self._connect(member)
            if found is not None:
                await forward(Connection(reader, writer), found)
        except asyncio.CancelledError:  # `close`; asyncio would log it
            pass
        finally:
            await close(writer)

    async def _connect(self, member: str) -> Connection | None:
        """A connection through the relay that worked last, or else the first that works."""
        problems = []
        for relay in self._ordered(member):
            try:
                found = await self._user.connect(relay, member)
            except FAILURES as problem:
                problems.append(str(problem) or f"relay {relay.name}: {type(problem).__name__}")
                continue
            self._relays[member] = relay.name
            self._problems.pop(member, None)
            return found
        self._problems[member] = "; ".join(problems)[:500] or NO_RELAY
        return None

    def _ordered(self, member: str) -> list[Relay]:
        last = self._relays.get(member)
        return sorted(self._user.relays(), key=lambda relay: relay.name != last)
