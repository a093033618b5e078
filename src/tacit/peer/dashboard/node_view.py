"""One node as a dashboard shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# States of nodes that are not phases of a running node.
SILENT, UNKNOWN, SUSPENDED = "silent", "unknown", "suspended"
RESPONDS = "responds"  # and nothing else is known of it
ENDED, GONE = "ended", "gone"  # exited after the end, or so near to it that it may have finished
DONE = {"finished", ENDED, GONE}
# Numbers of a status that the page shows.
COPIED = (
    "generation",
    "step",
    "steps",
    "loss",
    "accuracy",
    "baseline",
    "bytes_sent",
    "bytes_received",
    "rejected",
    "saved",
    "uptime_seconds",
)
BUDGET = ("sums", "epsilon_spent", "epsilon", "delta")
LARGEST = float(1 << 53)  # numbers beyond this make no sense, and scripts cannot count so far
LAST_TIME = 253_402_300_799.0  # the end of the year 9999, the last that calendars can show
MAX_NAMES = 100


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
    baseline: float | None = None  # percent; accuracy of always predicting the most frequent class
    bytes_sent: int | None = None
    bytes_received: int | None = None
    rejected: int | None = None
    saved: int | None = None
    uptime_seconds: float | None = None
    version: str = ""
    privacy: Mapping[str, Any] | None = None
    seen: float | None = None  # Unix time of its last response
    speed: float | None = None  # iterations per second
    suspends: tuple[str, ...] = ()  # members that it says are suspended
    notice: str = ""  # what to do about its certificate soon
    expires: float | None = None  # Unix time at which its certificate expires


def view_node(status: Mapping[str, Any], now: float, before: NodeView | None = None) -> NodeView:
    """A view of the values of `NodeReport.as_dict`; keys that are missing stay unknown."""
    known: dict[str, Any] = {key: _number(status.get(key)) for key in COPIED}
    base = NodeView(
        name=status["name"],
        state=status.get("phase") or UNKNOWN,
        address=status.get("address", ""),
        problem=status.get("problem", ""),
        version=status.get("version", ""),
        expires=_time(status.get("certificate_expiry")),
    )
    if not status.get("reached", True):
        return _without_response(base, now, before)
    texts = tuple(status.get("waiting_for", ()))
    names = tuple(text.split(" ")[0] for text in texts)
    same = before is not None and before.waiting_for == names
    since = (before.waiting_since if before is not None and same else now) if names else None
    length = max(1, _number(status.get("round_length")) or 1)
    return replace(
        base,
        **known,
        round=None if known["step"] is None else known["step"] // length,
        rounds=None if known["steps"] is None else known["steps"] // length,
        waiting_for=names,
        claims=tuple(text for text in texts if " " in text),
        waiting_since=since,
        privacy=_budget(status.get("privacy")),
        suspends=tuple(status.get("suspended") or ())[:MAX_NAMES],
        notice=status.get("certificate_notice") or "",
        seen=now,
        speed=_speed(known["step"], now, before),
    )


def _number(value: Any) -> Any:
    """A number as nodes report it, or None: a node may send anything."""
    return value if isinstance(value, int | float) and -LARGEST < value < LARGEST else None


def _time(value: Any) -> float | None:
    """A Unix time that calendars can show; None also for 0, which means that there is none."""
    number = _number(value)
    return number if number is not None and 0 < number <= LAST_TIME else None


def _budget(privacy: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What is spent of a promise, if all its numbers make sense."""
    numbers = {key: _number((privacy or {}).get(key)) for key in BUDGET}
    return None if any(number is None or number < 0 for number in numbers.values()) else numbers


def _speed(step: int | None, now: float, before: NodeView | None) -> float | None:
    """Recent iterations per second; None before two responses."""
    if before is None or step is None or before.step is None or before.seen is None:
        return None
    if now <= before.seen or step < before.step:
        return before.speed
    newest = (step - before.step) / (now - before.seen)
    return newest if before.speed is None else 0.7 * before.speed + 0.3 * newest


def _without_response(base: NodeView, now: float, before: NodeView | None) -> NodeView:
    """A node that does not respond, with what was known of its progress."""
    if before is None:
        return replace(base, state=SILENT)
    last = replace(before, waiting_for=(), claims=(), waiting_since=None, expires=base.expires)
    if before.state in ("finished", ENDED):
        return replace(last, state=ENDED, problem="")
    # Nodes exit as soon as they and their neighbours have finished, often between two queries.
    if before.state == GONE or (before.state != SILENT and _may_have_finished(before, now)):
        return replace(last, state=GONE, problem="")
    return replace(last, state=SILENT, problem=base.problem)


def _may_have_finished(before: NodeView, now: float) -> bool:
    """Whether a node could have reached the end since its last response, at twice its speed."""
    if before.step is None or before.steps is None or before.seen is None:
        return False
    possible = before.step + 2 * (before.speed or 0) * (now - before.seen)
    return possible >= before.steps


def settle(nodes: Sequence[NodeView]) -> tuple[NodeView, ...]:
    """The same nodes, each with the state that follows from what the others say.

    A node is suspended if most nodes that respond say so. None counts as gone while another that
    responds waits for it.
    """
    running = [node for node in nodes if node.state not in {SILENT, ENDED, GONE}]
    awaited = {name for node in running for name in node.waiting_for}
    votes = Counter(name for node in running for name in set(node.suspends))
    return tuple(_settle(node, awaited, 2 * votes[node.name] > len(running)) for node in nodes)


def _settle(node: NodeView, awaited: set[str], suspended: bool) -> NodeView:
    if suspended and node.state not in DONE:
        return replace(node, state=SUSPENDED, problem="", waiting_for=(), waiting_since=None)
    if node.state == GONE and node.name in awaited:
        return replace(node, state=SILENT, problem="it has exited, but others wait for it")
    return node
