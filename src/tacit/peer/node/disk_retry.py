"""Writes that wait for space on a full disk."""

from __future__ import annotations

from collections.abc import Callable

from tacit.peer.node.node_state import NodeState, Stopped

MAX_PAUSE = 30.0  # seconds between two attempts


def write_with_retry(state: NodeState, what: str, write: Callable[[], object]) -> None:
    """Call `write` until it succeeds; raise Stopped if the node must stop before that."""
    phase, failures = state.progress.phase, 0
    while True:
        try:
            write()
            break
        except OSError as problem:
            report_failure(state, what, problem)
            if state.stop.wait(min(MAX_PAUSE, 0.5 * 2**failures)):
                raise Stopped from None
            failures += 1
    if failures:
        state.report(phase=phase, problem="")
        state.event_log.write("saved after retry", what=what, step=state.progress.step)


def report_failure(state: NodeState, what: str, problem: OSError) -> None:
    """Log a failed write, and show it in the node's status."""
    why = f"{what} cannot be saved: {problem.strerror or problem}"
    state.metrics.count("tacit_checkpoint_failures_total")
    state.report(phase="saving", problem=why)
    remedy = "Free disk space, or correct the permissions of the run folder."
    state.event_log.write("save failed", "error", why=why, remedy=remedy)
