"""The client of a neighbour over fake connections: requests, retries and reports."""

import errno
import io
import itertools
import json
import shutil
import ssl
import threading

import pytest
import torch

from tacit.config.loading import make_config
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.membership import change_address, revoke
from tacit.peer.federation.operator import create, remove
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node import member_channel, neighbour_client as module
from tacit.peer.node.neighbour_client import MAX_PAUSE, MIN_PAUSE, NeighbourClient
from tacit.peer.node.node_state import ActiveRoster, NodeState, Stopped
from tacit.peer.node.plausible_values import check_values
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.message_stream import MessageStream, to_wire
from tacit.peer.wire.messages import Envelope, ExchangeId, ExpectedMessage, Rejected, pack
from tacit.peer.wire.transport import SERVICE, grpc

CONFIG = make_config(
    {"algorithm": {"name": "lppa", "lr": 0.05}, "run": {"iterations_per_round": 5}}
)
UNAVAILABLE, REFUSED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION
# What happens on a fake stream: nothing more arrives, or it ends.
HANG, END = object(), object()


class Failure(grpc.RpcError):
    """A call that failed."""

    def __init__(self, code, why="it did not work"):
        super().__init__(why)
        self.code, self.details = (lambda: code), (lambda: why)


class FakeConnection:
    """Answers each request with the next list of pieces; raises the exceptions in it."""

    def __init__(self, channel):
        self._channel, self._pieces, self._arrived = channel, iter(()), b""
        self.aborted = threading.Event()

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
            if piece is HANG:
                self._channel.hanging.set()
                assert self.aborted.wait(60)
                return 0
            if piece is END:
                return 0
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
        self._connection.aborted.set()


class FakeChannel:
    """Channel and streams to a neighbour; `answers` has what arrives after each request."""

    def __init__(self):
        self.answers, self.requests, self.calls, self.streams = [], [], [], []
        self.events = []  # streams that were closed
        self.open_errors, self.send_errors = [], []  # raised in turn
        self.replies = {
            "Hello": lambda raw: raw,
            "AnnounceManifest": lambda raw: b"",
            "NotifyFinished": lambda raw: b"",
        }
        self.hanging, self.closed = threading.Event(), False

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
        self.streams.append(FakeStream(FakeConnection(self)))
        return self.streams[-1]

    def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    nodes = {name: f"127.0.0.1:{7500 + i}" for i, name in enumerate("abc")}
    return create(
        tmp_path_factory.mktemp("client") / "f", "clinics", nodes, CONFIG, min_neighbours=1
    )


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


def refusal_of(code, text):
    return framed(wire.StreamAnswer(refusal=wire.Refusal(code=code, text=text)))


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


def test_a_message_is_requested_once_and_before_waiting_for_it(client, channel):
    channel.answers = [chunks(1), chunks(2)]
    receive(client, 1)
    client.request(ExchangeId(1, 2, 0), -1)
    client.receive(expected(2), lambda found: found, lambda: None)
    assert [one.exchange.tick for one in channel.requests] == [1, 2]


def test_the_decoded_message_is_returned(client, channel):
    channel.answers = [chunks(1)]
    found = receive(client, 1, decode=lambda found: {"sum": found["x"].sum()})
    assert found == {"sum": torch.tensor(4.0)}


@pytest.mark.parametrize("reason", ["codec", "not finite"])
def test_a_message_that_cannot_be_decoded_is_requested_again(client, channel, reason):
    channel.answers = [chunks(1), chunks(1)]
    problems = [Rejected(reason, "not that")]

    def decode(found):
        if problems:
            raise problems.pop()
        return found

    assert receive(client, 1, decode)
    assert metric(client, "tacit_rejected_total", reason=reason) == 1
    assert channel.calls == ["Hello", "stream"] * 2
    assert channel.events == ["close"]


# --- neighbours that stall, or send what must be refused ------------------------------------------


@pytest.mark.parametrize("arrived", [0, 1, 2], ids=["nothing", "a header", "half a message"])
def test_a_stream_that_falls_silent_is_left(client, channel, arrived):
    timeout = TimeoutError("The read operation timed out")
    channel.answers = [[*chunks(1)[:arrived], timeout], chunks(1)]
    found = receive(client, 1)
    assert torch.equal(found["x"], torch.ones(4))
    assert metric(client, "tacit_rejected_total", reason="stalled") == 1
    (line,) = logged(client, "rejected")
    assert (line["sender"], line["reason"]) == ("b", "stalled")
    assert line["why"] == "the stream stalled: The read operation timed out"


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


