import errno
import io
import json
import os
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tacit.core.errors import Misuse
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node import checkpoint_policy, checkpoint_store
from tacit.peer.node.checkpoint_policy import (
    LARGE_MODEL_INTERVALS,
    LARGE_MODEL_STEPS,
    MAX_UNSAVED_BYTES,
    CheckpointPolicy,
)
from tacit.peer.node.checkpoint_store import NodeCheckpoint
from tacit.peer.node.node_state import NodeProgress, Stopped
from tacit.peer.node.outbox import Outbox
from tacit.peer.wire.messages import Envelope, ExchangeId, pack


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
    return SimpleNamespace(federation="f", generation=generation, number=generation)


def checkpoint(step, generation=1, rejoin=False):
    state = {"theta": torch.full((1, 2), float(step))}
    return NodeCheckpoint("f", generation, step, rejoin, state, [], 0.0)


def pack_at(step, row):
    return pack(Envelope("f", "a", "", ExchangeId(1, step, 0)), {"theta": row})


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
    for unsaved in (0, MAX_UNSAVED_BYTES):
        assert policy(tmp_path, seconds=0).is_due(1, unsaved)
    slow = policy(tmp_path, seconds=1e6)
    assert not slow.is_due(100, MAX_UNSAVED_BYTES - 1)
    assert slow.is_due(100, MAX_UNSAVED_BYTES)


def test_a_large_model_is_not_saved_at_every_iteration(tmp_path, monkeypatch):
    large = policy(tmp_path)
    large.save(checkpoint(40))
    due = [step for step in range(41, 60) if large.is_due(step, MAX_UNSAVED_BYTES)]
    assert due[0] == 40 + LARGE_MODEL_STEPS
    resumed = policy(tmp_path)
    resumed.load(manifest(), "")
    assert not resumed.is_due(41, MAX_UNSAVED_BYTES)
    late = time.monotonic() + LARGE_MODEL_INTERVALS * 10
    monkeypatch.setattr(time, "monotonic", lambda: late)
    assert large.is_due(41, MAX_UNSAVED_BYTES)


@pytest.mark.parametrize("seconds_per_iteration", [0.1, 4.0, 12.0])
def test_large_models_write_little_more_than_their_messages(
    tmp_path, monkeypatch, seconds_per_iteration
):
    """LPPA with ten million parameters, at the default interval and a thousandth of the size."""
    monkeypatch.setattr(checkpoint_policy, "MAX_UNSAVED_BYTES", MAX_UNSAVED_BYTES // 1000)
    parameters, iterations, written, unsaved = 10_000, 70, 0, 0
    state = FakeState()
    outbox = state.active.outbox = Outbox(["b"])
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    checkpoints = policy(tmp_path, state)
    rows = {name: torch.zeros(1, parameters) for name in ("theta", "gamma", "grad")}
    sent = {name: rows[name][0] for name in ("theta", "gamma")}
    for step in range(1, iterations + 1):
        now[0] += seconds_per_iteration
        envelope = Envelope("f", "a", "", ExchangeId(1, step, 0))
        outbox.put(pack(envelope, sent))
        unsaved += sum(row.nbytes for row in sent.values())
        # A neighbour in step with this node.
        outbox.mark_delivered("b", step)
        outbox.mark_saved("b", checkpoints.acknowledged)
        assert outbox.wait_for_space(1, timeout=0) == []
        if not checkpoints.is_due(step, unsaved):
            continue
        before = set(tmp_path.iterdir())
        checkpoints.save(NodeCheckpoint("f", 1, step, False, rows, outbox.messages(), 0.0))
        unsaved = 0
        new = [path for path in tmp_path.iterdir() if path not in before]
        written += sum(path.stat().st_size for path in new)
    assert 0 < written <= 100_000 * iterations


def fill_disk(monkeypatch, times, number=errno.ENOSPC):
    """Make the next `times` syncs fail as on a full disk, or with another error."""
    left, sync = [times], os.fsync

    def fsync(handle):
        if left[0] > 0:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)


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


def test_large_messages_that_are_saved_leave_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_store, "MIN_MAPPED_BYTES", 100)
    state = FakeState()
    outbox = state.active.outbox = Outbox(["b"])
    checkpoints = policy(tmp_path, state)
    large = {step: pack_at(step, torch.arange(100.0) + step) for step in range(1, 8)}
    frames = {step: bytes(message.frame) for step, message in large.items()}
    for step, message in large.items():
        outbox.put(message)
        if step in (3, 5, 7):
            checkpoints.save(replace(checkpoint(step), messages=outbox.messages()))
    kept = {message.envelope.exchange.tick: message for message in outbox.messages()}
    in_memory = [step for step, message in kept.items() if isinstance(message.frame, bytes)]
    # Neighbours are about to fetch the newest one.
    assert in_memory == [7]
    # Their files may be removed meanwhile.
    for path in tmp_path.iterdir():
        path.unlink()
    assert {step: bytes(message.frame) for step, message in kept.items()} == frames
    dropped = kept[1]
    outbox.mark_delivered("b", 7)
    outbox.mark_saved("b", 3)
    outbox.replace(dropped)
    assert [message.envelope.exchange.tick for message in outbox.messages()] == [4, 5, 6, 7]
