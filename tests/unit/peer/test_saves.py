import errno

import pytest
import torch

from tacit.peer import saves
from tacit.peer.frames import Address, Envelope, pack


def saved(step, epoch=1, meeting=False, federation="f"):
    letters = [pack(Envelope(federation, "a", "b", Address(epoch, step, 0)), {"x": torch.arange(3.0) + step})]
    state = {"theta": torch.full((1, 4), float(step)), "gamma": torch.ones(1, 4, dtype=torch.float64)}
    return saves.Saved(federation, epoch, step, meeting, state, letters, 1.5)


def test_what_is_saved_is_loaded(tmp_path):
    saves.save(tmp_path, saved(3))
    found, problems = saves.load(tmp_path, "f")
    assert problems == []
    assert (found.epoch, found.step, found.meeting, found.wall_seconds) == (1, 3, False, 1.5)
    assert torch.equal(found.state["theta"], torch.full((1, 4), 3.0))
    assert found.state["gamma"].dtype == torch.float64
    (letter,), (expected,) = found.letters, saved(3).letters
    assert (letter.envelope, letter.frame, letter.sha256) == (
        expected.envelope,
        expected.frame,
        expected.sha256,
    )


def test_the_two_newest_are_kept(tmp_path):
    for step in (1, 2, 3):
        kept = saves.save(tmp_path, saved(step))
    assert kept == [(1, 3), (1, 2)]
    assert saves.save(tmp_path, saved(1, epoch=2, meeting=True)) == [(2, 1), (1, 3)]


def test_tensors_that_share_memory_are_saved(tmp_path):
    rows = torch.arange(6.0).reshape(2, 3)
    one = saves.Saved("f", 1, 0, False, {"theta": rows[:1], "gamma": rows[:1], "turned": rows.T[:1]}, [], 0.0)
    saves.save(tmp_path, one)
    found, _ = saves.load(tmp_path, "f")
    assert torch.equal(found.state["turned"], rows.T[:1])


@pytest.mark.parametrize("harm", ["truncate", "flip", "empty", "garbage"])
def test_a_damaged_file_is_passed_over(tmp_path, harm):
    for step in (1, 2):
        saves.save(tmp_path, saved(step))
    newest = saves.newest_first(tmp_path)[0]
    content = bytearray(newest.read_bytes())
    if harm == "flip":
        content[-1] ^= 1
    newest.write_bytes(
        {"truncate": content[:-5], "flip": content, "empty": b"", "garbage": b"\xff" * 100}[harm]
    )
    found, problems = saves.load(tmp_path, "f")
    assert found.step == 1
    assert len(problems) == 1
    assert newest.name in problems[0]


def test_the_state_of_another_federation_is_not_taken(tmp_path):
    saves.save(tmp_path, saved(1, federation="g"))
    found, problems = saves.load(tmp_path, "f")
    assert found is None
    assert "federation g" in problems[0]


def test_without_room_nothing_is_lost_and_nothing_is_left(tmp_path, monkeypatch):
    saves.save(tmp_path, saved(1))

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saves.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        saves.save(tmp_path, saved(2))
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-000001-step-000000001.safetensors"]
    assert saves.load(tmp_path, "f")[0].step == 1
