"""What a node's own dashboard shows."""

import io
import json

import pytest

from support.clinics import clinics
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node_state import ActiveRoster, NodeState
from tacit.peer.node.own_page import own_board

EXPIRY = 2_000_000_000.0


@pytest.fixture
def state(tmp_path):
    folder = clinics(tmp_path / "f", "abcd", host="192.0.2.7").node("a")
    active = ActiveRoster.load(folder, "a", folder.manifest())
    state = NodeState(folder, "a", active, EventLog(io.StringIO(), "a"), 6, "torch.float32")
    state.report(phase="training", step=10, steps=100, round_length=5)
    return state


def states(state):
    return {node["name"]: node["state"] for node in own_board(state, EXPIRY)["nodes"]}


def test_it_shows_the_node_and_what_it_knows_of_others(state):
    state.report(loss=0.5, accuracy=90.0)
    state.scores.add(10, 0.5, 90.0)
    shown = own_board(state, EXPIRY)
    assert json.loads(json.dumps(shown))["viewer"] == "a"
    own, *others = shown["nodes"]
    assert (own["loss"], own["round"], own["rounds"]) == (0.5, 2, 20)
    assert (own["expires"], own["address"]) == (EXPIRY, "192.0.2.7:7500")
    assert {other["state"] for other in others} == {"unknown"}
    assert {other["loss"] for other in others} == {None}
    assert shown["curves"] == {"a": [[10, 0.5, 90.0]]}
    assert shown["headline"] == "a trains"


def test_neighbours_respond_or_do_not(state):
    """The ring is a, b, c, d: b and d are neighbours of a."""
    state.metrics.set("tacit_neighbour_up", 1, neighbour="b")
    state.metrics.set("tacit_neighbour_up", 0, neighbour="d")
    state.metrics.set("tacit_neighbour_up", 0, neighbour="c")
    assert states(state) == {"a": "training", "b": "responds", "c": "unknown", "d": "unknown"}
    state.awaited = ("d",)
    shown = own_board(state, EXPIRY)
    assert shown["nodes"][3]["state"] == "silent"
    assert shown["headline"] == "d does not respond"
    # It waits since longer than a second ago, so it says so.
    own = shown["nodes"][0]
    assert own["waiting_for"] == ("d",)
    assert own["waiting_since"] < shown["time"]


def test_events_are_the_newest_lines_of_the_log_without_scores(state):
    for step in range(300):
        state.event_log.write("evaluated", step=step, loss=0.123456)
        state.event_log.write("connected", neighbour="b", step=step)
    state.event_log.write("failed", "error", why="the disk is full")
    events = own_board(state, EXPIRY)["events"]
    assert len(events) == 200
    last, before = events[-1], events[-2]
    assert (last["level"], last["text"]) == ("error", "failed: the disk is full")
    assert before["text"] == "connected (neighbour b, step 299)"
    assert "0.123456" not in json.dumps(events)
