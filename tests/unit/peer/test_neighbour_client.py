"""The client of a neighbour over fake connections: requests, retries and reports."""

import errno
import io
import itertools
import json
import shutil
import ssl

import pytest
import torch

from support.clinics import clinics
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.membership import change_address, revoke
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node import member_channel, neighbour_client as module
from tacit.peer.node.neighbour_client import MAX_PAUSE, MIN_PAUSE, NeighbourClient
from tacit.peer.node.node_state import ActiveRoster, NodeState, Stopped
from tacit.peer.node.plausible_values import check_values
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.message_stream import MessageStream, to_wire
from tacit.peer.wire.messages import Envelope, ExchangeId, ExpectedMessage, pack
from tacit.peer.wire.transport import SERVICE, grpc

UNAVAILABLE, REFUSED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION


class Failure(grpc.RpcError):
    """A call that failed."""

    def __init__(self, code, why="it did not work"):
        super().__init__(why)
        self.code, self.details = (lambda: code), (lambda: why)


class FakeConnection:
    """Answers each request with the next list of pieces; raises the exceptions in it."""

    def __init__(self, channel):
        self._channel, self._pieces, self._arrived = channel, iter(()), b""

    def sendall(self, frame):
        if self._channel.send_errors:
            raise self._channel.send_errors.pop(0)
        size, body = int.from_bytes(frame[:4], "little"), frame[4:]
        assert size == len(body)
        self._channel.requests.append(wire.FetchRequest.FromString(body))
        self._pieces = itertools.chain(self._pieces, self._channel.answers.pop(0))

    def recv_into(self, view, size=None):
        if not self._arrived:
            piece = next(self._pieces)
            if isinstance(piece, Exception):
                raise piece
            self._arrived = piece
        size = min(len(view), len(self._arrived))
        view[:size], self._arrived = self._arrived[:size], self._arrived[size:]
        return size

    def close(self):
        self._channel.events.append("close")


class FakeStream(MessageStream):
    def abort(self):
        pass


class FakeChannel:
    """Channel and streams to a neighbour; `answers` has what arrives after each request."""

    def __init__(self):
        self.answers, self.requests, self.calls = [], [], []
        self.events = []  # streams that were closed
        self.open_errors, self.send_errors = [], []  # raised in turn
        self.replies = {
            "Hello": lambda raw: raw,
            "AnnounceManifest": lambda raw: b"",
            "NotifyFinished": lambda raw: b"",
        }

    def unary_unary(self, path):
        method = path.removeprefix(f"/{SERVICE}/")

        def call(raw, timeout):
            assert 0 < timeout <= module.CALL_TIMEOUT
            self.calls.append(method)
            return self.replies[method](raw)

        return call

    def open_stream(self, *_):
        self.calls.append("stream")
        if self.open_errors:
            raise self.open_errors.pop(0)
        return FakeStream(FakeConnection(self))

    def close(self):
        pass


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return clinics(tmp_path_factory.mktemp("client") / "f", min_neighbours=1)


@pytest.fixture
def channel(monkeypatch):
    fake = FakeChannel()
    monkeypatch.setattr(member_channel, "open_channel", lambda *_: fake)
    monkeypatch.setattr(member_channel, "open_stream", fake.open_stream)
    monkeypatch.setattr(module, "MIN_PAUSE", 0.001)
    return fake


@pytest.fixture
def client(home, channel):
    return make_client(home)


def make_client(home):
    node = home.node("a")
    manifest = node.manifest()
    active = ActiveRoster.load(node, "a", manifest)
    state = NodeState(node, "a", active, EventLog(io.StringIO(), "a"), 4, "torch.float32")
    return NeighbourClient(state, manifest.member("b"))


def message(tick):
    envelope = Envelope("f", "b", "", ExchangeId(1, tick, 0))
    return pack(envelope, {"x": torch.full((4,), float(tick))})


def framed(answer):
    """An answer as it arrives."""
    body = answer.SerializeToString()
    return len(body).to_bytes(4, "little") + body


def pieces(sent):
    """A message as it arrives: its header, then its bytes in parts."""
    header = wire.MessageHeader(
        exchange=to_wire(sent.envelope.exchange), size=len(sent.frame), sha256=sent.sha256
    )
    parts = [sent.frame[at : at + 64] for at in range(0, len(sent.frame), 64)]
    return [framed(wire.StreamAnswer(header=header)), *parts]