@pytest.mark.parametrize("arrived", [0, 1, 2])
@pytest.mark.parametrize("problem", [ConnectionResetError(104, "reset"), BrokenPipeError(32, "")])
def test_a_broken_stream_is_opened_again(client, channel, problem, arrived):
    reports = []
    channel.answers = [[*chunks(1)[:arrived], problem], chunks(1)]
    assert receive(client, 1, on_wait=lambda: reports.append(client.report))
    assert reports == ["not reached"]
    assert channel.calls == ["Hello", "stream"] * 2
    assert metric(client, "tacit_retries_total") == 1
    assert client._state.metrics.total("tacit_rejected_total") == 0
    (line,) = logged(client, "neighbour not reached")
    assert line["why"] == str(problem)


def test_a_neighbour_that_restarts_has_sent_nothing_wrong(client, channel):
    """It closes its streams; a message was not cut."""
    channel.answers = [[notice_of(generation=1), END], chunks(1)]
    assert receive(client, 1)
    assert client._state.metrics.total("tacit_rejected_total") == 0
    (line,) = logged(client, "neighbour not reached")
    assert (line["level"], line["why"]) == ("info", "the stream ended before the message")


def test_a_stream_that_cannot_be_opened_is_tried_again(client, channel):
    channel.open_errors = [ConnectionRefusedError(111, "Connection refused"), TimeoutError("slow")]
    channel.answers = [chunks(1)]
    assert receive(client, 1)
    assert channel.calls == ["Hello", "stream"] * 3
    (line,) = logged(client, "neighbour not reached")
    assert "Connection refused" in line["why"]


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


def test_a_neighbour_that_rejects_our_certificate_is_named(client, channel):
    """In TLS 1.3 a client learns that with its first read."""
    alert = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] alert")
    channel.answers = [[alert], chunks(1)]
    assert receive(client, 1)
    (line,) = logged(client, "rejected by neighbour")
    assert line["code"] == "UNKNOWN"
    assert "ALERT" in line["why"]


def test_a_refusal_is_logged_and_the_stream_opened_again(client, channel):
    reports = []
    channel.answers = [[refusal_of("OUT_OF_RANGE", "iteration 1 of 0"), END], chunks(1)]
    assert receive(client, 1, on_wait=lambda: reports.append(client.report))
    assert reports == ["rejects us: iteration 1 of 0"]
    assert channel.calls == ["Hello", "stream"] * 2
    (line,) = logged(client, "rejected by neighbour")
    assert (line["level"], line["code"]) == ("warning", "OUT_OF_RANGE")
    assert line["why"] == "iteration 1 of 0"
    assert client._state.metrics.total("tacit_rejected_total") == 0


def test_invented_codes_of_refusals_do_not_fill_the_log(client, channel, monkeypatch):
    monkeypatch.setattr(client._cancelled, "wait", lambda seconds: None)
    refusals = [[refusal_of(f"code {i}" * 100, "no")] for i in range(20)]
    channel.answers = [*refusals, chunks(1)]
    assert receive(client, 1)
    (line,) = logged(client, "rejected by neighbour")
    assert line["code"] == "UNKNOWN"


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


def test_a_long_error_is_cut(client, channel):
    reports = []
    channel.answers = [[refusal_of("FAILED_PRECONDITION", "x" * 16_000)], chunks(1)]
    assert receive(client, 1, on_wait=lambda: reports.append(client.report))
    assert len(reports[0]) < 300
    assert all(len(json.dumps(line)) < 1000 for line in logged(client))


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


def test_a_notice_of_another_generation_leads_to_another_hello(client, channel):
    notice = notice_of(generation=2)
    channel.answers = [[notice, *chunks(1)], chunks(1)]
    assert receive(client, 1)
    assert channel.calls == ["Hello", "stream"] * 2
    # It is normal while a roster changes.
    assert client._state.metrics.total("tacit_rejected_total") == 0


