"""Checkpoint files of a node: the algorithm's state together with the outbox.

    generation-000001-step-000000120.safetensors   state, and where each message of the outbox is
    generation-000002-rejoin.safetensors           model at the switch to a new roster
    messages-000001-000000120.bin                  messages that were new in that checkpoint

A message is written once, although it stays in the outbox for several checkpoints. The safetensors
file is written last and in one step, so a checkpoint exists completely or not at all. The two
newest are kept: if one is damaged, the node continues from the other, and its neighbours still have
all messages since then.
"""

from __future__ import annotations

import hashlib
import mmap
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.core import storage
from tacit.peer.federation.absence import roster_order
from tacit.peer.wire.messages import Envelope, ExchangeId, Tensors, WireMessage
from tacit.record.checkpoint_files import UNREADABLE, CheckpointFiles

FORMAT = "tacit-node-1"
CHECKPOINT_FILE = re.compile(r"generation-(\d{6,})-(?:rejoin|step-(\d{9}))\.safetensors")
MESSAGES_FILE = re.compile(r"messages-\d{6,}-\d{9}\.bin")
KEPT = 2  # checkpoints
MIN_MAPPED_BYTES = 1 << 20  # of a message that is kept in its file instead of in memory
METADATA = ("federation", "generation", "step", "rejoin", "wall_seconds", "data_digest")


@dataclass(frozen=True, eq=False)
class NodeCheckpoint:
    """Everything that a node needs to continue to the same bits."""

    federation: str
    generation: int  # the number of the roster
    step: int
    rejoin: bool  # the roster has just changed; `state` has the model only, or nothing
    state: Tensors
    messages: list[WireMessage]
    wall_seconds: float
    data_digest: str = ""

    @property
    def file(self) -> str:
        part = "rejoin" if self.rejoin else f"step-{self.step:09d}"
        return f"generation-{self.generation:06d}-{part}.safetensors"


@dataclass(frozen=True)
class MessageLocation:
    file: str
    offset: int
    size: int
    sha256: str


