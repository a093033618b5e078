"""The event log is lines of JSON whatever happens, and no failure of it stops the node."""

import contextlib
import io
import json
import os
import threading
import time

import pytest

from tacit.peer.monitoring.event_log import MAX_CHARACTERS, MAX_ITEMS, MAX_KEYS, EventLog


class Clock:
    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def stream():
    return io.StringIO()


def lines(stream):
    text = stream.getvalue()
    assert not text or text.endswith("\n")
    return [json.loads(line, parse_constant=pytest.fail) for line in text.split("\n")[:-1]]


def test_a_line_has_time_level_node_event_and_fields(stream):
    event_log = EventLog(stream, "hospital-a", clock=Clock(1_700_000_000.1234))
    event_log.write("connected", neighbour="hospital-b", step=3, loss=0.5, known=True, missing=None)
    event_log.write("refused", "warning", who=["x", "y"])
    first, second = lines(stream)
    assert list(first.items()) == [
        ("time", "2023-11-14T22:13:20.123Z"), ("level", "info"), ("node", "hospital-a"),
        ("event", "connected"), ("neighbour", "hospital-b"), ("step", 3), ("loss", 0.5),
        ("known", True), ("missing", None),
    ]  # fmt: skip
    assert second["level"] == "warning"
    assert second["who"] == ["x", "y"]


def test_each_line_is_flushed(tmp_path):
    path = tmp_path / "log"
    with path.open("w") as file:
        EventLog(file, "a").write("started")
        assert json.loads(path.read_text())["event"] == "started"


class Unprintable:
    def __str__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("two\nlines\r\u2028\x85", "two\nlines\r\u2028\x85"),
        ("half \ud800", "half \ud800"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (b"\x00", "b'\\x00'"),
        (1 << 80, str(1 << 80)),
        ({"a": (1, {2}), 3: float("inf")}, {"a": [1, [2]], "3": "inf"}),
        (Unprintable(), "unprintable Unprintable"),
        ("x" * (MAX_CHARACTERS + 5), "x" * (MAX_CHARACTERS - 1) + "…"),
        (["x" * 9_000], ["x" * (MAX_CHARACTERS - 1) + "…"]),
        ({"k" * 9_000: 1}, {"k" * (MAX_CHARACTERS - 1) + "…": 1}),
        (list(range(1000)), [*range(MAX_ITEMS), f"and {1000 - MAX_ITEMS} more"]),
    ],
)
def test_any_value_becomes_one_line(stream, value, written):
    EventLog(stream, "a").write("event", value=value)
    (line,) = lines(stream)
    assert line["value"] == written
    assert stream.getvalue().isascii()  # so no reader finds a line break inside


def test_recursive_values_are_cut(stream):
    endless = []
    endless.append(endless)
    EventLog(stream, "a").write("event", value=endless)
    assert len(lines(stream)) == 1
    EventLog(stream, "a").write("event", value=10**5000)  # longer than Python turns into text
    assert lines(stream)[1]["value"] == "unprintable int"


def test_no_field_overwrites_the_first_four(stream):
    event_log = EventLog(stream, "a")
    event_log.write("real", time="never", node="b", event="forged", self="me")
    event_log.write_throttled(1, "k", "real", seconds=3, key="z", event="forged")
    first, second = lines(stream)
    assert (first["node"], first["event"], first["event_"]) == ("a", "real", "forged")
    assert first["time_"] == "never"
    assert first["time"] != "never"
    assert (second["seconds"], second["key"], second["event"]) == (3, "z", "real")


def test_a_closed_stream_does_not_stop_the_node(stream):
    event_log = EventLog(stream, "a")
    stream.close()
    event_log.write("event")
    event_log.write_throttled(1, "k", "event")


class Full(io.StringIO):
    full = True

    def write(self, text):
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_full_disk_does_not_stop_the_node_and_lost_lines_are_counted():
    stream = Full()
    event_log = EventLog(stream, "a")
    event_log.write("one")
    event_log.write("two")
    stream.full = False
    event_log.write("three")
    event_log.write("four")
    assert [(line["event"], line.get("lost")) for line in lines(stream)] == [
        ("three", 2),
        ("four", None),
    ]


def test_a_pipe_without_reader_does_not_stop_the_node():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def read():
        pieces = []
        with contextlib.suppress(BlockingIOError):  # it is empty
            while True:
                pieces.append(os.read(reading, 1 << 16))
        return [json.loads(line) for line in b"".join(pieces).splitlines()]

    with os.fdopen(writing, "w") as pipe:
        event_log = EventLog(pipe, "a")
        begun = time.monotonic()
        for number in range(2_000):  # far more than a pipe holds
            event_log.write("event", number=number, filling="x" * 200)
        assert time.monotonic() - begun < 30
        first = read()
        assert [line["number"] for line in first] == list(range(len(first)))
        event_log.write("again")
        (again,) = read()
    os.close(reading)
    assert again["event"] == "again"
    assert again["lost"] == 2_000 - len(first)


class Slow(io.StringIO):
    """A stream that takes a line in two pieces."""

    def write(self, text):
        for piece in (text[:20], text[20:]):
            super().write(piece)
            time.sleep(0.0002)
        return len(text)


def test_lines_of_many_threads_do_not_mix():
    stream = Slow()
    event_log = EventLog(stream, "a")

    def write_lines(thread):
        for number in range(20):
            event_log.write("event", thread=thread, number=number)
            event_log.write_throttled(1e6, "same", "once")

    threads = [threading.Thread(target=write_lines, args=(k,)) for k in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [(line["thread"], line["number"]) for line in lines(stream) if line["event"] == "event"]
    assert sorted(found) == [(k, n) for k in range(20) for n in range(20)]
    assert [line["event"] for line in lines(stream)].count("once") == 1


def test_repeated_events_are_throttled(stream):
    wall, steady = Clock(), Clock()
    event_log = EventLog(stream, "a", clock=wall, monotonic=steady)
    for _ in range(5):
        event_log.write_throttled(10, ("away", "b"), "away", "warning", neighbour="b")
    event_log.write_throttled(10, ("away", "c"), "away", neighbour="c")
    wall.now = 1e6  # setting the clock forward allows no more lines
    event_log.write_throttled(10, ("away", "b"), "away", neighbour="b")
    steady.now = 10.0
    event_log.write_throttled(10, ("away", "b"), "away", neighbour="b")
    event_log.write_throttled(10, ("away", "b"), "away", neighbour="b")
    steady.now = 100.0
    event_log.write_throttled(10, ("away", "b"), "away", neighbour="b")
    steady.now = 200.0
    event_log.write_throttled(10, ("away", "b"), "away", neighbour="b")
    found = [(line["neighbour"], line.get("repeated")) for line in lines(stream)]
    assert found == [("b", None), ("c", None), ("b", 5), ("b", 1), ("b", None)]
    assert lines(stream)[0]["level"] == "warning"


def test_unlimited_keys_do_not_fill_disk_or_memory(stream):
    steady = Clock()
    event_log = EventLog(stream, "a", monotonic=steady)
    for number in range(5 * MAX_KEYS):
        event_log.write_throttled(10, number, "event")
    assert len(lines(stream)) <= MAX_KEYS + 1
    assert len(event_log._throttles) <= MAX_KEYS + 1
    steady.now = 20.0
    event_log.write_throttled(10, "new", "event")
    assert len(event_log._throttles) == 1
