import errno
import os

import pytest
import torch

from tacit.peer.node.checkpoint_store import CheckpointStore, Saved
from tacit.peer.wire.frames import Address, Envelope, pack


def saved(step, generation=1, meeting=False, federation="f"):
    letters = [
        pack(
            Envelope(federation, "a", "b", Address(generation, step, 0)),
            {"x": torch.arange(3.0) + step},
        )
    ]
    state = {
        "theta": torch.full((1, 4), float(step)),
        "gamma": torch.ones(1, 4, dtype=torch.float64),
    }
    return Saved(federation, generation, step, meeting, state, letters, 1.5)


def test_what_is_saved_is_loaded(tmp_path):
    CheckpointStore(tmp_path).save(saved(3))
    found, problems = CheckpointStore(tmp_path).load("f")
    assert problems == []
    assert (found.generation, found.step, found.meeting, found.wall_seconds) == (1, 3, False, 1.5)
    assert torch.equal(found.state["theta"], torch.full((1, 4), 3.0))
    assert found.state["gamma"].dtype == torch.float64
    (letter,), (expected,) = found.letters, saved(3).letters
    assert (letter.envelope, letter.frame, letter.sha256) == (
        expected.envelope,
        expected.frame,
        expected.sha256,
    )


def test_the_two_newest_are_kept(tmp_path):
    kept = CheckpointStore(tmp_path)
    for step in (1, 2, 3):
        kept.save(saved(step))
    assert [path.name[11:32] for path in kept.newest_first()] == [
        "000001-step-000000003",
        "000001-step-000000002",
    ]
    kept.save(saved(1, generation=2, meeting=True))
    assert [path.name[11:25] for path in kept.newest_first()] == [
        "000002-meeting",
        "000001-step-00",
    ]
    assert len(list(tmp_path.glob("letters-*.bin"))) == 2


def test_a_letter_is_written_once_and_kept_as_long_as_a_checkpoint_has_it(tmp_path):
    kept = CheckpointStore(tmp_path)
    letters = []
    for step in range(1, 6):
        letters.append(saved(step).letters[0])
        kept.save(Saved("f", 1, step, False, saved(step).state, letters[-3:], 0.0))
        on_disk = sum(path.stat().st_size for path in tmp_path.glob("letters-*.bin"))
        assert on_disk == sum(
            len(letter.frame) for letter in letters[-4:]
        )  # the older checkpoint has one more
    again = CheckpointStore(tmp_path)
    found, _ = again.load("f")
    assert [letter.frame for letter in found.letters] == [letter.frame for letter in letters[-3:]]
    again.save(Saved("f", 1, 5, False, found.state, found.letters, 0.0))  # the same step once more
    assert [letter.frame for letter in CheckpointStore(tmp_path).load("f")[0].letters] == [
        x.frame for x in letters[-3:]
    ]


def test_damaged_letters_are_a_damaged_checkpoint(tmp_path):
    kept = CheckpointStore(tmp_path)
    for step in (1, 2):
        kept.save(saved(step))
    newest = sorted(tmp_path.glob("letters-*.bin"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    found, problems = CheckpointStore(tmp_path).load("f")
    assert found.step == 1
    assert "checksum" in problems[0]


def test_tensors_that_share_memory_are_saved(tmp_path):
    rows = torch.arange(6.0).reshape(2, 3)
    one = Saved(
        "f", 1, 0, False, {"theta": rows[:1], "gamma": rows[:1], "turned": rows.T[:1]}, [], 0.0
    )
    CheckpointStore(tmp_path).save(one)
    found, _ = CheckpointStore(tmp_path).load("f")
    assert torch.equal(found.state["turned"], rows.T[:1])


@pytest.mark.parametrize("harm", ["truncate", "flip", "header", "empty", "garbage"])
def test_a_damaged_file_is_passed_over(tmp_path, harm):
    for step in (1, 2):
        CheckpointStore(tmp_path).save(saved(step))
    newest = CheckpointStore(tmp_path).newest_first()[0]
    content = bytearray(newest.read_bytes())
    if harm == "flip":
        content[-1] ^= 1
    at = content.index(b"wall_seconds") + 17
    if harm == "header":
        content[at] ^= 1  # another number of seconds
    newest.write_bytes(
        {
            "truncate": content[:-5],
            "flip": content,
            "header": content,
            "empty": b"",
            "garbage": b"\xff" * 100,
        }[harm]
    )
    found, problems = CheckpointStore(tmp_path).load("f")
    assert found.step == 1
    assert len(problems) == 1
    assert newest.name in problems[0]


def test_the_state_of_another_federation_is_not_taken(tmp_path):
    CheckpointStore(tmp_path).save(saved(1, federation="g"))
    found, problems = CheckpointStore(tmp_path).load("f")
    assert found is None
    assert "federation g" in problems[0]


def test_without_room_nothing_is_lost_and_nothing_is_left(tmp_path, monkeypatch):
    CheckpointStore(tmp_path).save(saved(1))

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        CheckpointStore(tmp_path).save(saved(2))
    monkeypatch.undo()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["generation-000001-step-000000001.safetensors", "letters-000001-000000001.bin"]
    assert CheckpointStore(tmp_path).load("f")[0].step == 1
