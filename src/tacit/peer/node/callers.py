"""Who calls a node, and whether the operator has revoked the certificate."""

from __future__ import annotations

from grpc import StatusCode

from tacit.peer.federation.certificates import OPERATOR, certificate_info, certified_name
from tacit.peer.node.node_state import NodeState


class Refused(Exception):
    """Ends a call with an error; `reason` is a label for the metrics, None to count nothing."""

    def __init__(self, code: StatusCode, reason: str | None, text: str) -> None:
        super().__init__(text)
        self.code, self.reason = code, reason


class Caller:
    """The owner of a certificate (PEM) that TLS has verified."""

    def __init__(self, state: NodeState, certificate: bytes) -> None:
        self._state, self._fingerprint = state, ""
        self.name: str | None = None
        if certificate:
            info = certificate_info(certificate)
            self._fingerprint = info.fingerprint
            self.name = certified_name(info, state.manifest.federation)

    @property
    def is_revoked(self) -> bool:
        """Whether the certificate is revoked now, or is not of this federation."""
        log = self._state.changes.log
        return self.name is None or not log.accepts(self.name, self._fingerprint)

    def identified(self, *, even_revoked: bool = False) -> str:
        """The caller's name; raise Refused if the certificate is not of this federation."""
        federation = self._state.manifest.federation
        if self.name is None:
            text = f"the caller's certificate is not of federation {federation}"
            raise Refused(StatusCode.PERMISSION_DENIED, "another federation", text)
        if self.name in self._state.changes.log.relays:
            # Others with a certificate may have the manifest; a relay must not.
            text = f"{self.name} is a relay, which forwards but may not call"
            raise Refused(StatusCode.PERMISSION_DENIED, "relay", text)
        if self.is_revoked and not even_revoked:
            entry = self._state.changes.log.revoked_in(self.name)
            text = f"the operator revoked this certificate of {self.name}: "
            text += f"entry {entry} of its log"
            raise Refused(StatusCode.PERMISSION_DENIED, "revoked", text)
        return self.name

    @property
    def group(self) -> str:
        """The caller; all callers that are not members share their limits."""
        known = self.name is not None and is_member_or_operator(self._state, self.name)
        return str(self.name) if known else "others"

    def log_refusal(self, refusal: Refused) -> None:
        """Count and log why the caller is refused."""
        if refusal.reason is not None:
            self._state.reject(refusal.reason, self.name or "unknown", str(refusal))

    def log_error(self, problem: Exception) -> None:
        """Log an error of this node while it served the caller."""
        event, fields = "internal error", {"caller": self.name, "why": repr(problem)}
        key = (event, type(problem))
        self._state.event_log.write_throttled(30, key, event, "error", **fields)


def is_member_or_operator(state: NodeState, name: str) -> bool:
    manifest = state.manifest
    return name == OPERATOR or name in manifest.names or name in dict(manifest.suspended)
