"""Writing to a disk that may be full: say so, wait, and go on when there is room."""

from __future__ import annotations

from collections.abc import Callable

from tacit.peer.node.state import NodeState
from tacit.peer.wire.neighbour_client import Stopped

AGAIN = 30.0  # seconds between two attempts to write, at most


def persist(desk: NodeState, what: str, write: Callable[[], None]) -> None:
    """Call `write`, and again as long as it fails for want of room; leaves with Left if the node is to end."""
    before, failures = desk.progress.phase, 0
    while True:
        try:
            write()
            break
        except OSError as problem:
            complain(desk, what, problem)
            if desk.stop.wait(min(AGAIN, 0.5 * 2**failures)):
                raise Stopped from None
            failures += 1
    if failures:
        desk.report(phase=before, problem="")
        desk.event_log.write("saved again", what=what, step=desk.progress.step)


def complain(desk: NodeState, what: str, problem: OSError) -> None:
    """Say that something could not be written, and what to do."""
    why = f"{what} cannot be saved: {problem.strerror or problem}"
    desk.metrics.count("tacit_checkpoint_failures_total")
    desk.report(phase="saving", problem=why)
    remedy = "Make room on the disk, or correct the folder's rights; the node waits and goes on."
    desk.event_log.write("not saved", "error", why=why, remedy=remedy)