def chunks(tick):
    return pieces(message(tick))


def notice_of(**fields):
    return framed(wire.StreamAnswer(notice=wire.ProgressNotice(**fields)))


def expected(tick):
    return ExpectedMessage(message(tick).envelope, {"x": torch.empty(4)})


def receive(client, tick, decode=lambda found: found, on_wait=lambda: None, saved=-1):
    client.request(ExchangeId(1, tick, 0), saved)
    return client.receive(expected(tick), decode, on_wait)


def metric(client, name, **labels):
    return client._state.metrics.value(name, **(labels or {"neighbour": "b"}))


def logged(client, event=None):
    lines = map(json.loads, client._state.event_log._stream.getvalue().splitlines())
    return [line for line in lines if event in (None, line["event"])]


# --- messages -----------------------------------------------------------------------------------


def test_messages_come_over_one_stream_after_one_hello(client, channel):
    channel.answers = [chunks(1), chunks(2), chunks(3)]
    for tick in (1, 2, 3):
        found = receive(client, tick, saved=tick - 5)
        assert torch.equal(found["x"], torch.full((4,), float(tick)))
    assert channel.calls == ["Hello", "stream"]
    requests = channel.requests
    assert [(one.exchange.generation, one.exchange.tick, one.saved_tick) for one in requests] == [
        (1, 1, -4), (1, 2, -3), (1, 3, -2),
    ]  # fmt: skip
    assert {one.manifest_sha256 for one in requests} == {client._state.manifest.hash}
    assert metric(client, "tacit_messages_received_total") == 3
    assert metric(client, "tacit_received_bytes_total") == 3 * len(message(1).frame)
    assert metric(client, "tacit_neighbour_up") == 1
    assert [line["event"] for line in logged(client)] == ["connected"]


# --- neighbours that stall, or send what must be refused ------------------------------------------


def test_a_neighbour_whose_machine_is_gone_is_not_reached(client, channel):
    """TCP finds out; the error is a TimeoutError too."""
    gone = TimeoutError(errno.ETIMEDOUT, "Connection timed out")
    channel.answers = [[gone], chunks(1)]
    assert receive(client, 1)
    assert client._state.metrics.total("tacit_rejected_total") == 0
    (line,) = logged(client, "neighbour not reached")
    assert "Connection timed out" in line["why"]


def test_a_message_that_is_refused_again_and_again_is_asked_for_ever_less_often(
    client, channel, monkeypatch
):
    pauses, problems = [], []
    monkeypatch.setattr(module, "MIN_PAUSE", MIN_PAUSE)
    monkeypatch.setattr(module.random, "uniform", lambda low, high: high)
    monkeypatch.setattr(client._cancelled, "wait", pauses.append)
    nan = pack(message(1).envelope, {"x": torch.full((4,), float("nan"))})
    channel.answers = [*[pieces(nan)] * 20, chunks(1)]

    def decode(found):
        check_values(found, {})
        return found

    assert receive(client, 1, decode, on_wait=lambda: problems.append(client.refusal))
    assert problems[:2] == ["", ""]
    assert set(problems[2:]) == {"refuses a message of b: x holds NaN or infinity"}
    assert pauses[-1] == module.MAX_REFUSED_PAUSE > MAX_PAUSE
    assert client.refusal == ""
    (line,) = logged(client, "message refused")
    assert (line["level"], line["sender"], line["reason"]) == ("error", "b", "not finite")
    assert "tacit federation remove FOLDER b" in line["remedy"]


# --- neighbours that are unreachable, or reject us ------------------------------------------------


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"])
def test_an_unreachable_neighbour_is_called_again(client, channel, code):
    reports, code = [], grpc.StatusCode[code]
    failures = [Failure(code, "no answer"), Failure(code)]

    def hello(raw):
        if failures:
            raise failures.pop(0)
        return raw

    def on_wait():
        reports.append((client.report, metric(client, "tacit_neighbour_up")))

    channel.replies["Hello"], channel.answers = hello, [chunks(1)]
    assert receive(client, 1, on_wait=on_wait)
    assert reports == [("not reached", 0), ("not reached", 0)]
    assert client.report == ""
    assert metric(client, "tacit_neighbour_up") == 1
    assert metric(client, "tacit_retries_total") == 2
    assert metric(client, "tacit_messages_received_total") == 1
    (line,) = logged(client, "neighbour not reached")
    assert (line["level"], line["why"]) == ("info", "no answer")
    assert "Check that b runs at 127.0.0.1:7501" in line["remedy"]


