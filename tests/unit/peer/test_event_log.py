"""A journal is lines of JSON whatever happens, and nothing that happens stops the node."""

import contextlib
import io
import json
import os
import threading
import time

import pytest

from tacit.peer.monitoring.event_log import ITEMS, KEYS, LENGTH, EventLog


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


def test_a_line_says_when_how_bad_who_what_and_more(stream):
    journal = EventLog(stream, "hospital-a", clock=Clock(1_700_000_000.1234))
    journal.say("connected", neighbour="hospital-b", step=3, loss=0.5, known=True, nobody=None)
    journal.say("refused", "warning", who=["x", "y"])
    first, second = lines(stream)
    assert list(first.items()) == [
        ("time", "2023-11-14T22:13:20.123Z"), ("level", "info"), ("node", "hospital-a"), ("event", "connected"),
        ("neighbour", "hospital-b"), ("step", 3), ("loss", 0.5), ("known", True), ("nobody", None),
    ]  # fmt: skip
    assert second["level"] == "warning"
    assert second["who"] == ["x", "y"]


def test_each_line_is_flushed(tmp_path):
    path = tmp_path / "journal"
    with path.open("w") as file:
        EventLog(file, "a").say("started")
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
        (Unprintable(), "a Unprintable without words"),
        ("x" * (LENGTH + 5), "x" * (LENGTH - 1) + "…"),
        (["x" * 9_000], ["x" * (LENGTH - 1) + "…"]),
        ({"k" * 9_000: 1}, {"k" * (LENGTH - 1) + "…": 1}),
        (list(range(1000)), [*range(ITEMS), f"and {1000 - ITEMS} more"]),
    ],
)
def test_any_value_becomes_one_line(stream, value, written):
    EventLog(stream, "a").say("event", value=value)
    (line,) = lines(stream)
    assert line["value"] == written
    assert stream.getvalue().isascii()  # so no character of it is a line break to anybody


def test_values_without_end_do_not_go_on_for_ever(stream):
    endless = []
    endless.append(endless)
    EventLog(stream, "a").say("event", value=endless)
    assert len(lines(stream)) == 1
    EventLog(stream, "a").say("event", value=10**5000)  # longer than Python turns into text
    assert lines(stream)[1]["value"] == "a int without words"


def test_no_field_takes_the_place_of_the_first_four(stream):
    journal = EventLog(stream, "a")
    journal.say("real", time="never", node="b", event="forged", self="me")
    journal.say_at_most(1, "k", "real", seconds=3, key="z", event="forged")
    first, second = lines(stream)
    assert (first["node"], first["event"], first["event_"]) == ("a", "real", "forged")
    assert first["time_"] == "never"
    assert first["time"] != "never"
    assert (second["seconds"], second["key"], second["event"]) == (3, "z", "real")


def test_a_closed_stream_does_not_stop_the_node(stream):
    journal = EventLog(stream, "a")
    stream.close()
    journal.say("event")
    journal.say_at_most(1, "k", "event")


class Full(io.StringIO):
    full = True

    def write(self, text):
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_full_disk_does_not_stop_the_node_and_the_loss_is_told():
    stream = Full()
    journal = EventLog(stream, "a")
    journal.say("one")
    journal.say("two")
    stream.full = False
    journal.say("three")
    journal.say("four")
    assert [(line["event"], line.get("lost")) for line in lines(stream)] == [
        ("three", 2),
        ("four", None),
    ]


def test_a_pipe_that_nobody_reads_does_not_stop_the_node():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def read():
        pieces = []
        with contextlib.suppress(BlockingIOError):  # it is empty
            while True:
                pieces.append(os.read(reading, 1 << 16))
        return [json.loads(line) for line in b"".join(pieces).splitlines()]

    with os.fdopen(writing, "w") as pipe:
        journal = EventLog(pipe, "a")
        begun = time.monotonic()
        for number in range(2_000):  # far more than a pipe holds
            journal.say("event", number=number, filling="x" * 200)
        assert time.monotonic() - begun < 30
        told = read()
        assert [line["number"] for line in told] == list(range(len(told)))
        journal.say("again")
        (again,) = read()
    os.close(reading)
    assert again["event"] == "again"
    assert again["lost"] == 2_000 - len(told)


class Slow(io.StringIO):
    """A stream that takes a line in two pieces."""

    def write(self, text):
        for piece in (text[:20], text[20:]):
            super().write(piece)
            time.sleep(0.0002)
        return len(text)


def test_lines_of_many_threads_do_not_mix():
    stream = Slow()
    journal = EventLog(stream, "a")

    def speak(thread):
        for number in range(20):
            journal.say("event", thread=thread, number=number)
            journal.say_at_most(1e6, "same", "once")

    threads = [threading.Thread(target=speak, args=(k,)) for k in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [(line["thread"], line["number"]) for line in lines(stream) if line["event"] == "event"]
    assert sorted(told) == [(k, n) for k in range(20) for n in range(20)]
    assert [line["event"] for line in lines(stream)].count("once") == 1


def test_a_repeated_event_is_said_at_most_so_often(stream):
    wall, steady = Clock(), Clock()
    journal = EventLog(stream, "a", clock=wall, monotonic=steady)
    for _ in range(5):
        journal.say_at_most(10, ("away", "b"), "away", "warning", neighbour="b")
    journal.say_at_most(10, ("away", "c"), "away", neighbour="c")
    wall.now = 1e6  # a clock set forward gives nobody more lines
    journal.say_at_most(10, ("away", "b"), "away", neighbour="b")
    steady.now = 10.0
    journal.say_at_most(10, ("away", "b"), "away", neighbour="b")
    journal.say_at_most(10, ("away", "b"), "away", neighbour="b")
    steady.now = 100.0
    journal.say_at_most(10, ("away", "b"), "away", neighbour="b")
    steady.now = 200.0
    journal.say_at_most(10, ("away", "b"), "away", neighbour="b")
    told = [(line["neighbour"], line.get("repeated")) for line in lines(stream)]
    assert told == [("b", None), ("c", None), ("b", 5), ("b", 1), ("b", None)]
    assert lines(stream)[0]["level"] == "warning"


def test_new_keys_without_end_do_not_fill_disk_or_memory(stream):
    steady = Clock()
    journal = EventLog(stream, "a", monotonic=steady)
    for number in range(5 * KEYS):
        journal.say_at_most(10, number, "event")
    assert len(lines(stream)) <= KEYS + 1
    assert len(journal._limits) <= KEYS + 1
    steady.now = 20.0
    journal.say_at_most(10, "new", "event")
    assert len(journal._limits) == 1
