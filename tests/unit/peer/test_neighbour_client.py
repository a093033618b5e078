"""The line to a neighbour over a channel that is none: what it asks, when it asks again, and what it says of it."""

import io
import json
import shutil
import threading

import pytest
import torch

from tacit.config.sections import make_config
from tacit.peer.federation.operator import FederationFolder, create, remove
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.outbox import Outbox
from tacit.peer.node.state import ActiveRoster, NodeState
from tacit.peer.wire import neighbour_client as module
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.chunks import cut, notice_piece
from tacit.peer.wire.frames import Address, Envelope, Expected, Rejected, pack
from tacit.peer.wire.neighbour_client import QUICK, SLOW, NeighbourClient, Stopped
from tacit.peer.wire.transport import SERVICE, grpc

CONFIG = make_config(
    {"algorithm": {"name": "lppa", "lr": 0.05}, "run": {"iterations_per_round": 5}}
)
UNAVAILABLE, REFUSED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION


class Failure(grpc.RpcError):
    """A call that failed."""

    def __init__(self, code, why="it did not work"):
        super().__init__(why)
        self.code, self.details = (lambda: code), (lambda: why)


class Stream:
    """Answers to the Wants of one stream: for each an iterable of messages, an exception among them is raised."""

    def __init__(self, channel, wants):
        self._wants, self._channel, self.cancelled = wants, channel, threading.Event()
        self._messages = self._answers()

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._messages)

    def _answers(self):
        for raw in self._wants:
            self._channel.wants.append(wire.Want.FromString(raw))
            for message in self._channel.answers.pop(0):
                if message is HANG:
                    self._channel.hanging.set()
                    assert self.cancelled.wait(60)
                    raise Failure(grpc.StatusCode.CANCELLED)
                if message is END:
                    return
                if isinstance(message, Exception):
                    raise message
                yield message

    def cancel(self):
        self.cancelled.set()


HANG, END = object(), object()  # a neighbour that says nothing more, and one that ends the stream


class Channel:
    """In place of a channel of gRPC: `answers` has what is said to each Want."""

    def __init__(self):
        self.answers, self.wants, self.calls, self.streams = [], [], [], []
        self.replies = {
            "Hello": lambda raw: raw,
            "Announce": lambda raw: b"",
            "Farewell": lambda raw: b"",
        }
        self.hanging, self.closed = threading.Event(), False

    def unary_unary(self, path):
        method = path.removeprefix(f"/{SERVICE}/")

        def call(raw, timeout):
            assert 0 < timeout <= module.HELLO_PATIENCE
            self.calls.append(method)
            return self.replies[method](raw)

        return call

    def stream_stream(self, path):
        assert path == f"/{SERVICE}/Letters"

        def call(wants):
            self.calls.append("Letters")
            self.streams.append(Stream(self, wants))
            return self.streams[-1]

        return call

    def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    nodes = {name: f"127.0.0.1:{7500 + at}" for at, name in enumerate("abc")}
    return create(tmp_path_factory.mktemp("line") / "f", "clinics", nodes, CONFIG)


@pytest.fixture
def channel(monkeypatch):
    fake = Channel()
    monkeypatch.setattr(module, "channel", lambda *what: fake)
    monkeypatch.setattr(module, "QUICK", 0.001)
    return fake


@pytest.fixture
def line(home, channel):
    return make_line(home)


def make_line(home):
    node = home.node("a")
    manifest = node.manifest()
    event_log = EventLog(io.StringIO(), "a")
    standing = ActiveRoster(manifest, Outbox.to(manifest.generation, []))
    desk = NodeState(node, "a", standing, Metrics(), event_log, 4, "torch.float32")
    return NeighbourClient(desk, manifest.member("b"), node.credentials(), node.ca())


def letter(tick, exchange=0):
    return pack(
        Envelope("f", "b", "", Address(1, tick, exchange)), {"x": torch.full((4,), float(tick))}
    )


def messages(tick, exchange=0):
    return list(cut(letter(tick, exchange), 64))


def receive(line, tick, check=lambda found: found, waiting=lambda: None, saved=-1):
    envelope = letter(tick).envelope
    want = line.ask(envelope.address, saved)
    return line.receive(
        want, envelope.address, Expected(envelope, {"x": torch.empty(4)}), check, waiting
    )


def measured(line, name, **labels):
    return line._desk.metrics.value(name, **(labels or {"neighbour": "b"}))


def said(line):
    return [json.loads(text) for text in line._desk.event_log._stream.getvalue().splitlines()]


# --- letters --------------------------------------------------------------------------------------------------


