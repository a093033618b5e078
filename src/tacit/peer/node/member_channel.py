"""Connections to a member that follow the operator's log and this node's own certificate."""

from __future__ import annotations

import threading
from typing import Any

from tacit.peer.federation.certificates import Credentials
from tacit.peer.federation.roster import Member
from tacit.peer.node.node_state import NodeState
from tacit.peer.wire.message_stream import MessageStream, open_stream
from tacit.peer.wire.messages import Rejected
from tacit.peer.wire.transport import open_channel

# Address, trusted certificates, and own credentials.
Settings = tuple[str, bytes, Credentials]


class MemberChannel:
    """The channel to one member; threads may share it."""

    def __init__(self, state: NodeState, member: Member) -> None:
        self._state, self._member = state, member
        self._lock = threading.Lock()
        self._channel: Any = None
        self._settings: Settings | None = None
        self._stream_settings: Settings | None = None  # of the newest stream

    def current(self) -> Any:
        """The gRPC channel with the current settings; raise Rejected after a revocation."""
        address, roots, own = settings = self._current_settings()
        with self._lock:
            if settings != self._settings:
                self._close()
                if not roots:
                    raise _revoked()
                federation = self._state.manifest.federation
                self._channel = open_channel(address, self._member.name, federation, own, roots)
                self._settings = settings
            return self._channel

    def open_stream(self) -> MessageStream:
        """A new stream of messages; raise Rejected after a revocation, or OSError."""
        address, roots, own = self._stream_settings = self._current_settings()
        if not roots:
            raise _revoked()
        return open_stream(address, self._member.name, self._state.manifest.federation, own, roots)

    @property
    def is_stream_outdated(self) -> bool:
        """Whether the address or the certificates have changed since the stream was opened."""
        settings = self._stream_settings
        return settings is not None and self._current_settings()[:2] != settings[:2]

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._settings = None, None

    def _current_settings(self) -> Settings:
        state, member = self._state, self._member
        roots = state.changes.roots(member.name)
        return state.reach(member), roots, state.credentials.current()


def _revoked() -> Rejected:
    text = "its certificate is revoked, and the operator has not signed a new one"
    return Rejected("revoked", text)
