"""A relay from start to end: a gate, the server behind it, the operator's log, and monitoring."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, write_json
from tacit.core.version import __version__
from tacit.peer.federation.certificates import certificate_info
from tacit.peer.federation.change_log import Entry
from tacit.peer.federation.relays import RelayFolder
from tacit.peer.monitoring.access import TOKEN_FILE, stored_access
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.http_server import serve_pages
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.monitoring.pages import monitoring_pages
from tacit.peer.node.followed_log import FollowedLog
from tacit.peer.node.live_credentials import DAY, LiveCredentials, expiry_notice
from tacit.peer.relay.loop_thread import log_errors
from tacit.peer.relay.server import MAX_TUNNELS, RelayServer, server_context
from tacit.peer.wire.connection_limits import ConnectionLimits, raise_file_limit
from tacit.peer.wire.gate import Gate, bind_address
from tacit.peer.wire.refusals import report_refusal

CHECK_SECONDS = 1.0  # between two looks into the folder
MIN_MEMBERS = 16  # for the limits, which do not follow the roster


class RelayProcess:
    """One relay. `run` returns after `stop`.

    Args:
        folder: What the operator handed out.
        event_log: Where to log.
        listen: host:port to listen on; None: the address in the operator's log.
        metrics_port: For monitoring on this machine; 0 chooses a free port.
    """

    def __init__(
        self,
        folder: RelayFolder,
        event_log: EventLog,
        listen: str | None = None,
        metrics_port: int = 0,
    ) -> None:
        self.folder, self.event_log, self.name = folder, event_log, folder.name
        self._metrics_port, self._metrics = metrics_port, Metrics()
        self._changes = FollowedLog(folder, event_log)
        self._credentials = LiveCredentials(folder, self.name, event_log)
        self._own = self._credentials.current()
        address = self._changes.log.relays.get(self.name, "")
        if not address:
            raise Misuse(
                f"{self.name} is not a relay of {folder.federation}.",
                "Give the folder relays/NAME that `tacit federation add-relay` made.",
            )
        self._address = listen or bind_address(address)
        self._stop = threading.Event()
        self.server: RelayServer | None = None  # while it runs

    def stop(self) -> None:
        """Make `run` return; any thread may call this."""
        self._stop.set()

    def run(self) -> None:
        """Serve until `stop`."""
        run = self.folder.run
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock(run, wait=False) as acquired:
            if not acquired:
                problem = f"{self.name} is running already, from {self.folder.path}."
                raise Misuse(problem, "Stop that process first.")
            with self._monitored() as port, self._gate() as gate:
                write_json(run / "ports.json", {"listen": self._address, "metrics": port})
                self.event_log.write(
                    "started", version=__version__, federation=self.folder.federation,
                    listen=self._address, metrics=port,
                )  # fmt: skip
                asyncio.run(self._serve(gate))
        self.event_log.write("stopped")

    @contextmanager
    def _gate(self) -> Iterator[Gate]:
        """A gate with limits, which closes connections of members that are revoked or removed."""
        members = max(MIN_MEMBERS, len(self._changes.log.members)) + 2
        limits = ConnectionLimits.for_files(raise_file_limit(), members)
        # As caller and as called by each member, and connections that wait.
        per_caller = 2 * MAX_TUNNELS * members
        admitted = max(limits.admitted, min(per_caller * members, raise_file_limit() // 8))
        limits = ConnectionLimits(limits.pending, limits.pending_per_address, admitted, per_caller)
        gate = Gate(self._address, limits, partial(report_refusal, self._metrics, self.event_log))
        unsubscribe = self._changes.subscribe(partial(self._close_refused, gate))
        self._tunnels = admitted // 2
        try:
            yield gate
        finally:
            unsubscribe()
            gate.close()

    def _close_refused(self, gate: Gate, entries: Sequence[Entry]) -> None:
        """Close connections of those who are no members any more, or whose keys are revoked."""
        names = {entry.change["name"] for entry in entries if entry.kind == "revocation"}
        log = self._changes.log
        ever = {name for entry in log.entries for name in entry.change.get("members", ())}
        for name in names | (ever - {*log.members}):
            gate.close_connections(name)

    async def _serve(self, gate: Gate) -> None:
        asyncio.get_running_loop().set_exception_handler(log_errors(self.event_log))
        server = self.server = RelayServer(
            self.folder.federation,
            self._changes,
            self.event_log,
            self._metrics,
            gate.admit,
            self._tunnels,
        )
        self._metrics.set_function("tacit_relay_waiting", server.pairing.count)
        self._metrics.set_function("tacit_relay_tunnels", lambda: len(server.tunnels))
        self._metrics.set_function("tacit_connections", lambda: gate.open_connections)
        self._metrics.set_function("tacit_connections_pending", lambda: gate.pending_connections)
        context = server_context(self._own, self.folder.ca(), self._credentials.current)
        listening = await server.listen(context)
        gate.start(listening.sockets[0].getsockname()[1])
        while not await asyncio.to_thread(self._stop.wait, CHECK_SECONDS):
            await asyncio.to_thread(self._follow_folder)
            server.close_idle(time.monotonic())
        listening.close()

    def _follow_folder(self) -> None:
        """Use a log and a certificate that were copied into the folder."""
        self._changes.refresh()
        self._credentials.current()
        if notice := expiry_notice(self.name, self._credentials.expiry, time.time()):
            self.event_log.write_throttled(
                DAY, "certificate expires", "certificate expires", "warning", why=notice
            )

    @contextmanager
    def _monitored(self) -> Iterator[int]:
        self._metrics.set_function(
            "tacit_certificate_expiry_seconds", lambda: self._credentials.expiry
        )
        self._metrics.set("tacit_start_seconds", time.time())
        access = stored_access(self.folder.run / TOKEN_FILE)
        pages = monitoring_pages(self._status, self._health, self._metrics, access)
        with serve_pages(self._metrics_port, pages) as port:
            yield port

    def _status(self, _: bool) -> dict[str, Any]:
        return {"name": self.name, "version": __version__, "log": self._changes.log.number}

    def _health(self) -> tuple[bool, str]:
        log, fingerprint = self._changes.log, certificate_info(self._own.certificate).fingerprint
        if not log.relays.get(self.name):
            return False, f"the operator has removed the relay {self.name}"
        if time.time() > self._credentials.expiry or not log.accepts(self.name, fingerprint):
            return False, f"the certificate of {self.name} has expired or is revoked"
        return True, "serving"
