"""A thread of a node that follows its folder, and passes new entries of the log on.

Nodes compare logs when they connect. Connections may stay open for the whole run, so a change that
does not interrupt the training is sent to the neighbours when it arrives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import certificate_info
from tacit.peer.federation.roster import Member
from tacit.peer.node.live_credentials import DAY, expiry_notice
from tacit.peer.node.node_state import NodeState
from tacit.peer.wire.transport import SERVICE, open_channel

CHECK_SECONDS = 1.0  # between two looks into the folder
RETRY_SECONDS = 10.0  # between two attempts to reach a neighbour
CALL_SECONDS = 5.0
RENEW = "Run `tacit member renew FOLDER` and have the operator sign the request."


@contextmanager
def follow_changes(state: NodeState) -> Iterator[None]:
    """Follow renewed certificates and the log while the block runs."""
    ended, sharing = threading.Event(), LogSharing(state)

    def watch() -> None:
        while not ended.is_set():
            try:
                is_new = state.changes.changed.is_set()
                state.changes.changed.clear()
                state.credentials.current()
                state.changes.refresh()
                announce_expiry(state, time.time())
                sharing.share(time.monotonic(), at_once=is_new)
            except Exception as problem:  # the next round may succeed
                state.event_log.write_throttled(
                    60, "changes", "internal error", "error", why=repr(problem)
                )
            state.changes.changed.wait(CHECK_SECONDS)

    thread = threading.Thread(target=watch, name="changes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        state.changes.changed.set()
        thread.join()


class LogSharing:
    """Sends new entries to relays, and to in-neighbours: those that this node connects to."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._known: dict[str, str] = {}  # the head that each neighbour has
        self._next_attempt = 0.0
        self._first = state.changes.log.head

    def share(self, now: float, *, at_once: bool) -> None:
        """Send the log to all neighbours that may not have it, after a pause unless `at_once`."""
        state, head = self._state, self._state.changes.log.head
        if not at_once and now < self._next_attempt:
            return
        self._next_attempt = now + RETRY_SECONDS
        for member in state.manifest.in_neighbours(state.name):
            # What was known at the start is compared when nodes connect.
            if self._known.get(member.name, self._first) != head and self._send(member):
                self._known[member.name] = head
        for relay in state.relay_user.relays():
            if self._known.get(relay.name, self._first) != head and state.dialer.send_log(relay):
                self._known[relay.name] = head

    def _send(self, member: Member) -> bool:
        state, name = self._state, member.name
        roots = state.changes.roots(name)
        if not roots or state.stop.is_set():
            return False
        own, address = state.credentials.current(), state.reach(member)
        channel = open_channel(address, name, state.manifest.federation, own, roots)
        try:
            call = channel.unary_unary(f"/{SERVICE}/AnnounceManifest")
            call(state.signed_update().SerializeToString(), timeout=CALL_SECONDS)
            return True
        except (grpc.RpcError, Misuse):
            return False
        finally:
            channel.close()


def announce_expiry(state: NodeState, now: float) -> None:
    """Log once a day that a certificate of this node or of the authority expires soon."""
    authority = certificate_info(state.folder.ca()).not_after.timestamp()
    expiries = {state.name: state.credentials.expiry, "the authority": authority}
    for owner, expiry in expiries.items():
        if notice := expiry_notice(owner, expiry, now):
            key = ("certificate expires", owner)
            state.event_log.write_throttled(
                DAY, key, "certificate expires", "warning", why=notice, remedy=RENEW
            )
