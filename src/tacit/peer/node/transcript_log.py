"""The transcript of a node: what it sent and received, in files of bounded total size.

    run/transcript/segment-000001.log, segment-000002.log, …

A record is the length of a message (8 bytes, little-endian), its SHA-256 digest and the message
itself, as it travels: a safetensors frame that names sender, receiver and exchange. A record is one
write. A thread writes the messages of an exchange while the node computes; before those of the next
one, and before each checkpoint, the node waits for it. If the process is killed, at most those of
its last exchange are missing or cut off, and a restarted node sends and records them again. Other
messages that it repeats are not recorded twice. When the size limit is reached, the oldest segments
are deleted.

Training never depends on it: if a record cannot be written, the transcript is deleted, which also
frees its space on the disk, and the node goes on without.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from tacit.core.errors import Misuse
from tacit.peer.federation.absence import roster_order
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.wire.messages import ExchangeId, WireMessage, parse_envelope

SIZE = re.compile(r"([1-9][0-9]{0,5})\s*(kB|MB|GB|TB)", re.IGNORECASE)
UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
SMALLEST = 10**5  # bytes
LENGTH_BYTES, DIGEST_BYTES = 8, 32
HEAD_BYTES = LENGTH_BYTES + DIGEST_BYTES
MAX_SEGMENT_BYTES = 1 << 26
MAX_PENDING_BYTES = 1 << 22  # of a message that is written while the node goes on
SEGMENTS = 8  # at least, so that reaching the limit loses an eighth
SHORTENED_SECONDS = 600.0  # between log lines about deleted segments
DAMAGED_REMEDY = (
    "What it says cannot be trusted. Move run/transcript away: the audit works without."
)


def parse_size(text: str) -> int:
    """Bytes of a size such as "500MB".

    Example:
        >>> parse_size("2GB")
        2000000000
    """
    found = SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(found[1]) * UNITS[found[2].lower()]
    if size < SMALLEST:
        problem = f"--transcript {text} is not a size of 100kB or more."
        raise Misuse(problem, "Give a number with kB, MB, GB or TB, e.g. --transcript 2GB.")
    return size


@dataclass
class Segment:
    """A file of the transcript: its size, and the exchange of its first record."""

    path: Path
    size: int = 0
    first: ExchangeId | None = None

    @property
    def number(self) -> int:
        return int(self.path.stem.partition("-")[2])


class TranscriptLog:
    """Appends the messages of a node. Only the training thread calls `add`, `flush` and `close`.

    Args:
        folder: Where the segments are; only the owner may read it.
        limit: Bytes of all segments together, at most.
        event_log: Gets a line when segments are deleted, or when the transcript ends.
    """

    def __init__(self, folder: Path, limit: int, event_log: EventLog) -> None:
        self._folder, self._limit, self._event_log = folder, limit, event_log
        self._segment_bytes = min(MAX_SEGMENT_BYTES, limit // SEGMENTS)
        self._segments: list[Segment] = []
        self._handle: int | None = None
        # The newest exchange, and the sender and receiver of each recorded message of it.
        self._last: ExchangeId | None = None
        self._recorded: set[tuple[str, str]] = set()
        self._dropped = ""
        # One thread: records are in the order in which they were added.
        self._writer = ThreadPoolExecutor(1, "transcript")
        self._pending: list[Future[None]] = []
        try:
            self._open()
        except OSError as problem:
            self._drop(problem.strerror or str(problem))

    @property
    def size(self) -> int:
        """Bytes of all segments. Any thread may ask for it, and for the status."""
        return sum(segment.size for segment in list(self._segments))

    @property
    def status(self) -> str:
        """What is kept, for people."""
        if self._dropped:
            return f"dropped: {self._dropped}"
        if not self.size:
            return "empty"
        return f"complete from iteration {self._complete_from()} on, {self.size:,} bytes"

    def add(self, message: WireMessage) -> None:
        """Append a message unless it is recorded already; never raises OSError."""
        exchange = message.envelope.exchange
        ends = (message.envelope.sender, message.envelope.receiver)
        if self._dropped or self._is_recorded(exchange, ends):
            return
        if exchange != self._last:
            self.flush()
        self._note(message)
        self._pending.append(self._writer.submit(self._write, message))
        # Large messages are not kept in memory for longer than necessary.
        if len(message.frame) > MAX_PENDING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Wait until everything is written."""
        for future in self._pending:
            future.result()
        self._pending = []

    def close(self) -> None:
        self.flush()
        self._writer.shutdown()
        self._close_segment()

    def _write(self, message: WireMessage) -> None:
        if self._dropped:
            return
        try:
            self._append(message)
        except OSError as problem:
            self._drop(problem.strerror or str(problem))

    def _close_segment(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _is_recorded(self, exchange: ExchangeId, ends: tuple[str, str]) -> bool:
        """Whether a message is in the transcript, or was: exchanges are recorded in order."""
        if self._last is None or _order(exchange) > _order(self._last):
            return False
        return exchange != self._last or ends in self._recorded

    def _append(self, message: WireMessage) -> None:
        size = HEAD_BYTES + len(message.frame)
        if size > self._limit:
            raise OSError(f"a message of {size:,} bytes is more than --transcript allows")
        newest = self._segments[-1] if self._segments else None
        if self._handle is None or newest is None or newest.size + size > self._segment_bytes:
            self._begin_segment()
        self._make_room(size)
        segment, handle = self._segments[-1], self._handle
        assert handle is not None
        head = len(message.frame).to_bytes(LENGTH_BYTES, "little") + message.sha256
        if os.writev(handle, [head, message.frame]) != size:
            raise OSError("the disk is full")
        segment.size += size
        segment.first = segment.first or message.envelope.exchange

    def _begin_segment(self) -> None:
        if self._segments and not self._segments[-1].size and self._handle is not None:
            return
        self._close_segment()
        number = self._segments[-1].number + 1 if self._segments else 1
        path = self._folder / f"segment-{number:06d}.log"
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._segments.append(Segment(path))

    def _make_room(self, size: int) -> None:
        """Delete the oldest segments until so many bytes fit."""
        shortened = False
        while self.size + size > self._limit and len(self._segments) > 1:
            self._segments.pop(0).path.unlink()
            shortened = True
        if shortened and self._segments[0].first is not None:
            self._event_log.write_throttled(
                SHORTENED_SECONDS, "transcript shortened", "transcript shortened",
                complete_from=self._complete_from(), limit=self._limit,
            )  # fmt: skip

    def _complete_from(self) -> int:
        """The first iteration of which all messages are kept."""
        oldest = next(iter(self._segments), None)
        if oldest is None or oldest.first is None:
            return 0
        # A deleted segment may have had the first messages of the iteration.
        return oldest.first.tick + (oldest.number > 1)

    def _drop(self, why: str) -> None:
        """Delete the transcript, and record no more."""
        self._dropped = why
        self._close_segment()
        self._segments = []
        shutil.rmtree(self._folder, ignore_errors=True)
        self._event_log.write(
            "transcript dropped", "warning", why=why,
            remedy="Training goes on. To record again from now on, free disk space or give "
            "--transcript a larger size, and restart the node.",
        )  # fmt: skip

    def _open(self) -> None:
        """Continue after the last whole record of the newest segment."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in segment_paths(self._folder):
            first = next(valid_records(path), None)
            found = None if first is None else first.envelope.exchange
            self._segments.append(Segment(path, path.stat().st_size, found))
        if not self._segments:
            return
        newest = self._segments[-1]
        end = self._note_recorded(newest.path)
        if self._last is None and len(self._segments) > 1:
            # The newest segment was begun, but has no record.
            self._note_recorded(self._segments[-2].path)
        if end < newest.size:
            os.truncate(newest.path, end)
            self._event_log.write("transcript cut", bytes=newest.size - end, why="a record is cut")
            newest.size = end
        self._handle = os.open(newest.path, os.O_WRONLY | os.O_APPEND)

    def _note_recorded(self, path: Path) -> int:
        """Remember the last exchange in a segment; return where its last whole record ends."""
        end = 0
        for message in valid_records(path):
            self._note(message)
            end += HEAD_BYTES + len(message.frame)
        return end

    def _note(self, message: WireMessage) -> None:
        envelope = message.envelope
        if envelope.exchange != self._last:
            self._last, self._recorded = envelope.exchange, set()
        self._recorded.add((envelope.sender, envelope.receiver))


def segment_paths(folder: Path) -> list[Path]:
    """The segments of a transcript, the oldest first; none if there is no transcript."""
    return sorted(folder.glob(f"segment-{'[0-9]' * 6}.log"))


def valid_records(path: Path, size: int | None = None) -> Iterator[WireMessage]:
    """The messages of a segment up to the first that is not whole."""
    size = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while (message := _next_message(file, size)) is not None:
            yield message


def read_transcript(folder: Path) -> Iterator[WireMessage]:
    """All messages in order; raise Misuse if a segment is damaged.

    Only the last record may be cut off: the node was killed, or is writing it now.
    """
    paths = segment_paths(folder)
    numbers = [Segment(path).number for path in paths]
    if any(after != before + 1 for before, after in pairwise(numbers)):
        raise Misuse(f"A segment is missing in {folder}.", DAMAGED_REMEDY)
    for path in paths:
        # A node that runs may append to it in the meantime.
        end, size = 0, path.stat().st_size
        for message in valid_records(path, size):
            yield message
            end += HEAD_BYTES + len(message.frame)
        if end < size and (path != paths[-1] or _is_whole(path, end, size)):
            raise Misuse(f"{path} is damaged at byte {end:,}.", DAMAGED_REMEDY)


def _next_message(file: BinaryIO, size: int) -> WireMessage | None:
    """The next record of a file of this size; None if it is not whole."""
    head = file.read(HEAD_BYTES)
    length = int.from_bytes(head[:LENGTH_BYTES], "little")
    # A damaged length must not make it read gigabytes.
    if len(head) < HEAD_BYTES or file.tell() + length > size:
        return None
    frame, digest = file.read(length), head[LENGTH_BYTES:]
    if len(frame) < length or hashlib.sha256(frame).digest() != digest:
        return None
    try:
        return WireMessage(parse_envelope(frame), frame, digest)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_whole(path: Path, start: int, size: int) -> bool:
    """Whether a record ends within its file, so that it is not cut off but wrong."""
    with path.open("rb") as file:
        file.seek(start)
        head = file.read(HEAD_BYTES)
    length = int.from_bytes(head[:LENGTH_BYTES], "little")
    return len(head) == HEAD_BYTES and start + HEAD_BYTES + length <= size


def _order(exchange: ExchangeId) -> tuple[tuple[int, int], int, int]:
    return roster_order(exchange.generation), exchange.tick, exchange.index
