"""`tacit federation up` without a terminal: a line per change."""

from types import SimpleNamespace

from tacit.cli.federation_log import StatusLog, result_line
from tacit.peer.federation.federation_client import NodeReport
from tacit.peer.wire import wire_pb2 as wire

START = 1_800_000_000.0


def status(phase, step):
    return wire.Status(phase=phase, step=step, steps=20, round_length=10)


def lines_of(*updates):
    """The lines for the statuses of nodes a and b at several moments; None: no response."""
    lines = []
    log = StatusLog(SimpleNamespace(generation=1, names=["a", "b"]), lines.append)
    for moment, (statuses, ended) in enumerate(updates):
        members = (SimpleNamespace(name=name, address="here") for name in "ab")
        reports = [NodeReport(*pair, "away") for pair in zip(members, statuses, strict=True)]
        log.update(reports, START + moment, ended)
    return lines


def test_each_change_is_one_line():
    lines = lines_of(
        ([None, None], ()),
        ([status("starting", 0), None], ()),
        ([status("training", 3), status("training", 4)], ()),
        ([status("training", 4), status("training", 4)], ()),
        ([status("training", 12), status("training", 11)], ()),
        ([status("finished", 20), status("finished", 20)], ()),
        ([None, None], ("a", "b")),
    )
    assert lines == [
        "2027-01-15T08:00:01Z a: responds: starting",
        "2027-01-15T08:00:02Z a: training",
        "2027-01-15T08:00:02Z b: responds: training",
        "round 1 of 2",
        "2027-01-15T08:00:05Z a: finished",
        "2027-01-15T08:00:05Z b: finished",
        "round 2 of 2",
        "2027-01-15T08:00:06Z a: has finished and exited",
        "2027-01-15T08:00:06Z b: has finished and exited",
    ]


def test_a_node_that_is_about_to_exit_is_no_error():
    before = [status("training", 3), status("training", 3)]
    assert lines_of((before, ()), ([None, status("training", 3)], ())) == []


def test_a_node_that_cannot_continue_is_an_error():
    stuck = wire.Status(phase="saving", step=3, steps=20, round_length=10, problem="disk full")
    before = [status("training", 3), status("training", 3)]
    lines = lines_of((before, ()), ([stuck, status("training", 3)], ()))
    assert lines[-1] == "2027-01-15T08:00:01Z error: a: cannot continue: disk full"


def test_the_result_has_the_baseline_beside_the_accuracy():
    scores = {"steps": 200, "loss": 0.11434, "accuracy": 97.37, "baseline": 63.16}
    text = "a: 200 iterations, loss 0.1143, accuracy 97.37 %, majority baseline 63.16 %"
    assert result_line("a", scores) == text
    assert result_line("b", {"steps": 9, "loss": None}) == "b: 9 iterations"
    metrics = {"auc": 0.75, "f1": None}
    assert result_line("c", {"steps": 9, "metrics": metrics}) == "c: 9 iterations, auc 0.75"