def test_letters_come_over_one_stream_after_one_greeting(line, channel):
    channel.answers = [messages(1), messages(2), messages(3)]
    for tick in (1, 2, 3):
        assert torch.equal(receive(line, tick, saved=tick - 5)["x"], torch.full((4,), float(tick)))
    assert channel.calls == ["Hello", "Letters"]
    assert [(want.address.generation, want.address.tick, want.saved) for want in channel.wants] == [
        (1, 1, -4), (1, 2, -3), (1, 3, -2),
    ]  # fmt: skip
    assert {want.manifest for want in channel.wants} == {line._desk.manifest.hash}
    assert measured(line, "tacit_letters_received_total") == 3
    assert measured(line, "tacit_received_bytes_total") == 3 * len(letter(1).frame)
    assert measured(line, "tacit_neighbour_up") == 1
    assert [one["event"] for one in said(line)] == ["connected"]


def test_the_next_letter_is_asked_for_before_it_is_waited_for(line, channel):
    """So that one neighbour works while another is waited for; and it is not asked twice."""
    channel.answers = [messages(1), messages(2)]
    receive(line, 1)
    address = Address(1, 2, 0)
    want = line.ask(address, -1)
    expected = Expected(letter(2).envelope, {"x": torch.empty(4)})
    line.receive(want, address, expected, lambda found: found, lambda: None)
    assert [one.address.tick for one in channel.wants] == [1, 2]


def test_what_the_check_makes_of_a_letter_is_returned(line, channel):
    channel.answers = [messages(1)]
    assert receive(line, 1, check=lambda found: {"sum": found["x"].sum()}) == {
        "sum": torch.tensor(4.0)
    }


@pytest.mark.parametrize("reason", ["codec", "not finite"])
def test_what_the_check_refuses_is_asked_for_again(line, channel, reason):
    channel.answers = [messages(1), messages(1)]
    refusals = [Rejected(reason, "not that")]

    def check(found):
        if refusals:
            raise refusals.pop()
        return found

    assert receive(line, 1, check)
    assert measured(line, "tacit_rejected_total", reason=reason) == 1
    assert channel.calls == ["Hello", "Letters"] * 2
    assert channel.streams[0].cancelled.is_set()


# --- neighbours that are away, or refuse us -------------------------------------------------------------------


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"])
def test_a_neighbour_that_is_away_is_asked_again(line, channel, code):
    heard, code = [], grpc.StatusCode[code]
    channel.answers = [
        [Failure(code, "nobody there")],
        [*messages(1)[:1], Failure(code)],
        messages(1),
    ]
    assert receive(
        line, 1, waiting=lambda: heard.append((line.heard, measured(line, "tacit_neighbour_up")))
    )
    assert heard == [("not reached", 0), ("not reached", 0)]
    assert line.heard == ""
    assert measured(line, "tacit_neighbour_up") == 1
    assert measured(line, "tacit_retries_total") == 2
    assert measured(line, "tacit_letters_received_total") == 1
    away = [one for one in said(line) if one["event"] == "neighbour not reached"]
    assert [(one["level"], one["why"]) for one in away] == [
        ("info", "nobody there")
    ]  # once in a while


def test_a_neighbour_that_refuses_us_is_asked_again_and_the_reason_logged(line, channel):
    answers = [Failure(REFUSED, "another manifest"), Failure(UNAVAILABLE)]
    heard = []

    def hello(raw):
        if answers:
            raise answers.pop(0)
        return raw

    channel.replies["Hello"] = hello
    channel.answers = [messages(1)]
    assert receive(line, 1, waiting=lambda: heard.append(line.heard))
    assert heard == ["refuses us: another manifest", "not reached"]
    (refusal,) = [one for one in said(line) if one["event"] == "refused by neighbour"]
    assert (refusal["level"], refusal["code"], refusal["why"]) == (
        "warning", "FAILED_PRECONDITION", "another manifest",
    )  # fmt: skip
    assert channel.calls == ["Hello", "Hello", "Hello", "Letters"]


def test_a_long_refusal_is_cut_short(line, channel):
    heard = []
    channel.answers = [[Failure(REFUSED, "x" * 100_000)], messages(1)]
    assert receive(line, 1, waiting=lambda: heard.append(line.heard))
    assert len(heard[0]) < 300
    assert all(len(json.dumps(one)) < 1000 for one in said(line))


def test_pauses_grow_to_a_limit(line, channel, monkeypatch):
    pauses = []
    monkeypatch.setattr(module, "QUICK", QUICK)
    monkeypatch.setattr(
        module.random, "uniform", lambda low, high: (low, high) == (0.5, 1.0) and high
    )
    monkeypatch.setattr(line._cancelled, "wait", pauses.append)
    channel.answers = [
        *[[Failure(UNAVAILABLE)]] * 30,
        messages(1),
        [Failure(UNAVAILABLE)],
        messages(2),
    ]
    receive(line, 1)
    assert pauses[:7] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0])
    assert set(pauses[6:]) == {SLOW}
    pauses.clear()
    receive(line, 2)
    assert pauses == [QUICK]  # what was before the last letter is forgotten


# --- notices --------------------------------------------------------------------------------------------------