# --- rosters ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def later(home, tmp_path_factory):
    """The federation after c was removed."""
    folder = tmp_path_factory.mktemp("client") / "later"
    shutil.copytree(home.path, folder)
    remove(folder, "c")
    return FederationFolder(folder)


def hello_of(generations):
    """A Hello that claims these generations, one after the other."""

    def hello(raw):
        info = wire.NodeInfo.FromString(raw)
        info.generation = next(generations)
        return info.SerializeToString()

    return hello


def test_a_neighbour_with_an_older_roster_gets_ours(later, channel):
    client = make_client(later)
    announced = []
    channel.replies["Hello"] = hello_of(iter([1, 2]))
    channel.replies["AnnounceManifest"] = lambda raw: announced.append(raw) or b""
    channel.answers = [chunks(1)]
    assert receive(client, 1)
    assert channel.calls == ["Hello", "AnnounceManifest", "Hello", "stream"]
    (signed,) = map(wire.SignedManifest.FromString, announced)
    assert (signed.manifest, signed.signature, signed.log) == later.signed_update()


def test_a_newer_roster_is_fetched_and_announced(home, later, channel, tmp_path):
    # A copy, because the node stores the log.
    client = make_client(FederationFolder(shutil.copytree(home.path, tmp_path / "ours")))
    text, signature, log = later.signed_update()
    signed = wire.SignedManifest(manifest=text, signature=signature, log=log).SerializeToString()
    channel.replies |= {"Hello": hello_of(iter([2])), "GetManifest": lambda raw: signed}
    client._state.on_interrupt(client.cancel)
    with pytest.raises(Stopped):
        receive(client, 1)
    assert channel.calls == ["Hello", "GetManifest"]
    announced = client._state.announced
    assert (announced.manifest.text, announced.signature) == (text, signature)


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


def test_a_longer_log_is_fetched_without_an_interruption(home, channel, tmp_path):
    changed = with_longer_log(home, tmp_path)
    client = make_client(FederationFolder(shutil.copytree(home.path, tmp_path / "ours")))
    signed = signed_update(changed)
    channel.replies["Hello"] = longer_log_of(changed)
    channel.replies["GetManifest"] = lambda raw: signed.SerializeToString()
    channel.answers = [chunks(1)]
    assert receive(client, 1)
    assert channel.calls == ["Hello", "GetManifest", "Hello", "stream"]
    state = client._state
    assert state.changes.log == state.folder.log() == changed.log()
    assert state.changes.address(state.manifest.member("c"), state.manifest) == "127.0.0.1:7599"
    assert state.announced is None


def test_a_neighbour_with_a_shorter_log_gets_ours(home, channel, tmp_path):
    changed = with_longer_log(home, tmp_path)
    client, announced = make_client(changed), []

    def hello(raw):
        info = wire.NodeInfo.FromString(raw)
        info.log_entries, info.log_head = home.log().number, bytes.fromhex(home.log().head)
        return info.SerializeToString()

    channel.replies["Hello"] = hello
    channel.replies["AnnounceManifest"] = lambda raw: announced.append(raw) or b""
    channel.answers = [chunks(1)]
    assert receive(client, 1)
    assert channel.calls == ["Hello", "AnnounceManifest", "stream"]
    assert wire.SignedManifest.FromString(announced[0]).log == changed.log().text


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


def test_a_cancelled_client_makes_no_call(client, channel):
    client.cancel()
    with pytest.raises(Stopped):
        receive(client, 1)
    assert channel.calls == []


@pytest.mark.parametrize("before", [[], [notice_of(generation=1)], chunks(1)[:1], chunks(1)[:2]])
def test_waiting_ends_when_it_is_cancelled(client, channel, before):
    channel.answers = [[*before, HANG]]

    def cancel():
        assert channel.hanging.wait(60)
        client.cancel()

    threading.Thread(target=cancel, daemon=True).start()
    with pytest.raises(Stopped):
        receive(client, 1)
    # Cancelling is not logged as a failure of the neighbour.
    assert [line["event"] for line in logged(client)] == ["connected"]
    assert client._state.metrics.total("tacit_rejected_total") == 0


