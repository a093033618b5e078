"""The servers of a node: gRPC for its neighbours, HTTP for monitoring on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tacit.peer.dashboard.page import dashboard_pages
from tacit.peer.federation.change_log import Entry
from tacit.peer.federation.federation_client import status_to_dict
from tacit.peer.federation.roster import OUTGOING
from tacit.peer.monitoring.access import TOKEN_FILE, stored_access
from tacit.peer.monitoring.http_server import serve_pages
from tacit.peer.monitoring.pages import monitoring_pages
from tacit.peer.node.health import check_health, log_health
from tacit.peer.node.log_sharing import follow_changes
from tacit.peer.node.message_server import MessageServer
from tacit.peer.node.node_state import NodeState
from tacit.peer.node.own_page import own_board
from tacit.peer.node.service import PeerService, threads_for
from tacit.peer.relay.waiting import RelayWaiter
from tacit.peer.wire.connection_limits import ConnectionLimits, raise_file_limit
from tacit.peer.wire.gate import Gate, bind_address
from tacit.peer.wire.refusals import report_refusal
from tacit.peer.wire.transport import start_server

LOOPBACK = "127.0.0.1:0"


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
        # Behind a firewall, all connections come through relays.
        own_address = LOOPBACK if own_address == OUTGOING else own_address
        address = address or bind_address(own_address)
        with (
            # Last to end, so that the last answers still get through relays.
            use_relays(state) as waiter,
            serve_peers(state, address) as waiter.port,
            log_health(state),
            follow_changes(state),
        ):
            yield {"listen": address, "metrics": port}


def kept(state: NodeState) -> str:
    """What the status page says about the transcript."""
    return "not kept" if state.transcript is None else state.transcript.status


@contextmanager
def use_relays(state: NodeState) -> Iterator[RelayWaiter]:
    """Let others reach this node through relays, if it is behind a firewall, and it them."""
    waiter = RelayWaiter(state.relay_user, lambda: state.is_outgoing, state.event_log)
    try:
        with waiter.run():
            yield waiter
    finally:
        state.dialer.close()


@contextmanager
def serve_peers(state: NodeState, address: str) -> Iterator[int]:
    """Serve neighbours through a gate, which limits connections before TLS; yield its port."""
    own, ca = state.credentials.current(), state.folder.ca()
    members = len(state.manifest.members)
    limits = ConnectionLimits.for_files(raise_file_limit(), members)
    gate = Gate(address, limits, partial(report_refusal, state.metrics, state.event_log))
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
