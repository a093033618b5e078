"""What a dashboard shows is a function of the federation's state."""

import json
from dataclasses import replace

import pytest

from support.clinics import clinics
from tacit.peer.dashboard.board import DAY, Snapshot, alerts, board, headline
from tacit.peer.dashboard.changes import LONG_WAIT, changes
from tacit.peer.dashboard.node_view import NodeView, settle, view_node
from tacit.peer.federation.federation_client import MAX_SCORES, _report, _scores
from tacit.peer.wire import wire_pb2 as wire

NOW = 1_800_000_000.0
STATUS = {
    "name": "a", "address": "a.example.org:7400", "reached": True, "phase": "training",
    "generation": 1, "step": 45, "steps": 100, "round_length": 10, "waiting_for": [],
    "loss": 0.5, "accuracy": 90.0, "baseline": 88.0, "bytes_sent": 10, "bytes_received": 20,
    "rejected": 0,
    "saved": 40, "uptime_seconds": 5.0, "problem": "", "version": "0.1.0", "manifest": "ab",
    "privacy": {"sums": 45, "epsilon_spent": 1.0, "epsilon": 8.0, "delta": 1e-5},
}  # fmt: skip


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return clinics(tmp_path_factory.mktemp("home") / "f", "abcd").manifest()


@pytest.fixture
def snapshot(manifest):
    """All nodes train."""
    nodes = tuple(view_node(STATUS | {"name": name}, NOW) for name in manifest.names)
    return Snapshot(manifest, NOW, nodes, "operator")


def with_node(snapshot, name, **changed):
    nodes = (replace(node, **changed) if node.name == name else node for node in snapshot.nodes)
    return replace(snapshot, nodes=tuple(nodes))


def test_a_status_becomes_a_view():
    view = view_node(STATUS | {"certificate_expiry": NOW + DAY}, NOW)
    assert (view.round, view.rounds, view.step, view.steps) == (4, 10, 45, 100)
    assert (view.state, view.loss, view.accuracy) == ("training", 0.5, 90.0)
    assert view.baseline == 88.0
    assert (view.privacy["epsilon_spent"], view.expires) == (1.0, NOW + DAY)
    assert view.waiting_since is None


@pytest.mark.parametrize("missing", sorted(STATUS.keys() - {"name"}))
def test_a_view_needs_no_field_but_the_name(missing):
    view = view_node({key: value for key, value in STATUS.items() if key != missing}, NOW)
    assert view.name == "a"


def test_nothing_is_known_of_a_node_without_status():
    assert view_node({"name": "a"}, NOW) == NodeView("a", "unknown", seen=NOW)


def test_unknown_fields_are_not_shown():
    """What a later version adds to the status is told only when the page is made for it."""
    assert view_node(STATUS | {"patients": 17}, NOW) == view_node(STATUS, NOW)


def test_who_is_waited_for_is_apart_from_what_it_claims():
    text = "b (at iteration 5, says it waits for c)"
    first = view_node(STATUS | {"waiting_for": [text, "d"], "phase": "waiting"}, NOW)
    assert (first.waiting_for, first.claims) == (("b", "d"), (text,))
    assert first.waiting_since == NOW
    later = view_node(STATUS | {"waiting_for": ["b", "d"]}, NOW + 7, first)
    assert later.waiting_since == NOW
    other = view_node(STATUS | {"waiting_for": ["b"]}, NOW + 9, later)
    assert other.waiting_since == NOW + 9


def test_a_node_that_falls_silent_keeps_its_progress():
    before = view_node(STATUS | {"waiting_for": ["b"]}, NOW)
    lost = {"name": "a", "reached": False, "problem": "connection refused"}
    silent = view_node(lost, NOW + 2, before)
    assert (silent.state, silent.step, silent.waiting_for) == ("silent", 45, ())
    assert silent.problem == "connection refused"
    done = view_node(STATUS | {"phase": "finished"}, NOW)
    ended = view_node(lost, NOW + 2, done)
    assert (ended.state, ended.problem) == ("ended", "")
    assert view_node(lost, NOW + 4, ended).state == "ended"
    assert view_node(lost, NOW).state == "silent"


def test_a_node_that_exits_near_the_end_has_probably_finished():
    """A node exits once its neighbours have finished, often between two queries."""
    lost = {"name": "a", "reached": False, "problem": "connection refused"}
    first = view_node(STATUS | {"step": 80}, NOW)
    second = view_node(STATUS | {"step": 90}, NOW + 2, first)
    assert second.speed == 5.0
    gone = view_node(lost, NOW + 4, second)
    assert (gone.state, gone.problem, gone.step) == ("gone", "", 90)
    assert view_node(lost, NOW + 99, gone).state == "gone"
    # Too far from the end, also if the silence lasts.
    slow = view_node(STATUS | {"step": 81}, NOW + 2, first)
    silent = view_node(lost, NOW + 4, slow)
    assert silent.state == view_node(lost, NOW + 999, silent).state == "silent"
    # Another node waits for it, so it has not finished.
    waiting = view_node(STATUS | {"name": "b", "waiting_for": ["a"], "phase": "waiting"}, NOW + 4)
    assert [node.state for node in settle([gone, waiting])] == ["silent", "waiting"]
    assert [node.state for node in settle([gone])] == ["gone"]


