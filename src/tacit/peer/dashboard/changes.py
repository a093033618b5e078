"""Events of a federation: what changed between two snapshots."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tacit.peer.dashboard.board import Snapshot
from tacit.peer.dashboard.node_view import ENDED, GONE, SILENT, NodeView

LONG_WAIT = 10.0  # seconds of waiting that are worth an event
# Nodes change between these all the time.
ROUTINE = {"training", "waiting"}


def changes(before: Snapshot | None, after: Snapshot) -> list[dict[str, Any]]:
    """The events between two snapshots, in the order of the nodes.

    An event has `time` (ISO 8601), `level`, `node` ("" for the federation) and `text`.
    """
    if before is None:
        return [_event(after, "", "info", "dashboard started")]
    events = []
    if before.manifest.generation != after.manifest.generation:
        text = f"roster of generation {after.manifest.generation}: " + ", ".join(
            after.manifest.names
        )
        events.append(_event(after, "", "info", text))
    for node in after.nodes:
        previous = before.node(node.name)
        if previous is None:
            events.append(_event(after, node.name, "info", "joined"))
            continue
        pairs = _node_changes(previous, node, before.time, after.time)
        events += [_event(after, node.name, level, text) for level, text in pairs]
    gone = [node.name for node in before.nodes if after.node(node.name) is None]
    return events + [_event(after, name, "info", "left") for name in gone]


def _node_changes(
    before: NodeView, after: NodeView, then: float, now: float
) -> list[tuple[str, str]]:
    """Levels and texts of what changed at one node."""
    found = []
    if after.state != before.state and not {after.state, before.state} <= ROUTINE:
        if after.state == SILENT:
            found.append(("error", f"does not respond ({after.problem})"))
        elif after.state == ENDED:
            found.append(("info", "has finished and exited"))
        elif after.state == GONE:
            found.append(("info", "has exited near the end: it has probably finished"))
        elif before.state in (SILENT, GONE):
            again = " again" if before.step is not None else ""
            found.append(("info", f"responds{again}: {after.state}"))
        else:
            found.append(("info", after.state))
    if after.problem and after.problem != before.problem and after.state != SILENT:
        found.append(("error", f"cannot continue: {after.problem}"))
    if before.problem and not after.problem and before.state != SILENT:
        found.append(("info", "can continue"))
    if _generation(after) > _generation(before) > 0:
        found.append(("info", f"uses the roster of generation {after.generation}"))
    if (after.rejected or 0) > (before.rejected or 0) and before.rejected is not None:
        count = (after.rejected or 0) - before.rejected
        what = "a message or caller" if count == 1 else f"{count} messages or callers"
        found.append(("warning", f"rejected {what}: see its log"))
    since = after.waiting_since
    # A finished node waits for its neighbours to finish: that is no reason to worry.
    if since is not None and then - since < LONG_WAIT <= now - since and after.state != "finished":
        text = f"has waited for {', '.join(after.waiting_for)} for {LONG_WAIT:.0f} s"
        found.append(("warning", text))
    return found


def _generation(node: NodeView) -> int:
    return node.generation or 0


def _event(snapshot: Snapshot, node: str, level: str, text: str) -> dict[str, Any]:
    return make_event(snapshot.time, node, level, text)


def make_event(when: float, node: str, level: str, text: str) -> dict[str, Any]:
    """An event at a Unix time."""
    moment = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")
    return {"time": moment.replace("+00:00", "Z"), "level": level, "node": node, "text": text}
