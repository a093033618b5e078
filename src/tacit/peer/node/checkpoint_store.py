"""A node's checkpoints: state and outbox together, so that a node that comes back answers for what it said.

    generation-000001-step-000000120.safetensors    a state, and where each letter of the outbox is
    generation-000002-meeting.safetensors           the model with which a node went over to a new roster
    letters-000001-000000120.bin               the letters that were new in that checkpoint, one after the other

Letters are written once, although they stay in the outbox for several checkpoints. A checkpoint is there once its
safetensors file is, which is written last, aside, flushed and renamed. The two newest are kept: if one is damaged,
the one before is taken, and neighbours still have what happened since.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.core import storage
from tacit.peer.wire.frames import Address, Envelope, WireMessage, raw_bytes

FORMAT = "tacit-node-1"
NAME = re.compile(r"generation-(\d{6})-(?:meeting|step-(\d{9}))\.safetensors")
LETTERS = re.compile(r"letters-\d{6}-\d{9}\.bin")
KEPT = 2


@dataclass(frozen=True, eq=False)
class Saved:
    """What a node needs to go on as if it had never stopped."""

    federation: str
    generation: int
    step: int
    meeting: bool  # the roster has just changed: `state` holds the model alone, if there is one
    state: Mapping[str, Tensor]
    letters: list[WireMessage]
    wall_seconds: float
    data: str = ""  # a digest of what the node trains on

    @property
    def file(self) -> str:
        """What it is called on the disk."""
        return f"generation-{self.generation:06d}-{'meeting' if self.meeting else f'step-{self.step:09d}'}.safetensors"


@dataclass(frozen=True)
class CheckpointKey:
    """Where a letter is on the disk."""

    file: str
    offset: int
    size: int
    sha256: str


class CheckpointStore:
    """The checkpoints in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Envelope, CheckpointKey] = {}  # of the letters of the newest checkpoint

    def save(self, saved: Saved) -> None:
        """Write a checkpoint, and forget all but the newest two."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # A killed node may have left part of a file, which would keep its room on the disk.
        for stale in self._folder.glob("*.part"):
            stale.unlink(missing_ok=True)
        places = self._write_letters(saved)
        tensors = {name: rows.detach().cpu().clone() for name, rows in saved.state.items()}
        facts: dict[str, Any] = {
            "format": FORMAT,
            "federation": saved.federation,
            "generation": saved.generation,
            "step": saved.step,
            "meeting": saved.meeting,
            "wall_seconds": saved.wall_seconds,
            "data": saved.data,
            "letters": [
                {**envelope.as_dict(), **asdict(place)} for envelope, place in places.items()
            ],
        }
        facts["sha256"] = _digest(facts, tensors)
        with storage.replacing(self._folder / saved.file, durable=True) as part:
            _write_state(part, tensors, facts)
        self._places = places
        self._forget()

    def load(self, federation: str) -> tuple[Saved | None, list[str]]:
        """The newest checkpoint that is whole, if there is any, and what was wrong with those passed over."""
        problems = []
        for path in self.newest_first():
            try:
                saved, places = self._load(path)
            except (OSError, ValueError, KeyError, TypeError) as problem:
                problems.append(f"{path.name}: {problem}")
                continue
            if saved.federation != federation:
                problems.append(f"{path.name}: it belongs to federation {saved.federation}")
                continue
            self._places = places
            return saved, problems
        return None, problems

    def newer_than(self, saved: Saved) -> list[Path]:
        """The files of checkpoints that are newer than one that was loaded: they are damaged."""
        return [path for path in self.newest_first() if order(path) > order(Path(saved.file))]

    def newest_first(self) -> list[Path]:
        """The files of the checkpoints."""
        if not self._folder.is_dir():
            return []
        files = (path for path in self._folder.iterdir() if NAME.fullmatch(path.name))
        return sorted(files, key=order, reverse=True)

    def _write_letters(self, saved: Saved) -> dict[Envelope, CheckpointKey]:
        """Put the letters that are not on the disk yet into one file; where all of them are."""
        file = f"letters-{saved.generation:06d}-{saved.step:09d}.bin"
        places, new, at = {}, [], 0
        for letter in saved.letters:
            known = self._places.get(letter.envelope)
            # A file of this name is written anew below: what was in it goes there again.
            if known is None or known.file == file:
                known = CheckpointKey(file, at, len(letter.frame), letter.sha256.hex())
                new.append(letter.frame)
                at += len(letter.frame)
            places[letter.envelope] = known
        if new:
            with (
                storage.replacing(self._folder / file, durable=True) as part,
                part.open("wb") as out,
            ):
                out.writelines(new)
        return places

    def _forget(self) -> None:
        """Remove all but the newest two checkpoints, and letters that none of these has."""
        files = self.newest_first()
        for old in files[KEPT:]:
            old.unlink()
        needed = {place.file for place in self._places.values()}
        for path in files[1:KEPT]:
            try:
                needed |= {told["file"] for told in _facts(path)["letters"]}
            except (OSError, ValueError, KeyError, TypeError):
                return  # it is damaged, and nobody knows what it needs
        for path in self._folder.iterdir():
            if LETTERS.fullmatch(path.name) and path.name not in needed:
                path.unlink()

    def _load(self, path: Path) -> tuple[Saved, dict[Envelope, CheckpointKey]]:
        facts = _facts(path)
        tensors = _tensors(path)
        if facts["format"] != FORMAT:
            raise ValueError(f"unknown format {facts['format']!r}")
        if (
            _digest({name: told for name, told in facts.items() if name != "sha256"}, tensors)
            != facts["sha256"]
        ):
            raise ValueError("its checksum does not match")
        letters, places = [], {}
        for told in facts["letters"]:
            envelope = Envelope(
                told["federation"], told["sender"], told["receiver"], Address(**told["address"])
            )
            place = CheckpointKey(told["file"], told["offset"], told["size"], told["sha256"])
            letters.append(self._read_letter(envelope, place))
            places[envelope] = place
        names = ("federation", "generation", "step", "meeting", "wall_seconds", "data")
        saved = Saved(**{name: facts[name] for name in names}, state=tensors, letters=letters)
        if saved.file != path.name:
            raise ValueError(f"it is {saved.file} under another name")
        return saved, places

    def _read_letter(self, envelope: Envelope, place: CheckpointKey) -> WireMessage:
        if not LETTERS.fullmatch(place.file):
            raise ValueError(f"{place.file!r} is no file of letters")
        with (self._folder / place.file).open("rb") as file:
            file.seek(place.offset)
            frame = file.read(place.size)
        digest = hashlib.sha256(frame).digest()
        if digest.hex() != place.sha256:
            raise ValueError(f"a letter in {place.file} does not match its checksum")
        return WireMessage(envelope, frame, digest)


def _write_state(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata={"tacit": json.dumps(facts)})
    except SafetensorError as problem:  # how it says that the disk is full
        raise OSError(str(problem)) from None


def _facts(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            facts: dict[str, Any] = json.loads((file.metadata() or {})["tacit"])
    except SafetensorError as problem:
        raise ValueError(str(problem)) from None
    return facts


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        # Cloned: what the file hands out is mapped from it, and would change with it.
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)


def _digest(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        rows = tensors[name]
        total.update(f"{name}:{rows.dtype}:{tuple(rows.shape)};".encode())
        total.update(raw_bytes(rows))
    return total.hexdigest()


def order(path: Path) -> tuple[int, int]:
    """By what checkpoints are newer: the generation, then the step; a generation begins with its meeting."""
    found = NAME.fullmatch(path.name)
    assert found is not None
    return int(found[1]), -1 if found[2] is None else int(found[2])
