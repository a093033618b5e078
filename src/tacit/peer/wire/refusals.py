"""Counts and logs connections that a gate refused, with what to do about them."""

from __future__ import annotations

from tacit.peer.monitoring.event_log import EventLog, Level
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.wire.gate import HANDSHAKE_SECONDS, Reason

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
        "this process has no file left to open",
        "Raise the limit of open files (ulimit -n, LimitNOFILE= of systemd) to 4096 or more.",
    ),
    "no threads": (
        "this process cannot start another thread",
        "Raise the limit of threads (ulimit -u, TasksMax= of systemd, --pids-limit of containers).",
    ),
}


def report_refusal(metrics: Metrics, event_log: EventLog, reason: Reason, address: str) -> None:
    """Count and log a connection that ended before a call was accepted."""
    metrics.count("tacit_connections_refused_total", reason=reason)
    level: Level = "info" if reason == "closed" else "warning"
    # One key per reason: there may be as many addresses as a stranger likes.
    event_log.write_throttled(
        REFUSALS_SECONDS,
        ("connection refused", reason),
        "connection refused",
        level,
        reason=reason,
        address=address,
        why=REFUSALS[reason][0],
        remedy=REFUSALS[reason][1],
    )
