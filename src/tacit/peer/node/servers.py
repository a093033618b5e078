"""The servers of a node: gRPC for its neighbours, HTTP for monitoring on this machine."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tacit.peer.federation.certificates import certificate_info
from tacit.peer.federation.federation_client import status_to_dict
from tacit.peer.monitoring.http_server import serve_monitoring
from tacit.peer.node.node_state import NodeState
from tacit.peer.node.service import PeerService, threads_for
from tacit.peer.wire.transport import start_server


@contextmanager
def run_servers(
    state: NodeState, address: str | None, metrics_port: int
) -> Iterator[dict[str, Any]]:
    """Serve while the block runs; yield the addresses in use.

    Without `address` the node listens at its address in the roster. Port 0 chooses a free one.
    """
    own, ca, metrics = state.folder.credentials(), state.folder.ca(), state.metrics
    expiry = certificate_info(own.certificate).not_after.timestamp()
    metrics.set("tacit_certificate_expiry_seconds", expiry)
    metrics.set("tacit_start_seconds", time.time())
    metrics.set("tacit_steps", state.progress.steps)
    with serve_monitoring(
        metrics_port, lambda: status_to_dict(state.status()), lambda: _health(state), metrics
    ) as port:
        server: Any = None
        try:
            address = address or bind_address(state.manifest.member(state.name).address)
            threads = threads_for(len(state.manifest.members))
            server, _ = start_server(address, [PeerService(state).handlers()], threads, own, ca)
            yield {"listen": address, "metrics": port}
        finally:
            state.stop.set()
            state.active.outbox.close()
            if server is not None:
                server.stop(grace=1).wait()


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


def _health(state: NodeState) -> tuple[bool, str]:
    progress = state.current_progress()
    return not progress.problem, progress.problem or progress.phase