def test_a_node_is_suspended_if_most_say_so():
    a, b, c, d = (
        view_node(STATUS | {"name": name, "suspended": {"d": 1_799_999_999}}, NOW)
        for name in "abcd"
    )
    lone = replace(a, suspends=("b", "c"))
    assert [node.state for node in settle([lone, replace(b, suspends=()), c])] == ["training"] * 3
    silent = replace(d, state="silent", problem="no answer in time")
    settled = settle([a, b, c, silent])
    assert [node.state for node in settled] == ["training"] * 3 + ["suspended"]
    assert settled[3].problem == ""


def test_notices_about_certificates_are_alerts(snapshot):
    noted = view_node(STATUS | {"certificate_notice": "renew it", "certificate_expiry": NOW}, NOW)
    assert (noted.notice, noted.expires) == ("renew it", NOW)
    told = alerts(with_node(snapshot, "a", notice="renew it"))
    assert told == [{"level": "warning", "text": "a: renew it."}]


def test_the_board_is_json_with_names_on_its_edges(snapshot):
    shown = board(replace(snapshot, curves={"a": [(0, 1.0, None)]}), [{"text": "x"}])
    assert json.loads(json.dumps(shown)) == shown | {
        "nodes": json.loads(json.dumps(shown["nodes"]))
    }
    assert sorted(shown["edges"]) == sorted(
        [x, y] for x, y in ("ab", "ba", "bc", "cb", "cd", "dc", "da", "ad")
    )
    assert shown["curves"] == {"a": [[0, 1.0, None]]}
    assert shown["shares_metrics"] is False
    assert [node["name"] for node in shown["nodes"]] == list("abcd")


@pytest.mark.parametrize(
    ("name_changes", "sentence"),
    [
        ({}, "All 4 nodes train"),
        ({"a": {"state": "starting"}}, "Nodes are starting"),
        ({"b": {"state": "waiting", "waiting_for": ("a",)}}, "b waits for a"),
        (
            {n: {"state": "waiting", "waiting_for": ("a",)} for n in "bd"},
            "b and d wait for a",
        ),
        ({"c": {"state": "silent"}}, "c does not respond"),
        ({"c": {"state": "suspended"}}, "All 3 nodes train"),
        ({n: {"state": "responds"} for n in "bcd"}, "a trains"),
        ({n: {"state": "silent"} for n in "abcd"}, "a, b and 2 others do not respond"),
        ({"c": {"problem": "the disk is full"}, "a": {"state": "silent"}}, "c cannot continue"),
        ({n: {"state": "finished"} for n in "abcd"}, "Training has finished"),
        ({n: {"state": "gone"} for n in "abcd"}, "Training has probably finished"),
        (
            {"a": {"state": "ended"}, **{n: {"state": "finished"} for n in "bcd"}},
            "Training has finished",
        ),
    ],
)
def test_the_headline_says_how_it_is(snapshot, name_changes, sentence):
    for name, changed in name_changes.items():
        snapshot = with_node(snapshot, name, **changed)
    assert headline(snapshot) == sentence


def test_alerts_name_what_needs_attention(snapshot):
    assert alerts(snapshot) == []
    spent = {"epsilon_spent": 7.9, "epsilon": 8.0}
    bad = with_node(snapshot, "a", state="silent", problem="no answer in time")
    bad = with_node(bad, "b", generation=2, privacy=spent, expires=NOW + 13.5 * DAY)
    bad = replace(bad, certificates={"operator": NOW - 1, "authority": NOW + 1000 * DAY})
    texts = [(one["level"], one["text"]) for one in alerts(bad)]
    assert texts == [
        ("error", "a does not respond (no answer in time)."),
        ("error", "The certificate of the operator expired on 2027-01-15."),
        ("warning", "a still uses the roster of generation 1."),
        ("warning", "b has spent 99% of its privacy budget."),
        ("warning", "c still uses the roster of generation 1."),
        ("warning", "d still uses the roster of generation 1."),
        ("warning", "The certificate of b expires on 2027-01-28."),
    ]


def test_expiry_is_announced_two_weeks_before(snapshot):
    for days, announced in ((15, 0), (14, 0), (13.9, 1), (0.1, 1), (-1, 1)):
        assert len(alerts(with_node(snapshot, "a", expires=NOW + days * DAY))) == announced


def texts_of(before, after):
    return [(one["node"], one["level"], one["text"]) for one in changes(before, after)]