class CheckpointStore:
    def __init__(self, folder: Path) -> None:
        self._files = CheckpointFiles(
            folder, FORMAT, CHECKPOINT_FILE, _roster_and_step, with_digest=True
        )
        self._folder = folder
        self._locations: dict[Envelope, MessageLocation] = {}  # in the newest checkpoint

    def save(self, checkpoint: NodeCheckpoint) -> None:
        """Write a checkpoint and remove all but the newest two."""
        self._folder.mkdir(parents=True, exist_ok=True)
        storage.remove_parts(self._folder, MESSAGES_FILE)
        locations = self._write_messages(checkpoint)
        facts: dict[str, Any] = {name: getattr(checkpoint, name) for name in METADATA}
        facts["messages"] = [
            {"envelope": envelope.to_dict(), "location": vars(location)}
            for envelope, location in locations.items()
        ]
        self._files.write(checkpoint.file, checkpoint.state, facts)
        self._locations = locations
        self._remove_old()

    def mapped_messages(self, checkpoint: NodeCheckpoint) -> list[WireMessage]:
        """The large messages that are new in a saved checkpoint, as parts of their file.

        The system may then use their memory for something else, and read them again if needed.
        Messages of the last iteration are left out: neighbours are about to fetch them.
        """
        new = [
            (message, location)
            for message in checkpoint.messages
            if isinstance(message.frame, bytes)
            and len(message.frame) >= MIN_MAPPED_BYTES
            and message.envelope.exchange.tick < checkpoint.step
            and (location := self._locations.get(message.envelope)) is not None
        ]
        files = {location.file: _map(self._folder / location.file) for _, location in new}
        return [
            replace(message, frame=files[place.file][place.offset : place.offset + place.size])
            for message, place in new
        ]

    def load(self, federation: str) -> tuple[NodeCheckpoint | None, list[str]]:
        """Load the newest usable checkpoint, if any; also return why newer ones were skipped."""
        problems = []
        for path in self._files.newest_first():
            try:
                checkpoint, locations = self._load(path)
            except UNREADABLE as problem:
                problems.append(f"{path.name}: {problem}")
                continue
            if checkpoint.federation != federation:
                problems.append(f"{path.name}: it belongs to federation {checkpoint.federation}")
                continue
            self._locations = locations
            return checkpoint, problems
        return None, problems

    def newer_than(self, checkpoint: NodeCheckpoint) -> list[Path]:
        """The files of newer checkpoints; if this one was loaded, they are damaged."""
        limit = roster_and_step(Path(checkpoint.file))
        return [path for path in self.newest_first() if roster_and_step(path) > limit]

    def newest_first(self) -> list[Path]:
        return self._files.newest_first()

    def _write_messages(self, checkpoint: NodeCheckpoint) -> dict[Envelope, MessageLocation]:
        """Write the messages that are not on disk yet; return where all of them are."""
        file = f"messages-{checkpoint.generation:06d}-{checkpoint.step:09d}.bin"
        locations, frames, offset = {}, [], 0
        for message in checkpoint.messages:
            location = self._locations.get(message.envelope)
            # A file of the same name is about to be replaced.
            if location is None or location.file == file:
                size = len(message.frame)
                location = MessageLocation(file, offset, size, message.sha256.hex())
                frames.append(message.frame)
                offset += size
            locations[message.envelope] = location
        if frames:
            path = self._folder / file
            with storage.replacing(path, durable=True) as part, part.open("wb") as out:
                out.writelines(frames)
        return locations

    def _remove_old(self) -> None:
        """Remove old checkpoints, and files of messages that no kept checkpoint needs."""
        self._files.remove_old(KEPT)
        needed = {location.file for location in self._locations.values()}
        for path in self._files.newest_first()[1:]:
            try:
                needed |= {
                    entry["location"]["file"] for entry in self._files.facts(path)["messages"]
                }
            except UNREADABLE:
                return  # a damaged checkpoint: what it needs is unknown
        for path in self._folder.iterdir():
            if MESSAGES_FILE.fullmatch(path.name) and path.name not in needed:
                path.unlink()

    def _load(self, path: Path) -> tuple[NodeCheckpoint, dict[Envelope, MessageLocation]]:
        tensors, metadata = self._files.read(path)
        messages, locations = [], {}
        for entry in metadata.pop("messages"):
            exchange = ExchangeId(**entry["envelope"].pop("exchange"))
            envelope = Envelope(**entry["envelope"], exchange=exchange)
            locations[envelope] = MessageLocation(**entry["location"])
            messages.append(self._read_message(envelope, locations[envelope]))
        del metadata["format"]
        checkpoint = NodeCheckpoint(**metadata, state=tensors, messages=messages)
        if checkpoint.file != path.name:
            raise ValueError(f"it is {checkpoint.file} under another name")
        return checkpoint, locations

    def _read_message(self, envelope: Envelope, location: MessageLocation) -> WireMessage:
        if not MESSAGES_FILE.fullmatch(location.file):
            raise ValueError(f"{location.file!r} is not a file of messages")
        with (self._folder / location.file).open("rb") as file:
            file.seek(location.offset)
            frame = file.read(location.size)
        digest = hashlib.sha256(frame).digest()
        if digest.hex() != location.sha256:
            raise ValueError(f"a message in {location.file} does not match its checksum")
        return WireMessage(envelope, frame, digest)


def roster_and_step(path: Path) -> tuple[tuple[int, int], int]:
    """Roster and step of a checkpoint file, which order them; a rejoin has step −1."""
    name = CHECKPOINT_FILE.fullmatch(path.name)
    assert name is not None
    return _roster_and_step(name)


def _roster_and_step(name: re.Match[str]) -> tuple[tuple[int, int], int]:
    return roster_order(int(name[1])), -1 if name[2] is None else int(name[2])


def _map(path: Path) -> memoryview:
    """The bytes of a file, which stay readable after the file is removed."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
