"""The files of a transcript: bounds, crashes, damage, a full disk."""

import errno
import io
import json
import os
import stat

import pytest
import torch

from tacit.core.errors import Misuse
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node import transcript_log
from tacit.peer.node.transcript_log import (
    TranscriptLog,
    parse_size,
    read_transcript,
    segment_paths,
)
from tacit.peer.wire.messages import Envelope, ExchangeId, pack

LIMIT = 200_000
WIDTH = 1_000  # numbers in a message


def message(tick, index=0, sender="a", receiver="", generation=1, fill=None):
    exchange = ExchangeId(generation, tick, index)
    rows = torch.full((WIDTH,), float(tick if fill is None else fill))
    return pack(Envelope("clinics", sender, receiver, exchange), {"theta": rows})


class Recorded:
    """A transcript in a folder, and the lines that it logs."""

    def __init__(self, folder, limit=LIMIT):
        self.lines = io.StringIO()
        self.log = TranscriptLog(folder, limit, EventLog(self.lines, "a"))

    def add(self, *messages):
        for one in messages:
            self.log.add(one)
        self.log.flush()
        return self

    def events(self):
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]


def ticks(folder):
    return [one.envelope.exchange.tick for one in read_transcript(folder)]


@pytest.mark.parametrize(
    ("text", "size"), [("2GB", 2 * 10**9), ("500 MB", 5 * 10**8), ("100kb", 10**5)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0GB", "2", "2GiB", "-1GB", "1.5GB", "50kB", "2GB2"])
def test_bad_sizes_are_refused(text):
    with pytest.raises(Misuse, match=r"--transcript 2GB"):
        parse_size(text)


def test_messages_are_read_as_they_were_recorded(tmp_path):
    sent = [message(0), message(0, sender="b"), message(1, 0, "a", "b"), message(1, 1, "a", "b")]
    recorded = Recorded(tmp_path / "transcript").add(*sent)
    found = list(read_transcript(tmp_path / "transcript"))
    assert [one.envelope for one in found] == [one.envelope for one in sent]
    assert [one.frame for one in found] == [one.frame for one in sent]
    assert recorded.log.status.startswith("complete from iteration 0 on")


def test_only_the_owner_may_read_it(tmp_path):
    before = os.umask(0o022)
    try:
        Recorded(tmp_path / "transcript").add(message(0))
    finally:
        os.umask(before)
    (segment,) = segment_paths(tmp_path / "transcript")
    assert stat.S_IMODE(segment.stat().st_mode) == 0o600
    assert stat.S_IMODE(segment.parent.stat().st_mode) == 0o700


def test_the_oldest_segments_are_deleted_at_the_limit(tmp_path):
    recorded = Recorded(tmp_path)
    for tick in range(200):
        recorded.add(message(tick))
        assert sum(path.stat().st_size for path in segment_paths(tmp_path)) <= LIMIT
    kept = ticks(tmp_path)
    assert kept == list(range(kept[0], 200))
    assert len(kept) * 4 * WIDTH > LIMIT / 2
    assert recorded.log.status.startswith(f"complete from iteration {kept[0] + 1} on")
    # As many lines as segments would fill the log.
    assert [one["event"] for one in recorded.events()] == ["transcript shortened"]
    # Also after a restart.
    assert Recorded(tmp_path).log.status == recorded.log.status


def test_a_record_that_was_cut_off_is_removed(tmp_path):
    sent = [message(tick) for tick in range(3)]
    Recorded(tmp_path).add(*sent)
    (segment,) = segment_paths(tmp_path)
    whole = segment.read_bytes()
    size = len(whole) // 3
    # Killed at any byte of the last record.
    for end in (2 * size + 1, 2 * size + 20, 3 * size - 1):
        segment.write_bytes(whole[:end])
        assert ticks(tmp_path) == [0, 1]
        again = Recorded(tmp_path)
        assert [one["event"] for one in again.events()] == ["transcript cut"]
        again.add(*sent)
        assert segment.read_bytes() == whole


def test_repeated_messages_are_recorded_once(tmp_path):
    first = [message(0), message(0, sender="b"), message(1), message(1, sender="b"), message(2)]
    Recorded(tmp_path).add(*first)
    # From a checkpoint before the end; the message of b in iteration 2 is new.
    rest = [message(2, sender="b"), message(3)]
    Recorded(tmp_path).add(*first[2:], *rest)
    found = [(one.envelope.exchange.tick, one.envelope.sender) for one in read_transcript(tmp_path)]
    assert found == [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "a")]


def test_iterations_may_be_repeated_under_a_newer_roster(tmp_path):
    agreed = 1_000_001  # generation 1, epoch 1
    later = [message(3, generation=agreed), message(1, generation=2)]
    Recorded(tmp_path).add(message(5), *later, message(7, generation=agreed))
    assert ticks(tmp_path) == [5, 3, 1]


def test_a_damaged_record_is_refused(tmp_path):
    Recorded(tmp_path).add(*(message(tick) for tick in range(3)))
    (segment,) = segment_paths(tmp_path)
    whole = segment.read_bytes()
    for position in (60, len(whole) // 2, len(whole) - 1):
        changed = bytearray(whole)
        changed[position] ^= 1
        segment.write_bytes(changed)
        with pytest.raises(Misuse, match="is damaged"):
            ticks(tmp_path)


def test_a_missing_segment_and_a_cut_one_are_refused(tmp_path):
    Recorded(tmp_path).add(*(message(tick) for tick in range(30)))
    _, middle, *_, last = segment_paths(tmp_path)
    content = middle.read_bytes()
    middle.write_bytes(content[:-1])
    with pytest.raises(Misuse, match="is damaged"):
        ticks(tmp_path)
    middle.unlink()
    with pytest.raises(Misuse, match="A segment is missing"):
        ticks(tmp_path)
    assert last.exists()


@pytest.mark.parametrize("written", [None, 10], ids=["error", "short"])
def test_a_full_disk_ends_the_transcript_and_nothing_else(tmp_path, monkeypatch, written):
    recorded = Recorded(tmp_path / "transcript").add(message(0))

    def full(handle, parts):
        if written is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    with monkeypatch.context() as patched:
        patched.setattr(transcript_log.os, "writev", full)
        recorded.add(message(1), message(2))
    recorded.add(message(3))
    assert [one["event"] for one in recorded.events()] == ["transcript dropped"]
    assert recorded.log.status.startswith("dropped: ")
    assert not (tmp_path / "transcript").exists()
    # A restarted node records again.
    assert Recorded(tmp_path / "transcript").add(message(4)).log.status.startswith("complete")
    assert ticks(tmp_path / "transcript") == [4]


def test_a_message_larger_than_the_limit_ends_it(tmp_path):
    recorded = Recorded(tmp_path / "transcript", limit=1_000).add(message(0))
    assert "more than --transcript allows" in recorded.log.status