def test_notices_say_where_the_neighbour_is(line, channel):
    heard = []
    notes = [
        wire.Notice(generation=1, tick=4),
        wire.Notice(generation=1, tick=5, waiting_for=["c", "d"]),
        wire.Notice(generation=1, tick=6, waiting_for=["x" * 10_000]),
    ]
    channel.answers = [[*map(notice_piece, notes), *messages(7)]]
    assert receive(line, 7, waiting=lambda: heard.append(line.heard))
    assert heard[:2] == ["at iteration 4", "at iteration 5, waiting for c, d"]
    assert len(heard[2]) < 200
    assert channel.calls == ["Hello", "Letters"]


def test_a_notice_of_another_generation_leads_back_to_the_greeting(line, channel):
    channel.answers = [[notice_piece(wire.Notice(generation=2)), *messages(1)], messages(1)]
    assert receive(line, 1)
    assert channel.calls == ["Hello", "Letters"] * 2
    assert line._desk.metrics.total("tacit_rejected_total") == 0  # it happens when a roster changes


# --- rosters --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def later(home, tmp_path_factory):
    """After c has left."""
    folder = tmp_path_factory.mktemp("line") / "later"
    shutil.copytree(home.path, folder)
    remove(folder, "c")
    return FederationFolder(folder)


def test_a_neighbour_with_an_older_roster_is_given_ours(later, channel):
    line = make_line(later)
    generations, given = [1, 2], []

    def hello(raw):
        greeting = wire.Greeting.FromString(raw)
        greeting.generation = generations.pop(0)
        return greeting.SerializeToString()

    channel.replies |= {"Hello": hello, "Announce": lambda raw: given.append(raw) or b""}
    channel.answers = [messages(1)]
    assert receive(line, 1)
    assert channel.calls == ["Hello", "Announce", "Hello", "Letters"]
    (signed,) = map(wire.SignedManifest.FromString, given)
    assert (signed.manifest, signed.signature) == later.signed()


def test_a_newer_roster_is_asked_for_and_taken(home, later, line, channel):
    def hello(raw):
        greeting = wire.Greeting.FromString(raw)
        greeting.generation = 2
        return greeting.SerializeToString()

    text, signature = later.signed()
    signed = wire.SignedManifest(manifest=text, signature=signature).SerializeToString()
    channel.replies |= {"Hello": hello, "Roster": lambda raw: signed}
    line._desk.on_interrupt(line.cancel)
    with pytest.raises(Stopped):
        receive(line, 1)
    assert channel.calls == ["Hello", "Roster"]
    assert (line._desk.newer.text, line._desk.newer.signature) == (text, signature)


# --- leaving --------------------------------------------------------------------------------------------------


def test_a_line_that_was_cancelled_asks_nothing(line, channel):
    line.cancel()
    with pytest.raises(Stopped):
        receive(line, 1)
    assert channel.calls == []


@pytest.mark.parametrize("before", [[], [notice_piece(wire.Notice(generation=1))], messages(1)[:1]])
def test_waiting_ends_when_it_is_cancelled(line, channel, before):
    channel.answers = [[*before, HANG]]
    threading.Thread(target=lambda: channel.hanging.wait(60) and line.cancel(), daemon=True).start()
    with pytest.raises(Stopped):
        receive(line, 1)
    assert [one["event"] for one in said(line)] == [
        "connected"
    ]  # leaving is no failure of the neighbour


def test_closing_gives_the_connection_up(line, channel):
    channel.answers = [messages(1)]
    receive(line, 1)
    line.close()
    assert channel.closed
    assert channel.streams[0].cancelled.is_set()


def test_a_farewell_is_said_until_it_is_noted(line, channel):
    answers = [Failure(UNAVAILABLE), Failure(REFUSED, "not the end")]
    said_so = []

    def farewell(raw):
        if answers:
            raise answers.pop(0)
        said_so.append(wire.Ended.FromString(raw))
        return b""

    channel.replies["Farewell"] = farewell
    assert [line.say_farewell(1, 100) for _ in range(3)] == [False, False, True]
    assert [(one.generation, one.tick) for one in said_so] == [(1, 100)]
    # Who does not note it may go by another roster: that comes out by a greeting.
    assert channel.calls == ["Farewell", "Farewell", "Hello", "Farewell"]


# --- streams that end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ([END], "truncated"),
        ([*messages(1)[:-1], END], "truncated"),
        (messages(2), "iteration"),
        ([b"\x00"], "malformed"),
        ([*messages(1)[:1] * 2], "malformed"),
        ([messages(1)[1]], "malformed"),
    ],
)
def test_what_is_not_the_letter_is_counted_and_asked_for_again(line, channel, first, reason):
    channel.answers = [first, messages(1)]
    assert receive(line, 1)
    assert measured(line, "tacit_rejected_total", reason=reason) == 1
    assert channel.calls == ["Hello", "Letters"] * 2
    (refusal,) = [one for one in said(line) if one["event"] == "rejected"]
    assert (refusal["sender"], refusal["reason"]) == ("b", reason)
