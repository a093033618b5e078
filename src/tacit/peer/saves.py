"""A node's checkpoints: state and outbox together, so that a node that comes back answers for what it said.

Each is one safetensors file with a checksum, written aside, flushed and renamed. The two newest are kept: if one is
damaged, the one before is taken, and neighbours still have what happened since.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.peer.frames import Address, Envelope, Letter, raw_bytes

FORMAT = "tacit-node-1"
NAME = re.compile(r"epoch-(\d{6})-step-(\d{9})\.safetensors")
KEPT = 2
STATE, LETTER = "state.", "letter."


@dataclass(frozen=True, eq=False)
class Saved:
    """What a node needs to go on as if it had never stopped."""

    federation: str
    epoch: int
    step: int
    meeting: bool  # the roster has just changed: `state` holds the model alone, if there is one
    state: Mapping[str, Tensor]
    letters: list[Letter]
    wall_seconds: float

    @property
    def place(self) -> tuple[int, int]:
        """Its order among others."""
        return self.epoch, self.step


def save(folder: Path, saved: Saved) -> list[tuple[int, int]]:
    """Write a checkpoint and forget all but the newest two; where those are, the newest first."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {STATE + name: rows.detach().cpu().clone() for name, rows in saved.state.items()}
    for number, letter in enumerate(saved.letters):
        tensors[f"{LETTER}{number}"] = torch.frombuffer(bytearray(letter.frame), dtype=torch.uint8)
    facts = {
        "format": FORMAT,
        "federation": saved.federation,
        "epoch": saved.epoch,
        "step": saved.step,
        "meeting": saved.meeting,
        "wall_seconds": saved.wall_seconds,
        "letters": [_envelope(letter.envelope) for letter in saved.letters],
        "sha256": _digest(tensors),
    }
    path = folder / f"epoch-{saved.epoch:06d}-step-{saved.step:09d}.safetensors"
    part = folder / "next.part"
    try:
        try:
            save_file(tensors, part, metadata={"tacit": json.dumps(facts)})
        except SafetensorError as problem:  # how it says that the disk is full
            raise OSError(str(problem)) from None
        _flush(part)
    except BaseException:
        part.unlink(missing_ok=True)  # on a full disk it would keep the room that the next attempt needs
        raise
    os.replace(part, path)
    _flush(folder)
    files = newest_first(folder)
    for old in files[KEPT:]:
        old.unlink()
    return [place_of(file) for file in files[:KEPT]]


def load(folder: Path, federation: str) -> tuple[Saved | None, list[str]]:
    """The newest checkpoint that is whole, if there is any, and what was wrong with those passed over."""
    problems = []
    for path in newest_first(folder):
        try:
            saved = _load(path)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            problems.append(f"{path.name}: {problem}")
            continue
        if saved.federation != federation:
            problems.append(f"{path.name}: it belongs to federation {saved.federation}")
            continue
        return saved, problems
    return None, problems


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints of a folder."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if NAME.fullmatch(path.name)), reverse=True)


def _load(path: Path) -> Saved:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["tacit"])
            # Cloned: what the file hands out is mapped from it, and would change with it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as problem:
        raise ValueError(str(problem)) from None
    if facts["format"] != FORMAT:
        raise ValueError(f"unknown format {facts['format']!r}")
    if _digest(tensors) != facts["sha256"]:
        raise ValueError("its checksum does not match")
    letters = []
    for number, told in enumerate(facts["letters"]):
        frame = tensors[f"{LETTER}{number}"].numpy().tobytes()
        envelope = Envelope(**{**told, "address": Address(**told["address"])})
        letters.append(Letter(envelope, frame, hashlib.sha256(frame).digest()))
    state = {name.removeprefix(STATE): rows for name, rows in tensors.items() if name.startswith(STATE)}
    return Saved(
        facts["federation"],
        facts["epoch"],
        facts["step"],
        facts["meeting"],
        state,
        letters,
        facts["wall_seconds"],
    )


def _envelope(envelope: Envelope) -> dict[str, Any]:
    address = envelope.address
    return {
        "federation": envelope.federation,
        "sender": envelope.sender,
        "receiver": envelope.receiver,
        "address": {"epoch": address.epoch, "tick": address.tick, "exchange": address.exchange},
    }


def _digest(tensors: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name in sorted(tensors):
        rows = tensors[name]
        total.update(f"{name}:{rows.dtype}:{tuple(rows.shape)};".encode())
        total.update(raw_bytes(rows))
    return total.hexdigest()


def place_of(path: Path) -> tuple[int, int]:
    """Epoch and step of a checkpoint, by its name."""
    found = NAME.fullmatch(path.name)
    assert found is not None
    return int(found[1]), int(found[2])


def _flush(path: Path) -> None:
    """Make sure that what was written is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
