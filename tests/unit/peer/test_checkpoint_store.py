import errno
import os

import pytest
import torch

from tacit.peer.node.checkpoint_store import CheckpointStore, NodeCheckpoint
from tacit.peer.wire.messages import Envelope, ExchangeId, pack


def checkpoint(step, generation=1, rejoin=False, federation="f"):
    envelope = Envelope(federation, "a", "b", ExchangeId(generation, step, 0))
    messages = [pack(envelope, {"x": torch.arange(3.0) + step})]
    state = {
        "theta": torch.full((1, 4), float(step)),
        "gamma": torch.ones(1, 4, dtype=torch.float64),
    }
    return NodeCheckpoint(federation, generation, step, rejoin, state, messages, 1.5)


def frames(messages):
    return [message.frame for message in messages]


def test_what_is_saved_is_loaded(tmp_path):
    CheckpointStore(tmp_path).save(checkpoint(3))
    found, problems = CheckpointStore(tmp_path).load("f")
    assert problems == []
    assert (found.generation, found.step, found.rejoin, found.wall_seconds) == (1, 3, False, 1.5)
    assert torch.equal(found.state["theta"], torch.full((1, 4), 3.0))
    assert found.state["gamma"].dtype == torch.float64
    (message,), (expected,) = found.messages, checkpoint(3).messages
    assert message.envelope == expected.envelope
    assert (message.frame, message.sha256) == (expected.frame, expected.sha256)


def test_the_two_newest_are_kept(tmp_path):
    store = CheckpointStore(tmp_path)
    for step in (1, 2, 3):
        store.save(checkpoint(step))
    newest = [f"generation-000001-step-00000000{step}.safetensors" for step in (3, 2)]
    assert [path.name for path in store.newest_first()] == newest
    store.save(checkpoint(1, generation=2, rejoin=True))
    newest = ["generation-000002-rejoin.safetensors", newest[0]]
    assert [path.name for path in store.newest_first()] == newest
    assert len(list(tmp_path.glob("messages-*.bin"))) == 2


def test_a_message_is_written_once_and_kept_as_long_as_a_checkpoint_needs_it(tmp_path):
    def save(store, step, messages):
        state = checkpoint(step).state
        store.save(NodeCheckpoint("f", 1, step, False, state, messages, 0.0))

    store = CheckpointStore(tmp_path)
    messages = []
    for step in range(1, 6):
        messages += checkpoint(step).messages
        save(store, step, messages[-3:])
        on_disk = sum(path.stat().st_size for path in tmp_path.glob("messages-*.bin"))
        # The older checkpoint needs one more.
        assert on_disk == sum(map(len, frames(messages[-4:])))
    again = CheckpointStore(tmp_path)
    found, _ = again.load("f")
    assert frames(found.messages) == frames(messages[-3:])
    save(again, 5, found.messages)
    assert frames(CheckpointStore(tmp_path).load("f")[0].messages) == frames(messages[-3:])


def test_damaged_messages_make_a_damaged_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path)
    for step in (1, 2):
        store.save(checkpoint(step))
    newest = sorted(tmp_path.glob("messages-*.bin"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    found, problems = CheckpointStore(tmp_path).load("f")
    assert found.step == 1
    assert "checksum" in problems[0]


def test_tensors_that_share_memory_are_saved(tmp_path):
    rows = torch.arange(6.0).reshape(2, 3)
    state = {"theta": rows[:1], "gamma": rows[:1], "transposed": rows.T[:1]}
    CheckpointStore(tmp_path).save(NodeCheckpoint("f", 1, 0, False, state, [], 0.0))
    found, _ = CheckpointStore(tmp_path).load("f")
    assert torch.equal(found.state["transposed"], rows.T[:1])


@pytest.mark.parametrize("damage", ["truncate", "flip", "header", "empty", "garbage"])
def test_a_damaged_file_is_skipped(tmp_path, damage):
    for step in (1, 2):
        CheckpointStore(tmp_path).save(checkpoint(step))
    newest = CheckpointStore(tmp_path).newest_first()[0]
    content = newest.read_bytes()
    digit = content.index(b"wall_seconds") + 17

    def flipped(index):
        return content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :]

    damaged = {
        "truncate": content[:-5],
        "flip": flipped(len(content) - 1),
        "header": flipped(digit),
        "empty": b"",
        "garbage": b"\xff" * 100,
    }
    newest.write_bytes(damaged[damage])
    found, problems = CheckpointStore(tmp_path).load("f")
    assert found.step == 1
    assert len(problems) == 1
    assert newest.name in problems[0]


def test_the_checkpoint_of_another_federation_is_skipped(tmp_path):
    CheckpointStore(tmp_path).save(checkpoint(1, federation="g"))
    found, problems = CheckpointStore(tmp_path).load("f")
    assert found is None
    assert "federation g" in problems[0]


def test_on_a_full_disk_nothing_is_lost_and_no_partial_file_stays(tmp_path, monkeypatch):
    CheckpointStore(tmp_path).save(checkpoint(1))

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        CheckpointStore(tmp_path).save(checkpoint(2))
    monkeypatch.undo()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "generation-000001-step-000000001.safetensors",
        "messages-000001-000000001.bin",
    ]
    assert CheckpointStore(tmp_path).load("f")[0].step == 1


def test_parts_of_killed_nodes_go_and_those_of_other_programs_stay(tmp_path):
    ours = (
        "messages-000001-000000003.bin.0123abcd.part",
        "generation-000001-step-000000003.safetensors.0123abcd.part",
        "generation-000002-rejoin.safetensors.0123abcd.part",
    )
    for name in (*ours, "movie.mkv.part"):
        (tmp_path / name).write_text("part")
    CheckpointStore(tmp_path).save(checkpoint(4))
    assert [path.name for path in tmp_path.glob("*.part")] == ["movie.mkv.part"]
