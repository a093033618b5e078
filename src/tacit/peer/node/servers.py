"""The servers of a node: gRPC for its neighbours, HTTP for monitoring on this machine."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tacit.peer.dashboard.page import dashboard_pages
from tacit.peer.federation.change_log import Entry
from tacit.peer.federation.federation_client import status_to_dict
from tacit.peer.monitoring.access import TOKEN_FILE, stored_access
from tacit.peer.monitoring.event_log import Level
from tacit.peer.monitoring.http_server import serve_pages
from tacit.peer.monitoring.pages import monitoring_pages
from tacit.peer.node.health import check_health, log_health
from tacit.peer.node.log_sharing import follow_changes
from tacit.peer.node.message_server import MessageServer
from tacit.peer.node.node_state import NodeState
from tacit.peer.node.own_page import own_board
from tacit.peer.node.service import PeerService, threads_for
from tacit.peer.wire.connection_limits import ConnectionLimits, raise_file_limit
from tacit.peer.wire.gate import HANDSHAKE_SECONDS, Gate, Reason
from tacit.peer.wire.transport import start_server

REFUSALS_SECONDS = 10.0  # between two log lines about refused connections of one kind
FIREWALL = "If it is not a member, let a firewall keep it away."
# Why a connection was refused, and what to do about it.
REFUSALS: dict[Reason, tuple[str, str]] = {
    "too many": (
        "it was the oldest of too many connections without a call; newer ones are served",
        FIREWALL,
    ),
    "timeout": (f"no call was accepted within {HANDSHAKE_SECONDS:.0f} s", FIREWALL),
    "not tls": ("its first byte does not begin a TLS handshake", FIREWALL),
    "no valid certificate": (
        "it ended in the TLS handshake, or before a call was accepted",
        "If it is a member, check its log, its certificate and the clocks. " + FIREWALL,
    ),
    "closed": ("it was closed without a byte, as port scans and probes do", ""),
    "no files": (
        "this process has no file left to open, or no thread to start",
        "Raise the limit of open files (ulimit -n, LimitNOFILE= of systemd) to 4096 or more, and "
        "that of threads (TasksMax= of systemd, pids_limit of containers) to 256 or more.",
    ),
    "no threads": (
        "this process cannot start another thread",
        "Raise the limit of threads (ulimit -u, TasksMax= of systemd, --pids-limit of containers).",
    ),
}


@contextmanager
def run_servers(
    state: NodeState, address: str | None, metrics_port: int
) -> Iterator[dict[str, Any]]:
    """Serve while the block runs; yield the addresses in use.

    Without `address` the node listens at its address in the roster. Port 0 chooses a free one.
    """
    metrics = state.metrics
    metrics.set_function("tacit_certificate_expiry_seconds", lambda: state.credentials.expiry)
    metrics.set("tacit_start_seconds", time.time())
    metrics.set("tacit_steps", state.progress.steps)
    access = stored_access(state.folder.run / TOKEN_FILE)
    pages = monitoring_pages(
        lambda scores: status_to_dict(state.status(scores=scores)) | {"transcript": kept(state)},
        lambda: check_health(state, state.credentials.expiry),
        metrics,
        access,
        shares_scores=lambda: state.shares_scores,
    )
    own_page = dashboard_pages(access, lambda: own_board(state, state.credentials.expiry))
    with serve_pages(metrics_port, {**pages, **own_page}) as port:
        own_address = state.changes.address(state.manifest.member(state.name), state.manifest)
        address = address or bind_address(own_address)
        with serve_peers(state, address), log_health(state), follow_changes(state):
            yield {"listen": address, "metrics": port}


def kept(state: NodeState) -> str:
    """What the status page says about the transcript."""
    return "not kept" if state.transcript is None else state.transcript.status


@contextmanager
def serve_peers(state: NodeState, address: str) -> Iterator[int]:
    """Serve neighbours through a gate, which limits connections before TLS; yield its port."""
    own, ca = state.credentials.current(), state.folder.ca()
    members = len(state.manifest.members)
    limits = ConnectionLimits.for_files(raise_file_limit(), members)
    gate = Gate(address, limits, partial(report_refusal, state))
    server: Any = None
    unsubscribe = state.changes.subscribe(partial(close_revoked, gate))
    try:
        handlers = [PeerService(state, gate.admit).handlers()]
        # gRPC may close connections later than the gate does.
        connections = 2 * (limits.pending + limits.admitted)
        server, port = start_server(
            "127.0.0.1:0",
            handlers,
            threads_for(members),
            own,
            ca,
            connections,
            state.credentials.current,
        )
        gate.start(port, MessageServer(state).serve)
        state.metrics.set_function("tacit_connections", lambda: gate.open_connections)
        state.metrics.set_function("tacit_connections_pending", lambda: gate.pending_connections)
        yield gate.port
    finally:
        unsubscribe()
        state.stop.set()
        state.active.outbox.close()
        if server is not None:
            server.stop(grace=1).wait()
        gate.close()


def close_revoked(gate: Gate, entries: Sequence[Entry]) -> None:
    """Close the connections of members whose certificates were revoked."""
    for entry in entries:
        if entry.kind == "revocation":
            gate.close_connections(entry.change["name"])


def report_refusal(state: NodeState, reason: Reason, address: str) -> None:
    """Count and log a connection that ended before a call was accepted."""
    state.metrics.count("tacit_connections_refused_total", reason=reason)
    level: Level = "info" if reason == "closed" else "warning"
    # One key per reason: there may be as many addresses as a stranger likes.
    state.event_log.write_throttled(
        REFUSALS_SECONDS,
        ("connection refused", reason),
        "connection refused",
        level,
        reason=reason,
        address=address,
        why=REFUSALS[reason][0],
        remedy=REFUSALS[reason][1],
    )


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
