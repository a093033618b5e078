import os
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.dsgt import DSGT
from tacit.algorithms.tracking import TrackingState
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.record.checkpoint import Checkpoint, load_latest, save

ALGORITHM = DSGT(lr=0.1)


@dataclass(frozen=True)
class OtherState:
    theta: Tensor
    momentum: Tensor


@dataclass(frozen=True)
class Other(Algorithm):
    name: ClassVar[str] = "other"

    def start(self, here: Here) -> OtherState:
        raise NotImplementedError

    def step(self, s: OtherState, here: Here) -> OtherState:
        raise NotImplementedError


def state(seed=0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    return TrackingState(*(torch.randn(3, 4, dtype=dtype, generator=draw) for _ in range(3)))


def checkpoint(step=7, given=None, **changes):
    facts = {"bytes_sent": 123, "wall_seconds": 4.5, "fingerprint": "abc", "gradients": "looped"}
    return Checkpoint(given or state(step), step, **(facts | changes))


def same_bits(a, b):
    return all(
        x.dtype == y.dtype and torch.equal(x.view(torch.uint8), y.view(torch.uint8))
        for x, y in zip((a.theta, a.gamma, a.grad), (b.theta, b.gamma, b.grad), strict=True)
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_round_trip_keeps_every_bit(tmp_path, dtype):
    given = state(3, dtype)
    given.theta[0, 0], given.theta[0, 1], given.theta[0, 2] = torch.nan, -torch.inf, -0.0
    save(tmp_path / "new" / "folder", checkpoint(given=given))
    back = load_latest(tmp_path / "new" / "folder", ALGORITHM, "abc")
    assert isinstance(back.state, TrackingState)
    assert same_bits(back.state, given)
    facts = (back.step, back.bytes_sent, back.wall_seconds, back.fingerprint, back.gradients)
    assert facts == (7, 123, 4.5, "abc", "looped")


def test_large_counts_survive(tmp_path):
    save(tmp_path, checkpoint(bytes_sent=2**62 + 1))
    assert load_latest(tmp_path, ALGORITHM, "abc").bytes_sent == 2**62 + 1


def test_no_checkpoint_is_none(tmp_path):
    assert load_latest(tmp_path, ALGORITHM, "abc") is None
    assert load_latest(tmp_path / "missing", ALGORITHM, "abc") is None


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_are_kept(tmp_path, keep):
    for step in (5, 50, 500, 5000):
        path = save(tmp_path, checkpoint(step), keep=keep)
        assert path.exists()
    expected = [f"step-{step:09d}.safetensors" for step in (5, 50, 500, 5000)[-keep:]]
    assert names(tmp_path) == expected
    assert load_latest(tmp_path, ALGORITHM, "abc").step == 5000


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-1.safetensors").write_text("not one of ours")
    for step in (1, 2, 3):
        save(tmp_path, checkpoint(step), keep=1)
    assert names(tmp_path) == ["notes.txt", "step-000000003.safetensors", "step-1.safetensors"]


def test_parts_of_killed_runs_go_and_those_of_other_programs_stay(tmp_path):
    for name in ("movie.mkv.part", "step-1.part", "notes.0123abcd.part"):
        (tmp_path / name).write_text("another program writes it")
    (tmp_path / "step-000000003.safetensors.0123abcd.part").write_text("a killed run's")
    save(tmp_path, checkpoint(4))
    assert names(tmp_path) == [
        "movie.mkv.part", "notes.0123abcd.part", "step-000000004.safetensors", "step-1.part"
    ]  # fmt: skip


def test_no_unfinished_file_is_left(tmp_path):
    save(tmp_path, checkpoint())
    assert names(tmp_path) == ["step-000000007.safetensors"]


def test_saving_again_replaces(tmp_path):
    save(tmp_path, checkpoint(given=state(1)))
    save(tmp_path, checkpoint(given=state(2)))
    assert same_bits(load_latest(tmp_path, ALGORITHM, "abc").state, state(2))


def test_a_crash_while_writing_leaves_the_older_one(tmp_path, monkeypatch):
    save(tmp_path, checkpoint(1))

    def crash(*names):
        raise OSError("the power went off")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="power"):
        save(tmp_path, checkpoint(2))
    monkeypatch.undo()
    assert load_latest(tmp_path, ALGORITHM, "abc").step == 1
    save(tmp_path, checkpoint(2))
    assert load_latest(tmp_path, ALGORITHM, "abc").step == 2


def test_fields_may_share_memory_or_be_views(tmp_path):
    base = torch.randn(4, 3)
    given = TrackingState(base.T, gamma=base.T, grad=torch.ones(1, 4).expand(3, 4))
    save(tmp_path, checkpoint(given=given))
    back = load_latest(tmp_path, ALGORITHM, "abc").state
    assert torch.equal(back.theta, base.T)
    assert torch.equal(back.gamma, base.T)
    assert torch.equal(back.grad, torch.ones(3, 4))
    back.theta.zero_()
    assert torch.equal(back.gamma, base.T)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


def empty(path):
    path.write_bytes(b"")


def noise(path):
    path.write_bytes(bytes(range(256)) * 4)


def foreign(path):
    from safetensors.torch import save_file

    save_file({"theta": torch.zeros(2)}, path)


def newer_format(path):
    path.write_bytes(path.read_bytes().replace(b"tacit-checkpoint-1", b"tacit-checkpoint-9"))


DAMAGES = [truncate, empty, noise, foreign, newer_format]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_skipped(tmp_path, damage):
    save(tmp_path, checkpoint(1))
    damage(save(tmp_path, checkpoint(2)))
    back = load_latest(tmp_path, ALGORITHM, "abc")
    assert back.step == 1
    assert same_bits(back.state, state(1))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_all_files_is_an_error(tmp_path, damage):
    for step in (1, 2):
        damage(save(tmp_path, checkpoint(step)))
    with pytest.raises(
        Misuse, match=r"(?s)No checkpoint in .*step-000000002.*step-000000001.*Start the run again"
    ):
        load_latest(tmp_path, ALGORITHM, "abc")


def test_checkpoint_of_another_configuration(tmp_path):
    save(tmp_path, checkpoint(fingerprint="other"))
    with pytest.raises(Misuse, match="another configuration"):
        load_latest(tmp_path, ALGORITHM, "abc")


def test_checkpoint_of_another_algorithm(tmp_path):
    save(tmp_path, checkpoint())
    with pytest.raises(Misuse, match="No checkpoint"):
        load_latest(tmp_path, Other(), "abc")
