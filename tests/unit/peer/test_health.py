import io
import json
import queue

import pytest

from support.clinics import clinics
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.membership import revoke
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node import health
from tacit.peer.node.health import check_health, log_health
from tacit.peer.node.iteration_clock import IterationClock
from tacit.peer.node.node_state import ActiveRoster, NodeState

EXPIRY = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def state(tmp_path):
    node = clinics(tmp_path / "f").node("a")
    active = ActiveRoster.load(node, "a", node.manifest())
    return NodeState(node, "a", active, EventLog(io.StringIO(), "a"), 4, "torch.float32")


def check(state, now=EXPIRY - 30 * DAY):
    return check_health(state, EXPIRY, lambda: now)


def stall(state):
    """Let an hour pass after an iteration."""
    moments = iter([0.0, 1.0])
    state.clock = IterationClock(lambda: next(moments, 3_600.0))
    state.clock.advance()


def test_a_node_that_trains_is_healthy(state):
    state.report(phase="training")
    assert check(state) == (True, "training")


def test_a_stall_is_unhealthy_and_says_what_a_neighbour_claims(state):
    state.report(phase="waiting", waiting_for=("b (at iteration 4, says it waits for c)",))
    assert check(state) == (True, "waiting")
    stall(state)
    reason = "no iteration for 3599 s: waiting for b (at iteration 4, says it waits for c)"
    assert check(state) == (False, reason)


def test_an_expired_certificate_is_unhealthy(state):
    healthy, why = check(state, EXPIRY + 1)
    assert not healthy
    assert why == "the certificate of a expired on 2027-01-15 08:00 UTC"


def test_an_expiry_is_announced_two_weeks_before(state):
    state.report(phase="training")
    assert check(state, EXPIRY - 14.1 * DAY) == (True, "training")
    notice = "the certificate of a expires in 13 days, on 2027-01-15 08:00 UTC: renew it"
    assert check(state, EXPIRY - 13.2 * DAY) == (True, f"training; {notice}")
    healthy, why = check(state, EXPIRY - 60)
    assert healthy
    assert "expires in less than a day" in why


def test_a_revoked_certificate_is_unhealthy(state):
    home = FederationFolder(state.folder.path.parents[1])
    revoke(home.path, "a", keep=True)
    state.changes.refresh()
    assert check(state) == (False, "the certificate of a is revoked by entry 5 of the log")


def test_a_problem_is_unhealthy(state):
    state.report(problem="a refuses a message of b: theta holds NaN or infinity")
    assert check(state) == (False, "a refuses a message of b: theta holds NaN or infinity")


def test_a_stall_is_logged_once(state, monkeypatch):
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.001)
    monkeypatch.setattr(state.event_log, "write", written := Written())
    stall(state)
    with log_health(state):
        assert written.wait()["why"].startswith("no iteration for 3599 s")
        state.clock.stop()
        assert written.wait()["event"] == "healthy again"
    assert written.lines.qsize() == 0


class Written:
    def __init__(self):
        self.lines = queue.Queue()

    def __call__(self, event, level="info", **fields):
        self.lines.put({"event": event, "level": level, **json.loads(json.dumps(fields))})

    def wait(self):
        return self.lines.get(timeout=30)