def test_changes_are_events(snapshot):
    assert texts_of(None, snapshot) == [("", "info", "dashboard started")]
    assert texts_of(snapshot, snapshot) == []
    waiting = with_node(snapshot, "a", state="waiting", waiting_for=("b",), waiting_since=NOW)
    assert texts_of(snapshot, waiting) == []
    silent = with_node(snapshot, "b", state="silent", problem="connection refused")
    expected = ("b", "error", "does not respond (connection refused)")
    assert texts_of(snapshot, silent) == [expected]
    assert texts_of(silent, snapshot) == [("b", "info", "responds again: training")]
    full = with_node(snapshot, "c", problem="the disk is full")
    assert texts_of(snapshot, full) == [("c", "error", "cannot continue: the disk is full")]
    assert texts_of(full, snapshot) == [("c", "info", "can continue")]
    rejected = with_node(snapshot, "c", rejected=2, generation=2)
    assert texts_of(snapshot, rejected) == [
        ("c", "info", "uses the roster of generation 2"),
        ("c", "warning", "rejected 2 messages or callers: see its log"),
    ]
    # A node that restarts counts from zero.
    assert texts_of(rejected, with_node(snapshot, "c", generation=2)) == []


def test_a_long_wait_is_one_event(snapshot):
    waiting = with_node(snapshot, "a", state="waiting", waiting_for=("b",), waiting_since=NOW)
    soon = replace(waiting, time=NOW + LONG_WAIT - 1)
    late, later = replace(waiting, time=NOW + LONG_WAIT), replace(waiting, time=NOW + LONG_WAIT + 2)
    assert texts_of(waiting, soon) == []
    assert texts_of(soon, late) == [("a", "warning", "has waited for b for 10 s")]
    assert texts_of(late, later) == []


def test_members_come_and_go(snapshot):
    fewer = replace(snapshot, nodes=snapshot.nodes[1:])
    assert texts_of(snapshot, fewer) == [("a", "info", "left")]
    assert texts_of(fewer, snapshot) == [("a", "info", "joined")]


@pytest.mark.parametrize(
    ("answer", "points"),
    [
        ("no answer in time", []),
        (b"\xff\xff", []),
        (wire.Scores(step=[1, 2], loss=[0.5], accuracy=[1.0]), []),
        (
            wire.Scores(step=[2, 1], loss=[float("nan"), 0.5], accuracy=[float("inf"), 50]),
            [(1, 0.5, 50.0), (2, None, None)],
        ),
    ],
)
def test_scores_of_a_hostile_node_are_checked(answer, points):
    raw = answer if isinstance(answer, str | bytes) else answer.SerializeToString()
    assert _scores(raw) == points


HUGE = 2**64 - 1
LIES = {
    "name": "b", "phase": "x" * 9_999, "generation": 2**32 - 1, "step": HUGE, "steps": HUGE,
    "round_length": 0, "loss": float("nan"), "accuracy": float("-inf"), "bytes_sent": HUGE,
    "bytes_received": HUGE, "rejected": HUGE, "saved": -(2**63), "uptime_seconds": float("inf"),
    "waiting_for": ["", "\x00 ", "b"] * 100, "problem": "\x1b[2J", "version": "\n",
}  # fmt: skip


@pytest.mark.parametrize("field", [*LIES, "privacy", "all"])
def test_a_status_of_a_hostile_node_makes_a_board(manifest, field):
    """It cannot pass for another node, and no value of it stops the page."""
    lies = LIES if field == "all" else {key: LIES[key] for key in [field] if key in LIES}
    nan = float("nan")
    privacy = wire.SpentBudget(sums=HUGE, epsilon_spent=nan, epsilon=0, delta=nan)
    status = wire.Status(**lies, privacy=privacy if field in ("privacy", "all") else None)
    raw = status.SerializeToString()
    first = _report(manifest.member("a"), raw).as_dict()
    assert first["name"] == "a"
    earlier = view_node(STATUS, NOW - 2)
    view = view_node(first | {"certificate_expiry": -1e300}, NOW, earlier)
    for number in (view.step, view.loss, view.bytes_sent, view.uptime_seconds, view.expires):
        assert number is None or -(2**53) < number < 2**53
    assert view.privacy is None
    others = [view_node(STATUS | {"name": name}, NOW) for name in "bcd"]
    snapshot = Snapshot(manifest, NOW, settle([view, *others]), "operator")
    shown = board(snapshot)
    json.dumps(shown, allow_nan=False)
    assert [node["name"] for node in shown["nodes"]] == list("abcd")
    lost = {"name": "a", "reached": False, "problem": "connection refused"}
    view_node(lost, NOW + 2, view)
    changes(snapshot, snapshot)


def test_scores_of_a_hostile_node_are_bounded():
    many = wire.Scores(step=range(10_000), loss=[1] * 10_000, accuracy=[1] * 10_000)
    assert len(_scores(many.SerializeToString())) == MAX_SCORES
