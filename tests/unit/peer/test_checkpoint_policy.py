import errno
import io
import json
import os
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tacit.core.errors import Misuse
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.checkpoint_policy import MAX_UNSAVED_BYTES, CheckpointPolicy
from tacit.peer.node.checkpoint_store import NodeCheckpoint
from tacit.peer.node.node_state import NodeProgress, Stopped
from tacit.peer.node.outbox import Outbox


class FakeState:
    """The part of a NodeState that a policy uses."""

    def __init__(self):
        self.lines = io.StringIO()
        self.event_log, self.metrics = EventLog(self.lines, "a"), Metrics()
        self.stop, self.progress = threading.Event(), NodeProgress()
        self.active = SimpleNamespace(outbox=Outbox([]))
        self.reports = []

    def report(self, **changes):
        self.reports.append(changes)
        self.progress = replace(self.progress, **changes)

    def events(self):
        return [json.loads(line)["event"] for line in self.lines.getvalue().splitlines()]


def policy(folder, state=None, seconds=10):
    return CheckpointPolicy(folder, state or FakeState(), seconds)


def manifest(generation=1):
    return SimpleNamespace(federation="f", generation=generation)


def checkpoint(step, generation=1, rejoin=False):
    state = {"theta": torch.full((1, 2), float(step))}
    return NodeCheckpoint("f", generation, step, rejoin, state, [], 0.0)


def test_neighbours_may_drop_messages_up_to_the_older_checkpoint(tmp_path):
    checkpoints = policy(tmp_path)
    assert checkpoints.acknowledged == -1
    for step, acknowledged in ((0, -1), (5, 0), (9, 5)):
        checkpoints.save(checkpoint(step))
        assert checkpoints.acknowledged == acknowledged
    assert checkpoints.has_saved(9)
    assert not checkpoints.has_saved(4)


def test_a_new_generation_starts_with_nothing_to_drop(tmp_path):
    checkpoints = policy(tmp_path)
    checkpoints.save(checkpoint(5))
    checkpoints.save(checkpoint(9))
    checkpoints.save(checkpoint(9, generation=2, rejoin=True))
    assert checkpoints.acknowledged == -1
    checkpoints.save(checkpoint(9, generation=2))
    checkpoints.save(checkpoint(10, generation=2))
    assert checkpoints.acknowledged == 9


def test_a_checkpoint_is_due_after_some_time_or_many_bytes(tmp_path):
    assert policy(tmp_path, seconds=0).is_due(0)
    slow = policy(tmp_path, seconds=1e6)
    assert not slow.is_due(MAX_UNSAVED_BYTES - 1)
    assert slow.is_due(MAX_UNSAVED_BYTES)


def fill_disk(monkeypatch, times, number=errno.ENOSPC):
    """Make the next `times` syncs fail as on a full disk, or with another error."""
    left, sync = [times], os.fsync

    def fsync(handle):
        if left[0] > 0:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)


def test_on_a_full_disk_the_node_reports_that_and_retries(tmp_path, monkeypatch):
    state = FakeState()
    state.report(phase="training")
    fill_disk(monkeypatch, 2)
    policy(tmp_path, state).save(checkpoint(3))
    assert state.events() == ["save failed", "save failed", "saved after retry"]
    problem = "the state cannot be saved: No space left on device"
    assert {"phase": "saving", "problem": problem} in state.reports
    progress = state.progress
    assert (progress.phase, progress.problem, progress.saved) == ("training", "", 3)
    assert state.metrics.value("tacit_checkpoint_failures_total") == 2
    assert policy(tmp_path).load(manifest(), "").step == 3


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "Free disk space"), (errno.EMFILE, "raise ulimit -n")]
)
def test_the_remedy_fits_the_error(tmp_path, monkeypatch, number, remedy):
    state = FakeState()
    fill_disk(monkeypatch, 1, number)
    policy(tmp_path, state).save(checkpoint(3))
    assert remedy in json.loads(state.lines.getvalue().splitlines()[0])["remedy"]


def test_a_node_that_must_stop_does_not_wait_for_space(tmp_path, monkeypatch):
    fill_disk(monkeypatch, 10**6)
    state = FakeState()
    state.stop.set()
    with pytest.raises(Stopped):
        policy(tmp_path, state).save(checkpoint(3))
    policy(tmp_path, state).save(checkpoint(3), retry=False)


def test_a_damaged_checkpoint_is_renamed_and_the_previous_one_used(tmp_path):
    first = policy(tmp_path)
    for step in (3, 7):
        first.save(checkpoint(step))
    newest = tmp_path / "generation-000001-step-000000007.safetensors"
    newest.write_bytes(newest.read_bytes()[:-3])
    state = FakeState()
    checkpoints = policy(tmp_path, state)
    assert checkpoints.load(manifest(), "").step == 3
    assert state.events() == ["checkpoint skipped"]
    assert not newest.exists()
    assert newest.with_suffix(".damaged").exists()
    checkpoints.save(checkpoint(5))
    assert checkpoints.acknowledged == 3


def test_if_all_checkpoints_are_damaged_the_node_does_not_start_over(tmp_path):
    policy(tmp_path).save(checkpoint(3))
    (tmp_path / "generation-000001-step-000000003.safetensors").write_bytes(b"")
    with pytest.raises(Misuse, match=r"No checkpoint in .* can be used"):
        policy(tmp_path).load(manifest(), "")


def test_a_checkpoint_of_a_later_generation_than_the_manifest_is_an_error(tmp_path):
    policy(tmp_path).save(checkpoint(3, generation=2))
    with pytest.raises(Misuse, match="generation 2, but the manifest is of generation 1"):
        policy(tmp_path).load(manifest(), "")


def test_other_data_within_a_generation_are_an_error(tmp_path):
    policy(tmp_path).save(checkpoint(3))
    with pytest.raises(Misuse, match="The data are not those"):
        policy(tmp_path).load(manifest(), "another digest")


def test_a_damaged_rejoin_cannot_be_replaced_by_the_previous_generation(tmp_path):
    checkpoints = policy(tmp_path)
    checkpoints.save(checkpoint(3))
    checkpoints.save(checkpoint(3, generation=2, rejoin=True))
    path = tmp_path / "generation-000002-rejoin.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Misuse, match=r"checkpoints of generation 2 .* are damaged"):
        policy(tmp_path).load(manifest(2), "")


def test_a_rejoin_is_older_than_earlier_iterations_of_its_generation(tmp_path):
    checkpoints = policy(tmp_path)
    checkpoints.save(checkpoint(60, generation=2, rejoin=True))
    for step in (5, 6):
        checkpoints.save(checkpoint(step, generation=2))
        assert policy(tmp_path).load(manifest(2), "").step == step


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert policy(tmp_path / "none").load(manifest(), "") is None
