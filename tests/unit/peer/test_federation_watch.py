"""A dashboard goes on when a query fails, and says so."""

import threading

import pytest

from support.clinics import clinics
from tacit.core.errors import Misuse
from tacit.peer.dashboard.federation_watch import FederationWatch, watching


@pytest.fixture
def watch(tmp_path):
    # Nothing listens there: connections are refused at once.
    return FederationWatch(clinics(tmp_path / "f", host="127.9.9.9").path)


def test_there_is_no_board_before_the_first_query(watch):
    with pytest.raises(Misuse, match="poll"):
        watch.board()
    watch.close()


def test_a_failing_query_is_an_event_and_not_the_end(watch, monkeypatch):
    calls, enough = [], threading.Event()
    query = watch.poll

    def poll():
        calls.append(None)
        if len(calls) in (2, 3):
            raise RuntimeError("broken")
        query()
        if len(calls) >= 4:
            enough.set()

    monkeypatch.setattr(watch, "poll", poll)
    with watching(watch, 0.01):
        assert enough.wait(60)
        board = watch.board()
    assert [node["state"] for node in board["nodes"]] == ["silent"] * 3
    texts = [(event["level"], event["text"]) for event in board["events"]]
    broken = ("error", "the nodes cannot be queried: RuntimeError('broken')")
    assert texts.count(broken) == 1
    assert board["age"] >= 0
