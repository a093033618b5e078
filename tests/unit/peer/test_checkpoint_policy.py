import errno
import io
import json
import os
import threading

import pytest
import torch

from tacit.core.errors import Misuse
from tacit.peer.node.checkpoint_policy import ENOUGH, CheckpointPolicy
from tacit.peer.node.checkpoint_store import Saved
from tacit.peer.wire.neighbour_client import Stopped


class Desk:
    """As much of a desk as a keeper needs."""

    def __init__(self):
        from tacit.peer.monitoring.event_log import EventLog
        from tacit.peer.monitoring.metrics import Metrics
        from tacit.peer.node.outbox import Outbox
        from tacit.peer.node.state import NodeProgress

        self.lines = io.StringIO()
        self.event_log, self.metrics = EventLog(self.lines, "a"), Metrics()
        self.stop, self.progress = threading.Event(), NodeProgress()
        self.standing = type("Standing", (), {"outbox": Outbox.to(1, [])})()
        self.reports = []

    def report(self, **changes):
        from dataclasses import replace

        self.reports.append(changes)
        self.progress = replace(self.progress, **changes)

    def events(self):
        return [json.loads(line)["event"] for line in self.lines.getvalue().splitlines()]


class Manifest:
    federation, generation = "f", 1


def saved(step, generation=1, meeting=False):
    return Saved(
        "f", generation, step, meeting, {"theta": torch.full((1, 2), float(step))}, [], 0.0
    )


def test_neighbours_may_forget_what_comes_before_the_older_checkpoint(tmp_path):
    keeper = CheckpointPolicy(tmp_path, Desk(), 10)
    assert keeper.acknowledged == -1
    for step, acknowledged in ((0, -1), (5, 0), (9, 5)):
        keeper.write(saved(step))
        assert keeper.acknowledged == acknowledged
    assert keeper.has(9)
    assert not keeper.has(4)


def test_a_new_generation_begins_with_nothing_that_may_be_forgotten(tmp_path):
    keeper = CheckpointPolicy(tmp_path, Desk(), 10)
    keeper.write(saved(5))
    keeper.write(saved(9))
    keeper.write(saved(9, generation=2, meeting=True))
    assert keeper.acknowledged == -1
    keeper.write(saved(9, generation=2))
    keeper.write(saved(10, generation=2))
    assert keeper.acknowledged == 9


def test_it_is_time_to_save_after_a_while_or_when_much_is_kept_for_us(tmp_path):
    assert CheckpointPolicy(tmp_path, Desk(), 0).due(0)
    patient = CheckpointPolicy(tmp_path, Desk(), 1e6)
    assert not patient.due(ENOUGH - 1)
    assert patient.due(ENOUGH)


def full_for(monkeypatch, times):
    """A disk that is full so many times, and then not."""
    left, flush = [times], os.fsync

    def fsync(handle):
        if left[0] > 0:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(handle)

    monkeypatch.setattr(os, "fsync", fsync)


def test_without_room_it_waits_says_so_and_goes_on(tmp_path, monkeypatch):
    desk = Desk()
    desk.report(phase="training")
    full_for(monkeypatch, 2)
    keeper = CheckpointPolicy(tmp_path, desk, 10)
    keeper.write(saved(3))
    assert desk.events() == ["not saved", "not saved", "saved again"]
    assert {
        "phase": "saving",
        "problem": "the state cannot be saved: No space left on device",
    } in desk.reports
    assert (desk.progress.phase, desk.progress.problem, desk.progress.saved) == ("training", "", 3)
    assert desk.metrics.value("tacit_checkpoint_failures_total") == 2
    assert CheckpointPolicy(tmp_path, Desk(), 10).load(Manifest(), "").step == 3


def test_a_node_that_is_to_stop_does_not_wait_for_room(tmp_path, monkeypatch):
    full_for(monkeypatch, 10**6)
    desk = Desk()
    desk.stop.set()
    with pytest.raises(Stopped):
        CheckpointPolicy(tmp_path, desk, 10).write(saved(3))
    CheckpointPolicy(tmp_path, desk, 10).write(saved(3), insist=False)  # once, and no more


def test_a_damaged_checkpoint_is_put_aside_and_the_one_before_taken(tmp_path):
    first = CheckpointPolicy(tmp_path, Desk(), 10)
    for step in (3, 7):
        first.write(saved(step))
    newest = tmp_path / "generation-000001-step-000000007.safetensors"
    newest.write_bytes(newest.read_bytes()[:-3])
    desk = Desk()
    keeper = CheckpointPolicy(tmp_path, desk, 10)
    assert keeper.load(Manifest(), "").step == 3
    assert desk.events() == ["checkpoint passed over"]
    assert not newest.exists()
    assert newest.with_suffix(".damaged").exists()
    keeper.write(saved(5))
    assert keeper.acknowledged == 3


def test_when_all_are_damaged_the_node_refuses_to_begin_anew(tmp_path):
    keeper = CheckpointPolicy(tmp_path, Desk(), 10)
    keeper.write(saved(3))
    (tmp_path / "generation-000001-step-000000003.safetensors").write_bytes(b"")
    with pytest.raises(Misuse, match=r"No checkpoint in .* can be used"):
        CheckpointPolicy(tmp_path, Desk(), 10).load(Manifest(), "")


def test_a_state_of_a_later_generation_than_the_manifest_is_refused(tmp_path):
    CheckpointPolicy(tmp_path, Desk(), 10).write(saved(3, generation=2))
    with pytest.raises(Misuse, match="generation 2, but the manifest is of generation 1"):
        CheckpointPolicy(tmp_path, Desk(), 10).load(Manifest(), "")


def test_other_data_within_a_generation_are_refused(tmp_path):
    CheckpointPolicy(tmp_path, Desk(), 10).write(saved(3))
    with pytest.raises(Misuse, match="The data are not those"):
        CheckpointPolicy(tmp_path, Desk(), 10).load(Manifest(), "another digest")


def test_a_damaged_beginning_of_a_generation_is_not_made_good_by_the_generation_before(tmp_path):
    keeper = CheckpointPolicy(tmp_path, Desk(), 10)
    keeper.write(saved(3))
    keeper.write(saved(3, generation=2, meeting=True))
    path = tmp_path / "generation-000002-meeting.safetensors"
    path.write_bytes(path.read_bytes()[:-1])

    class Later:
        federation, generation = "f", 2

    with pytest.raises(Misuse, match=r"states of generation 2 .* are damaged"):
        CheckpointPolicy(tmp_path, Desk(), 10).load(Later(), "")


def test_a_meeting_is_older_than_the_states_that_follow_although_they_may_be_of_earlier_iterations(
    tmp_path,
):
    keeper = CheckpointPolicy(tmp_path, Desk(), 10)
    keeper.write(saved(60, generation=2, meeting=True))
    for step in (5, 6):

        class Now:
            federation, generation = "f", 2

        keeper.write(saved(step, generation=2))
        assert CheckpointPolicy(tmp_path, Desk(), 10).load(Now(), "").step == step


def test_an_empty_folder_holds_nothing(tmp_path):
    assert CheckpointPolicy(tmp_path / "none", Desk(), 10).load(Manifest(), "") is None
