"""Whether a node is healthy, for /health and its log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tacit.peer.node.node_state import NodeState

CHECK_SECONDS = 5.0
LOG_SECONDS = 300.0  # between two log lines about one problem that lasts


def check_health(
    state: NodeState, expiry: float, clock: Callable[[], float] = time.time
) -> tuple[bool, str]:
    """Whether a node can train, and why not; otherwise its phase.

    Args:
        state: The node's state.
        expiry: Unix time at which the certificate that it uses expires.
        clock: The time now.
    """
    progress = state.current_progress()
    if state.problem:
        return False, state.problem
    notice = state.certificate_notice(expiry, clock())
    if notice and (clock() > expiry or state.is_revoked):
        return False, notice
    seconds = state.clock.stalled_for(waits=bool(progress.waiting_for))
    if seconds:
        waiting = ", ".join(progress.waiting_for)
        cause = f"waiting for {waiting}" if waiting else progress.phase
        return False, f"no iteration for {seconds:.0f} s: {cause}"
    return True, f"{progress.phase}; {notice}" if notice else progress.phase


@contextmanager
def log_health(state: NodeState) -> Iterator[None]:
    """Log what makes the node unhealthy while the block runs."""
    ended = threading.Event()

    def watch() -> None:
        was_healthy = True
        while not ended.wait(CHECK_SECONDS):
            healthy, why = check_health(state, state.credentials.expiry)
            if not healthy:
                step = state.progress.step
                state.event_log.write_throttled(
                    LOG_SECONDS, "not healthy", "not healthy", "warning", why=why, step=step
                )
            elif not was_healthy:
                state.event_log.write("healthy again", step=state.progress.step)
            was_healthy = healthy

    thread = threading.Thread(target=watch, name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