@pytest.mark.parametrize(
    ("why", "report", "remedy"),
    [
        ("certificate has expired", "its certificate has expired", "renew FOLDER b"),
        ("unable to get issuer", "its certificate is not of our authority", "Check that b runs at"),
        ("Hostname mismatch", "its certificate is not of our authority", "Check that b runs at"),
    ],
)
def test_a_certificate_that_tls_rejects_is_named(client, channel, why, report, remedy):
    text = f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {why} (_ssl.c:1006)"
    reports, channel.open_errors = [], [ssl.SSLCertVerificationError(1, text)]
    channel.answers = [chunks(1)]
    assert receive(client, 1, on_wait=lambda: reports.append(client.report))
    assert reports == [report]
    (line,) = logged(client, "certificate rejected")
    assert line["level"] == "warning"
    assert remedy in line["remedy"]


def test_a_neighbour_that_rejects_us_is_called_again_and_the_reason_logged(client, channel):
    answers = [Failure(REFUSED, "another manifest"), Failure(UNAVAILABLE)]
    reports = []

    def hello(raw):
        if answers:
            raise answers.pop(0)
        return raw

    channel.replies["Hello"] = hello
    channel.answers = [chunks(1)]
    assert receive(client, 1, on_wait=lambda: reports.append(client.report))
    assert reports == ["rejects us: another manifest", "not reached"]
    (line,) = logged(client, "rejected by neighbour")
    assert (line["level"], line["code"]) == ("warning", "FAILED_PRECONDITION")
    assert line["why"] == "another manifest"
    assert channel.calls == ["Hello", "Hello", "Hello", "stream"]


def test_pauses_grow_to_a_limit(client, channel, monkeypatch):
    pauses = []
    monkeypatch.setattr(module, "MIN_PAUSE", MIN_PAUSE)
    monkeypatch.setattr(module.random, "uniform", lambda low, high: (low, high) == (0.5, 1.0))
    monkeypatch.setattr(client._cancelled, "wait", pauses.append)
    failure = [ConnectionResetError()]
    channel.answers = [*[failure] * 30, chunks(1), failure, chunks(2)]
    receive(client, 1)
    assert pauses[:7] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0])
    assert set(pauses[6:]) == {MAX_PAUSE}
    pauses.clear()
    receive(client, 2)
    # A received message resets the pauses.
    assert pauses == [MIN_PAUSE]


# --- notices ------------------------------------------------------------------------------------


def test_notices_report_the_progress_of_the_neighbour(client, channel):
    reports = []
    notices = [
        notice_of(generation=1, tick=4),
        notice_of(generation=1, tick=5, waiting_for=["c", "d"]),
        notice_of(generation=1, tick=6, waiting_for=["x" * 10_000]),
    ]
    channel.answers = [[*notices, *chunks(7)]]
    assert receive(client, 7, on_wait=lambda: reports.append(client.report))
    # d is no member: an invented name is not shown.
    assert reports[:2] == ["at iteration 4", "at iteration 5, says it waits for c"]
    assert len(reports[2]) < 200
    assert channel.calls == ["Hello", "stream"]


# --- rosters ------------------------------------------------------------------------------------


def with_longer_log(home, tmp_path):
    """The same federation after the address of c has changed."""
    folder = tmp_path / "changed"
    shutil.copytree(home.path, folder)
    return change_address(folder, "c", "127.0.0.1:7599")


def signed_update(home):
    text, signature, log = home.signed_update()
    return wire.SignedManifest(manifest=text, signature=signature, log=log)


def longer_log_of(changed):
    """A Hello that claims the log of a federation."""

    def hello(raw):
        info = wire.NodeInfo.FromString(raw)
        info.log_entries = changed.log().number
        info.log_head = bytes.fromhex(changed.log().head)
        return info.SerializeToString()

    return hello


