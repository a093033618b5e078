"""What a dashboard shows: pure functions from the state of a federation to JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from tacit.peer.dashboard.node_view import (
    DONE,
    GONE,
    RESPONDS,
    SILENT,
    SUSPENDED,
    UNKNOWN,
    NodeView,
)
from tacit.peer.federation.manifest import Manifest

EXPIRES_SOON = 14  # days
NEARLY_SPENT = 0.95  # of a privacy budget
DAY = 86_400
Curve = Sequence[tuple[int, float | None, float | None]]  # step, loss, accuracy in percent


@dataclass(frozen=True)
class Snapshot:
    """A federation at one moment."""

    manifest: Manifest
    time: float  # Unix time
    nodes: tuple[NodeView, ...]
    viewer: str  # "operator" or the name of a node
    curves: Mapping[str, Curve] = field(default_factory=dict)
    certificates: Mapping[str, float] = field(default_factory=dict)  # of operator and authority

    def node(self, name: str) -> NodeView | None:
        return next((node for node in self.nodes if node.name == name), None)


def board(snapshot: Snapshot, events: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Everything that the page shows, as JSON values."""
    manifest = snapshot.manifest
    names = manifest.names
    return {
        "federation": manifest.federation,
        "generation": manifest.generation,
        "algorithm": manifest.config.algorithm.name,
        "subject": manifest.config.task_name,
        "viewer": snapshot.viewer,
        "time": snapshot.time,
        "directed": bool(manifest.graph.directed),
        "shares_metrics": manifest.config.shares_metrics,
        "headline": headline(snapshot),
        "alerts": alerts(snapshot),
        "nodes": [asdict(node) for node in snapshot.nodes],
        "edges": [[names[a], names[b]] for a, b in manifest.graph.edges.tolist()],
        "curves": {
            name: [list(point) for point in curve] for name, curve in snapshot.curves.items()
        },
        "certificates": [
            {"name": name, "expires": expires} for name, expires in snapshot.certificates.items()
        ],
        "events": [dict(event) for event in events],
    }


def headline(snapshot: Snapshot) -> str:
    """The state of the federation in one sentence."""
    nodes = [node for node in snapshot.nodes if node.state not in (UNKNOWN, RESPONDS, SUSPENDED)]
    total = len(nodes)
    done = [node.name for node in nodes if node.state in DONE]
    silent = [node.name for node in nodes if node.state == SILENT]
    stuck = [node.name for node in nodes if node.problem and node.state != SILENT]
    waiting = [node for node in nodes if node.waiting_for and node.state != "finished"]
    if stuck:
        return f"{_list(stuck)} cannot continue"
    if total and len(done) == total:
        sure = all(node.state != GONE for node in nodes)
        return "Training has finished" if sure else "Training has probably finished"
    if silent:
        return f"{_list(silent)} {'does' if len(silent) == 1 else 'do'} not respond"
    if waiting:
        awaited = sorted({name for node in waiting for name in node.waiting_for})
        names = [node.name for node in waiting]
        return f"{_list(names)} {'waits' if len(names) == 1 else 'wait'} for {_list(awaited)}"
    phases = {node.state for node in nodes} - DONE
    if phases <= {"training"}:
        return f"{nodes[0].name} trains" if total == 1 else f"All {total} nodes train"
    return "Nodes are starting"


def _list(names: Sequence[str]) -> str:
    """Up to three names, and the number of the others."""
    if len(names) > 3:
        return f"{', '.join(names[:2])} and {len(names) - 2} others"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def alerts(snapshot: Snapshot) -> list[dict[str, str]]:
    """What needs attention, the worst first: `level` and `text`."""
    errors: list[str] = []
    warnings: list[str] = []
    newest = max((node.generation or 0 for node in snapshot.nodes), default=0)
    for node in snapshot.nodes:
        if node.state == SILENT:
            errors.append(f"{node.name} does not respond ({node.problem or 'no reason given'}).")
        elif node.problem:
            errors.append(f"{node.name} cannot continue: {node.problem}.")
        if node.state == SUSPENDED:
            warnings.append(f"{node.name} is suspended; the others go on without it.")
        if node.notice:
            warnings.append(f"{node.name}: {node.notice}.")
        if node.generation is not None and node.generation < newest:
            warnings.append(f"{node.name} still uses the roster of generation {node.generation}.")
        spent = _spent(node)
        # The noise of a run is chosen so that its end spends the budget.
        if spent is not None and spent >= NEARLY_SPENT and node.state not in DONE:
            warnings.append(f"{node.name} has spent {spent:.0%} of its privacy budget.")
    expiring = {node.name: node.expires for node in snapshot.nodes} | dict(snapshot.certificates)
    for name, expires in expiring.items():
        if expires is None or (days := (expires - snapshot.time) / DAY) >= EXPIRES_SOON:
            continue
        date = f"{datetime.fromtimestamp(expires, UTC):%Y-%m-%d}"
        owner = f"the {name}" if name in snapshot.certificates else name
        if days < 0:
            errors.append(f"The certificate of {owner} expired on {date}.")
        else:
            warnings.append(f"The certificate of {owner} expires on {date}.")
    levels = (("error", errors), ("warning", warnings))
    return [{"level": level, "text": text} for level, texts in levels for text in texts]


def _spent(node: NodeView) -> float | None:
    """The part of a privacy budget that a node has spent; None without a promise."""
    privacy = node.privacy or {}
    spent, promised = privacy.get("epsilon_spent"), privacy.get("epsilon")
    return spent / promised if spent is not None and promised else None
