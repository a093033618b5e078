"""What a dashboard shows: pure functions from the state of a federation to JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tacit.peer.federation.manifest import Manifest

EXPIRES_SOON = 14  # days
NEARLY_SPENT = 0.95  # of a privacy budget
DAY = 86_400
# States of nodes that are not phases of a running node.
SILENT, ENDED, UNKNOWN, SUSPENDED = "silent", "ended", "unknown", "suspended"
# Values of a status that the page shows as they are.
COPIED = (
    "generation",
    "step",
    "steps",
    "loss",
    "accuracy",
    "bytes_sent",
    "bytes_received",
    "rejected",
    "saved",
    "uptime_seconds",
    "privacy",
)

Curve = Sequence[tuple[int, float | None, float | None]]  # step, loss, accuracy in percent


@dataclass(frozen=True)
class NodeView:
    """One node as the page shows it; None is for what the viewer does not know."""

    name: str
    state: str  # a phase of a running node, or one of the states above
    address: str = ""
    problem: str = ""  # why it cannot continue, or why it does not respond
    generation: int | None = None
    step: int | None = None
    steps: int | None = None
    round: int | None = None
    rounds: int | None = None
    waiting_for: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()  # what those say about themselves, which may be wrong
    waiting_since: float | None = None  # Unix time
    loss: float | None = None
    accuracy: float | None = None  # percent
    bytes_sent: int | None = None
    bytes_received: int | None = None
    rejected: int | None = None
    saved: int | None = None
    uptime_seconds: float | None = None
    version: str = ""
    privacy: Mapping[str, Any] | None = None
    expires: float | None = None  # Unix time at which its certificate expires


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


def view_node(status: Mapping[str, Any], now: float, before: NodeView | None = None) -> NodeView:
    """A view of the values of `NodeReport.as_dict`; keys that are missing stay unknown."""
    known: dict[str, Any] = {key: status.get(key) for key in COPIED}
    base = NodeView(
        name=status["name"],
        state=status.get("phase") or UNKNOWN,
        address=status.get("address", ""),
        problem=status.get("problem", ""),
        version=status.get("version", ""),
        expires=status.get("certificate_expires") or None,
    )
    if not status.get("reached", True):
        return _without_response(base, before)
    texts = tuple(status.get("waiting_for", ()))
    names = tuple(text.split(" ")[0] for text in texts)
    same = before is not None and before.waiting_for == names
    since = (before.waiting_since if before is not None and same else now) if names else None
    length = status.get("round_length") or 1
    return replace(
        base,
        **known,
        round=None if known["step"] is None else known["step"] // length,
        rounds=None if known["steps"] is None else known["steps"] // length,
        waiting_for=names,
        claims=tuple(text for text in texts if " " in text),
        waiting_since=since,
    )


def _without_response(base: NodeView, before: NodeView | None) -> NodeView:
    """A node that does not respond, with what was known of its progress."""
    if before is None:
        return replace(base, state=SILENT)
    ended = before.state in ("finished", ENDED)
    last = replace(before, waiting_for=(), claims=(), waiting_since=None, expires=base.expires)
    state, problem = (ENDED, "") if ended else (SILENT, base.problem)
    return replace(last, state=state, problem=problem)


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
    nodes = [node for node in snapshot.nodes if node.state != UNKNOWN]
    total = len(nodes)
    done = [node.name for node in nodes if node.state in ("finished", ENDED)]
    silent = [node.name for node in nodes if node.state == SILENT]
    stuck = [node.name for node in nodes if node.problem and node.state != SILENT]
    waiting = [node for node in nodes if node.waiting_for and node.state != "finished"]
    if stuck:
        return f"{_list(stuck)} cannot continue"
    if total and len(done) == total:
        return "Training has finished"
    if silent:
        return f"{_list(silent)} {'does' if len(silent) == 1 else 'do'} not respond"
    if waiting:
        awaited = sorted({name for node in waiting for name in node.waiting_for})
        names = [node.name for node in waiting]
        return f"{_list(names)} {'waits' if len(names) == 1 else 'wait'} for {_list(awaited)}"
    phases = {node.state for node in nodes} - {"finished", ENDED}
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
        if node.generation is not None and node.generation < newest:
            warnings.append(f"{node.name} still uses the roster of generation {node.generation}.")
        if (spent := _spent(node)) is not None and spent >= NEARLY_SPENT:
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
