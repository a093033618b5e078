"""The dashboard of one node: what it knows itself, its scores and log included."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tacit.peer.dashboard.board import Snapshot, board
from tacit.peer.dashboard.node_view import RESPONDS, SILENT, UNKNOWN, NodeView, view_node
from tacit.peer.federation.federation_client import status_to_dict
from tacit.peer.node.node_state import NodeState

# Fields of log lines that the page shows, in this order.
SHOWN = ("why", "reason", "sender", "neighbour", "address", "generation", "step")


def own_board(state: NodeState, expiry: float) -> dict[str, Any]:
    """What the page shows; `expiry` is when the node's certificate expires, in Unix time."""
    now, manifest = time.time(), state.manifest
    known = {"certificate_expiry": expiry, "address": manifest.member(state.name).address}
    own = view_node(status_to_dict(state.status()) | known, now)
    if own.waiting_for and state.awaited:
        waited = time.monotonic() - state.waiting_since
        own = replace(own, waiting_since=now - waited)
    neighbours = {member.name for member in manifest.in_neighbours(state.name)}
    nodes = tuple(
        own if name == state.name else _other(state, name, name in neighbours)
        for name in manifest.names
    )
    curves = {state.name: state.scores.points()}
    events = [_event(line) for line in list(state.event_log.recent)]
    return board(Snapshot(manifest, now, nodes, state.name, curves), events)


def _other(state: NodeState, name: str, is_neighbour: bool) -> NodeView:
    """Another node, of which this one knows at most whether it responds."""
    view = NodeView(name, UNKNOWN, state.manifest.member(name).address)
    if not is_neighbour:
        return view
    if state.metrics.value("tacit_neighbour_up", neighbour=name):
        return replace(view, state=RESPONDS)
    if name in state.awaited:
        problem = f"{state.name} waits for it and gets no response"
        return replace(view, state=SILENT, problem=problem)
    return view


def _event(line: dict[str, Any]) -> dict[str, Any]:
    details = ", ".join(f"{key} {line[key]}" for key in SHOWN if key in line and key != "why")
    parts = [line["event"], *([str(line["why"])] if line.get("why") else [])]
    text = ": ".join(parts) + (f" ({details})" if details else "")
    return {"time": line["time"], "level": line["level"], "node": line["node"], "text": text}
