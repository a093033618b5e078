"""What a node offers while it lives: its letters to neighbours, health and metrics to this machine."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tacit.peer.federation.identity import describe
from tacit.peer.monitoring.http_server import MonitoringServer
from tacit.peer.node.state import NodeState, plain_status
from tacit.peer.wire.server import Service, threads_for
from tacit.peer.wire.transport import listen


@contextmanager
def serving(desk: NodeState, address: str | None, metrics_port: int) -> Iterator[dict[str, Any]]:
    """Answer neighbours at `address`, or where the roster says, and this machine at a port; where that is."""
    own, ca = desk.folder.credentials(), desk.folder.ca()
    desk.metrics.set(
        "tacit_certificate_expiry_seconds", describe(own.certificate).not_after.timestamp()
    )
    desk.metrics.set("tacit_start_seconds", time.time())
    desk.metrics.set("tacit_steps", desk.progress.steps)
    monitor = MonitoringServer(
        metrics_port, lambda: plain_status(desk.status()), lambda: _healthy(desk), desk.metrics
    )
    port = monitor.start()
    server: Any = None
    try:
        address = address or bind_address(desk.manifest.member(desk.name).address)
        threads = threads_for(len(desk.manifest.members))
        server, _ = listen(address, [Service(desk).handlers()], threads, own, ca)
        yield {"listen": address, "metrics": port}
    finally:
        desk.stop.set()
        desk.standing.outbox.close()
        if server is not None:
            server.stop(grace=1).wait()
        monitor.stop()


def bind_address(address: str) -> str:
    """Where a node listens that others reach at `address`: there if that is a number, everywhere if it is a name."""
    host, _, port = address.rpartition(":")
    if host == "localhost":
        return f"127.0.0.1:{port}"
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return f"[::]:{port}"
    return address


def _healthy(desk: NodeState) -> tuple[bool, str]:
    now = desk.now()
    return not now.problem, now.problem or now.phase
