"""What happens in a federation as plain lines, for logs and other programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tacit.peer.dashboard.board import Snapshot
from tacit.peer.dashboard.changes import changes
from tacit.peer.dashboard.node_view import ENDED, settle, view_node
from tacit.peer.federation.federation_client import NodeReport
from tacit.peer.federation.manifest import Manifest


class StatusLog:
    """Writes a line for each change of a node's state, and for each round that all have done."""

    def __init__(self, manifest: Manifest, write: Callable[[str], None]) -> None:
        self._manifest, self._write = manifest, write
        self._before: Snapshot | None = None
        self._round = 0

    def update(self, reports: Sequence[NodeReport], now: float, ended: Sequence[str] = ()) -> None:
        """Write what changed since the last update; nodes in `ended` have finished and exited."""
        before = self._before
        views = []
        for report in reports:
            name = report.member.name
            earlier = None if before is None else before.node(name)
            view = view_node(report.as_dict(), now, earlier)
            if name in ended:
                view = replace(view, state=ENDED, problem="")
            elif earlier is not None and report.status is None:
                # It is about to exit. `up` says why, if it fails.
                view = earlier
            views.append(view)
        after = Snapshot(self._manifest, now, settle(views), "operator")
        # The first look only says that nodes do not respond yet.
        for event in () if before is None else changes(before, after):
            level = "" if event["level"] == "info" else f"{event['level']}: "
            who = f"{event['node']}: " if event["node"] else ""
            self._write(f"{event['time']} {level}{who}{event['text']}")
        done = [node.round for node in after.nodes if node.round is not None]
        if len(done) == len(after.nodes) and min(done, default=0) > self._round:
            self._round = min(done)
            rounds = max((node.rounds or 0 for node in after.nodes), default=0)
            self._write(f"round {self._round} of {rounds}")
        self._before = after


def result_line(name: str, summary: dict[str, Any]) -> str:
    """How a node ended, such as "berlin: 200 iterations, loss 0.1143, accuracy 97.37 %"."""
    loss, accuracy, baseline = (summary.get(key) for key in ("loss", "accuracy", "baseline"))
    parts = [f"{summary['steps']} iterations"]
    parts += [] if loss is None else [f"loss {loss:.4g}"]
    parts += [] if accuracy is None else [f"accuracy {accuracy:.2f} %"]
    parts += [] if baseline is None else [f"majority baseline {baseline:.2f} %"]
    for metric, value in summary.get("metrics", {}).items():
        parts += [] if value is None else [f"{metric} {value:.4g}"]
    return f"{name}: {', '.join(parts)}"