def test_a_false_claim_of_a_longer_log_is_rejected(home, channel, tmp_path):
    changed = with_longer_log(home, tmp_path)
    client = make_client(home)
    signed = signed_update(home)
    claims = iter([longer_log_of(changed), lambda raw: raw])
    channel.replies["Hello"] = lambda raw: next(claims)(raw)
    channel.replies["GetManifest"] = lambda raw: signed.SerializeToString()
    channel.answers = [chunks(1)]
    assert receive(client, 1)
    metrics = client._state.metrics
    assert metrics.value("tacit_rejected_total", reason="manifest") == 1
    assert channel.calls == ["Hello", "GetManifest", "Hello", "stream"]


@pytest.mark.parametrize("more", [0, 1])
def test_a_fork_of_the_log_is_named(home, channel, tmp_path, more):
    """The operator changed the federation in two copies of its folder."""
    ours, theirs = (FederationFolder(tmp_path / name) for name in ("ours", "theirs"))
    for number, copy in enumerate((ours, theirs)):
        shutil.copytree(home.path, copy.path)
        change_address(copy.path, "c", f"127.0.0.1:76{number:02}")
    if more:
        change_address(theirs.path, "b", "127.0.0.1:7650")
    client = make_client(ours)
    channel.replies["Hello"] = longer_log_of(theirs)
    channel.replies["GetManifest"] = lambda raw: signed_update(theirs).SerializeToString()
    with pytest.raises(Stopped):
        receive(client, 1, on_wait=client.cancel)
    assert "The operator's log forks at entry 5" in client.report
    assert channel.calls == ["Hello", "GetManifest"]
    assert client._state.changes.log == ours.log()


def test_no_call_is_made_to_a_revoked_neighbour(home, channel, tmp_path):
    folder = tmp_path / "revoked"
    shutil.copytree(home.path, folder)
    revoke(folder, "b", keep=True)
    client = make_client(FederationFolder(folder))
    client._state.on_interrupt(client.cancel)

    def on_wait():
        assert client.report.startswith("its certificate is revoked")
        client._state.request_stop()

    with pytest.raises(Stopped):
        receive(client, 1, on_wait=on_wait)
    assert channel.calls == []


# --- the end ------------------------------------------------------------------------------------


def test_a_neighbour_is_notified_until_it_has_noted_the_end(client, channel):
    answers = [Failure(UNAVAILABLE), Failure(REFUSED, "not the end")]
    noted = []

    def notify(raw):
        if answers:
            raise answers.pop(0)
        noted.append(wire.Finished.FromString(raw))
        return b""

    channel.replies["NotifyFinished"] = notify
    assert [client.notify_finished(1, 100) for _ in range(3)] == [False, False, True]
    assert [(one.generation, one.tick) for one in noted] == [(1, 100)]
    # A neighbour that refuses may use another roster, which a Hello finds out.
    assert channel.calls == ["NotifyFinished", "NotifyFinished", "Hello", "NotifyFinished"]


# --- requests before their time -------------------------------------------------------------------


def requested(channel):
    return [one.exchange.tick for one in channel.requests]


def test_an_early_request_is_used(client, channel):
    channel.answers = [chunks(1), chunks(2), chunks(3)]
    receive(client, 1)
    client.request_early(ExchangeId(1, 2, 0), -1)
    assert requested(channel) == [1, 2]
    receive(client, 2)
    receive(client, 3)
    assert requested(channel) == [1, 2, 3]
    assert channel.calls == ["Hello", "stream"]


def test_a_wrong_guess_opens_the_stream_again(client, channel):
    channel.answers = [chunks(1), chunks(2), chunks(3)]
    receive(client, 1)
    client.request_early(ExchangeId(1, 2, 0), -1)
    found = receive(client, 3)
    assert torch.equal(found["x"], torch.full((4,), 3.0))
    assert requested(channel) == [1, 2, 3]
    assert channel.calls == ["Hello", "stream"] * 2
    # It is no failure of the neighbour.
    assert client._state.metrics.total("tacit_rejected_total") == 0
    assert metric(client, "tacit_retries_total") == 0


@pytest.mark.parametrize("early", [False, True])
def test_a_request_that_cannot_be_sent_is_sent_on_another_stream(client, channel, early):
    channel.answers = [chunks(1), chunks(2)]
    receive(client, 1)
    channel.send_errors = [BrokenPipeError(32, "Broken pipe")]
    if early:
        client.request_early(ExchangeId(1, 2, 0), -1)
    receive(client, 2)
    assert requested(channel) == [1, 2]
    assert channel.calls == ["Hello", "stream"] * 2
    assert channel.events == ["close"]