def test_a_stream_that_opens_after_the_end_is_aborted(client, channel, monkeypatch):
    def open_late(*_):
        client.cancel()
        return channel.open_stream()

    monkeypatch.setattr(member_channel, "open_stream", open_late)
    channel.answers = [[HANG]]
    with pytest.raises(Stopped):
        receive(client, 1)
    assert channel.streams[0]._connection.aborted.is_set()


def test_close_closes_the_channel(client, channel):
    channel.answers = [chunks(1)]
    receive(client, 1)
    client.close()
    assert channel.closed
    assert channel.events == ["close"]
    assert channel.streams[0]._connection.aborted.is_set()


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


# --- streams that end -----------------------------------------------------------------------------


EMPTY = framed(wire.StreamAnswer())
OTHER_SIZE = pack(message(1).envelope, {"x": torch.zeros(5)})
DAMAGED = bytes([message(1).frame[0] ^ 1])


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ([framed(wire.StreamAnswer(notice=wire.ProgressNotice(tick=1)))[:-1], END], "truncated"),
        ([chunks(1)[0], END], "truncated"),
        ([*chunks(1)[:-1], END], "truncated"),
        (chunks(2), "iteration"),
        (pieces(OTHER_SIZE), "size"),
        ([chunks(1)[0], DAMAGED, message(1).frame[1:]], "checksum"),
        ([b"\x01\x00\x00\x00\x00"], "malformed"),
        ([b"\xff\xff\xff\xff"], "malformed"),
        ([EMPTY], "malformed"),
        ([message(1).frame[1:]], "malformed"),
    ],
)
def test_anything_but_the_message_is_counted_and_requested_again(client, channel, first, reason):
    channel.answers = [first, chunks(1)]
    assert receive(client, 1)
    assert metric(client, "tacit_rejected_total", reason=reason) == 1
    assert channel.calls == ["Hello", "stream"] * 2
    (line,) = logged(client, "rejected")
    assert (line["sender"], line["reason"]) == ("b", reason)


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


def test_nothing_is_requested_early_without_a_stream(client, channel):
    client.request_early(ExchangeId(1, 1, 0), -1)
    assert channel.calls == channel.requests == []
    channel.answers = [chunks(1)]
    assert receive(client, 1)
    assert requested(channel) == [1]


def test_only_one_message_is_requested_early(client, channel):
    channel.answers = [chunks(1), chunks(2), chunks(3)]
    receive(client, 1)
    client.request_early(ExchangeId(1, 2, 0), -1)
    client.request_early(ExchangeId(1, 3, 0), -1)
    assert requested(channel) == [1, 2]


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


def test_an_early_request_on_a_broken_stream_is_repeated(client, channel):
    channel.answers = [chunks(1), [ConnectionResetError()], chunks(2)]
    receive(client, 1)
    client.request_early(ExchangeId(1, 2, 0), -1)
    receive(client, 2)
    assert requested(channel) == [1, 2, 2]


# --- changes by the operator ----------------------------------------------------------------------


@pytest.fixture
def followed(home, channel, tmp_path):
    """A client, and a function that moves its neighbour to another address."""
    client = make_client(FederationFolder(shutil.copytree(home.path, tmp_path / "ours")))
    operator = shutil.copytree(home.path, tmp_path / "operator")

    def move():
        changed = change_address(operator, "b", "127.0.0.1:7598")
        assert client._state.changes.update(changed.signed_update()[2])

    return client, move


def test_a_neighbour_that_moves_is_called_at_its_new_address(followed, channel):
    client, move = followed

    def follow():
        assert channel.hanging.wait(60)
        move()

    threading.Thread(target=follow, daemon=True).start()
    channel.answers = [[HANG], chunks(1)]
    assert receive(client, 1)
    assert channel.calls == ["Hello", "stream"] * 2
    assert client._state.metrics.total("tacit_rejected_total") == 0


def test_a_change_while_the_stream_opens_is_not_missed(followed, channel, monkeypatch):
    """It may be a revocation of what the neighbour has just shown."""
    client, move = followed
    opened = []

    def open_late(address, *_):
        opened.append(address)
        if len(opened) == 1:
            move()
        return channel.open_stream()

    monkeypatch.setattr(member_channel, "open_stream", open_late)
    channel.answers = [[HANG], chunks(1)]
    assert receive(client, 1)
    assert opened == ["127.0.0.1:7501", "127.0.0.1:7598"]
