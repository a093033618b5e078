"""Callers that abuse streams of messages: none crashes, stalls or fills a node, or learns more."""

import gc
import socket
import ssl
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
import torch
from federations import twin
from hostile import (
    TIMEOUT,
    IdleNode,
    RawStream,
    Receiving,
    ScriptedServer,
    always,
    fetched,
    framed,
    memory,
    receive,
    ring_of_five,
    same_names_elsewhere,
    tls,
)

from tacit.peer.federation.certificates import server_name
from tacit.peer.federation.membership import revoke
from tacit.peer.node import message_server
from tacit.peer.node.node_state import Stopped
from tacit.peer.wire import gate as gates, message_stream, wire_pb2 as wire
from tacit.peer.wire.message_stream import MAX_FRAME_BYTES, to_wire
from tacit.peer.wire.messages import Envelope, ExchangeId, ExpectedMessage, pack
from tacit.peer.wire.tls import HANDSHAKE, MESSAGES
from tacit.peer.wire.transport import SERVICE, open_channel

EXCHANGE = ExchangeId(1, 7, 0)
ROWS = {"theta": torch.arange(6.0)}
MEGABYTE = 1 << 20
MANY = 500


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return ring_of_five(tmp_path_factory.mktemp("streams") / "f")


@pytest.fixture(scope="module")
def other_home(home, tmp_path_factory):
    return same_names_elsewhere(home, tmp_path_factory.mktemp("streams") / "other")


@pytest.fixture
def node(home):
    node = IdleNode(home.node("n0"))
    node.state.active.outbox.put(message_of(home))
    return node


@pytest.fixture
def port(node):
    with node.served() as port:
        yield port


def message_of(home, rows=ROWS, receiver="", exchange=EXCHANGE):
    return pack(Envelope(home.manifest().federation, "n0", receiver, exchange), rows)


def request_of(home, exchange=EXCHANGE, **changes):
    values = {
        "exchange": to_wire(exchange),
        "manifest_sha256": home.manifest().hash,
        "saved_tick": -1,
    }
    return wire.FetchRequest(**values | changes).SerializeToString()


def own_of(home, name):
    return home.operator_credentials() if name == "operator" else home.node(name).credentials()


def check_served(home, port, name="n4"):
    """A neighbour gets its message."""
    found = fetched(port, own_of(home, name), request_of(home))
    assert found == message_of(home).frame


def wait_until(condition, what):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def streams():
    """The threads of this process that serve streams."""
    return sum(thread.name == "stream" for thread in threading.enumerate())


def check_ended(node):
    """Nothing is left of the streams."""
    wait_until(lambda: streams() == 0, "threads are left")
    metrics = node.state.metrics
    wait_until(lambda: "tacit_connections 0\n" in metrics.text(), "connections are left")


def is_closed(stream):
    """Whether the node has closed a stream, or does so while we wait."""
    stream.connection.settimeout(TIMEOUT)
    return stream.answer() is None


# --- who may open a stream ------------------------------------------------------------------------


def test_a_handshake_of_another_protocol_name_gets_no_messages(home, node, port):
    """The gate finds the name in the server name, but the server does not agree on it."""
    context = tls(own_of(home, "n2"), protocol="h2")
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as raw:
        name = "\x0etacit-messages"
        with suppress(OSError, ValueError), context.wrap_socket(raw, server_hostname=name) as one:
            one.sendall(framed(request_of(home)))
            assert message_of(home).frame not in one.recv(MEGABYTE)
    check_served(home, port)


def test_a_caller_that_was_revoked_before_is_refused(home, tmp_path):
    operator = twin(home, tmp_path / "operator")
    nodes = twin(operator, tmp_path / "nodes")
    revoke(operator.path, "n1", keep=True)
    node = IdleNode(nodes.node("n0"))
    node.state.active.outbox.put(message_of(nodes))
    node.state.changes.update(operator.log().text)
    with node.served() as port:
        refusal = fetched(port, own_of(nodes, "n1"), request_of(nodes))
        check_served(nodes, port)
    assert refusal.code == "PERMISSION_DENIED"
    assert "revoked this certificate of n1" in refusal.text
    assert node.rejected("revoked") == node.rejected() == 1


@contextmanager
def revocable(home, tmp_path, rows=ROWS):
    """A served node with a message, and a function that revokes n1 there."""
    operator = twin(home, tmp_path / "operator")
    nodes = twin(operator, tmp_path / "nodes")
    node = IdleNode(nodes.node("n0"))
    node.state.active.outbox.put(message_of(nodes, rows))

    def act():
        revoke(operator.path, "n1", keep=True)
        node.state.changes.update(operator.log().text)

    with node.served() as port:
        yield node, port, act


@pytest.mark.parametrize("moment", ["idle", "half a request", "waiting", "within a message"])
def test_a_caller_that_is_revoked_during_a_stream_is_cut_off(home, tmp_path, moment):
    large = {"theta": torch.zeros(4 * MEGABYTE)}  # more than the sockets hold
    with (
        revocable(home, tmp_path, large) as (node, port, revoke_now),
        RawStream(port, own_of(home, "n1")) as stream,
    ):
        received = 0
        if moment == "half a request":
            stream.send(framed(request_of(home))[:9])
        elif moment == "waiting":
            stream.send(framed(request_of(home, ExchangeId(1, 50, 0))))
            assert stream.answer().HasField("notice")
        elif moment == "within a message":
            stream.send(framed(request_of(home)))
            assert stream.answer().HasField("header")
            received = len(stream.connection.recv(1_000))
        else:
            wait_until(lambda: streams() == 1, "the stream is not served")
        wait_until(
            lambda: "tacit_connections_pending 0\n" in node.state.metrics.text(), "not admitted"
        )
        revoke_now()
        with suppress(ConnectionError):
            while part := stream.connection.recv(MEGABYTE):
                received += len(part)
        assert received < large["theta"].nbytes
        check_ended(node)


def test_a_caller_that_is_revoked_before_it_is_admitted_is_refused(home, tmp_path, monkeypatch):
    """The revocation closes what is admitted, and this stream is admitted a moment later."""
    with revocable(home, tmp_path) as (node, port, revoke_now):
        group = message_server.Caller.group.fget

        def revoked_meanwhile(caller):
            revoke_now()
            return group(caller)

        monkeypatch.setattr(message_server.Caller, "group", property(revoked_meanwhile))
        refusal = fetched(port, own_of(home, "n1"), request_of(home))
    assert refusal is None or refusal.code == "PERMISSION_DENIED"
    assert node.state.metrics.total("tacit_messages_sent_total") == 0


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tick", [101, 2**64 - 1])
def test_requests_beyond_the_end_are_refused(home, node, port, tick):
    refusal = fetched(port, own_of(home, "n1"), request_of(home, ExchangeId(1, tick, 0)))
    assert refusal.code == "OUT_OF_RANGE"
    assert node.rejected("future") == node.rejected() == 1


def test_a_message_of_the_future_is_not_sent_before_it_exists(home, node, port, monkeypatch):
    monkeypatch.setattr(message_server, "NOTICE_SECONDS", 0.01)
    later = ExchangeId(1, 9, 0)
    with RawStream(port, own_of(home, "n1")) as stream:
        stream.send(framed(request_of(home, later)))
        for _ in range(5):
            assert stream.answer().HasField("notice")
        node.state.active.outbox.put(message_of(home, exchange=later))
        assert stream.outcome() == message_of(home, exchange=later).frame


def test_messages_to_others_are_not_sent(home, node, port, monkeypatch):
    """A message has one receiver, whatever exchange its neighbours ask for."""
    monkeypatch.setattr(message_server, "NOTICE_SECONDS", 0.01)
    exchange = ExchangeId(1, 8, 0)
    secret = message_of(home, {"theta": torch.full((6,), 7.0)}, "n4", exchange)
    node.state.active.outbox.put(secret)
    with RawStream(port, own_of(home, "n1")) as stream:
        stream.send(framed(request_of(home, exchange)))
        assert {stream.answer().WhichOneof("kind") for _ in range(10)} == {"notice"}
    assert fetched(port, own_of(home, "n4"), request_of(home, exchange)) == secret.frame


MALFORMED = {
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: n0\r\n\r\n",
    "2³² − 1 bytes": b"\xff" * 4 + bytes(100),
    "a byte too much": framed(bytes(MAX_FRAME_BYTES + 1)),
    "no protobuf": framed(b"\x0a\xff\xff"),
    "a number without end": framed(b"\x18" + b"\xff" * 20),
    "a second TLS handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_requests_are_refused(home, node, port, kind):
    with RawStream(port, own_of(home, "n1")) as stream:
        stream.send(MALFORMED[kind])
        assert stream.outcome().code == "INVALID_ARGUMENT"
        assert is_closed(stream)
    assert node.rejected("malformed") == node.rejected() == 1
    check_served(home, port, "n1")
    assert node.log.lines("internal error") == []


@pytest.mark.parametrize("raw", [framed(b""), framed(b"\x22\x01a"), framed(bytes(0)) * 50])
def test_requests_without_content_get_a_notice_at_most(home, node, port, raw):
    """As those of another generation."""
    with RawStream(port, own_of(home, "n1")) as stream:
        stream.send(raw)
        assert stream.answer().HasField("notice")
    check_served(home, port)


def test_requests_after_the_roster_has_changed_tell_nothing_more(home, node, port):
    """One notice, from which an honest member learns of the change; then the stream ends."""
    with RawStream(port, own_of(home, "n1")) as stream:
        stream.send(framed(request_of(home)))
        assert stream.outcome() == message_of(home).frame
        del node.state.active.outbox.readers["n1"]  # as in a roster in which they are not adjacent
        for _ in range(5):
            stream.send(framed(request_of(home, ExchangeId(2, 7, 0))))
        answers = [stream.answer() for _ in range(2)]
    assert answers[0].HasField("notice")
    assert answers[1] is None


# --- many and slow connections --------------------------------------------------------------------


def test_many_streams_of_a_neighbour_replace_each_other(home, node, port, many_files):
    """Only the newest stream is served, and only the neighbour's own connections are closed."""
    own, half_a_request = own_of(home, "n1"), framed(b"x" * 60)[:30]
    with RawStream(port, own_of(home, "n4")) as other, ExitStack() as opened:
        other.send(framed(request_of(home)))
        assert other.outcome() == message_of(home).frame
        for number in range(MANY):
            stream = opened.enter_context(RawStream(port, own))
            stream.send(half_a_request)
            if number % 100 == 0:
                other.send(framed(request_of(home)))
                assert other.outcome() == message_of(home).frame
        assert streams() < 300
        wait_until(lambda: streams() <= 2, "replaced streams are still served")
        check_served(home, port, "n1")
        other.send(framed(request_of(home)))
        assert other.outcome() == message_of(home).frame
    check_ended(node)


@pytest.mark.parametrize("kind", ["another federation", "not a neighbour"])
def test_many_refused_streams_that_stay_open(home, other_home, node, port, kind, many_files):
    own = own_of(other_home, "n1") if kind == "another federation" else own_of(home, "n2")
    with ExitStack() as opened:
        for number in range(MANY):
            opened.enter_context(RawStream(port, own))
            if number % 100 == 0:
                check_served(home, port)
        assert streams() < 300
        check_served(home, port)
        check_served(home, port, "n1")
    check_ended(node)
    assert node.log.lines("internal error") == []


def test_many_handshakes_that_stop(home, node, port, many_files):
    """After the first record: the node has answered, and the callers say nothing more."""
    hello = hello_of(own_of(home, "n1"))
    with ExitStack() as opened:
        for number in range(MANY):
            raw = opened.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT))
            raw.sendall(hello)
            if number % 100 == 0:
                check_served(home, port)
        assert streams() < 300
        check_served(home, port)
    check_ended(node)
    assert (
        node.state.metrics.value("tacit_connections_refused_total", reason="too many") > MANY // 3
    )


def hello_of(own):
    """The first record of a client."""
    sent = ssl.MemoryBIO()
    secure = tls(own, protocol=MESSAGES).wrap_bio(
        ssl.MemoryBIO(), sent, server_hostname=server_name("n0", "f")
    )
    with suppress(ssl.SSLWantReadError):
        secure.do_handshake()
    return sent.read()


@pytest.mark.parametrize("at", [1, 4, 5, 6, 100])
def test_a_handshake_that_trickles_is_closed(home, node, port, monkeypatch, at):
    """Each byte arrives soon after the one before, but the handshake would take minutes."""
    monkeypatch.setattr(gates, "HANDSHAKE_SECONDS", 0.3)
    hello, pause = hello_of(own_of(home, "n1")), threading.Event()
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as raw:
        raw.sendall(hello[:at])
        trickled = 0
        with suppress(OSError):
            for byte in hello[at:]:
                raw.sendall(bytes([byte]))
                pause.wait(0.05)
                trickled += 1
        assert trickled < len(hello) - at
    node.log.wait_for("connection refused", reason="timeout")
    check_served(home, port)
    check_ended(node)


def test_a_hello_in_many_packets_is_a_stream(home, node, port):
    """Whatever TCP makes of it."""
    hello, pause = hello_of(own_of(home, "n1")), threading.Event()
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(hello), 40):
            raw.sendall(hello[at : at + 40])
            pause.wait(0.002)
        assert raw.recv(1)[0] == HANDSHAKE
        assert streams() == 1
    check_served(home, port)
    check_ended(node)


def test_a_reader_that_never_reads_keeps_neither_memory_nor_others(home, node, port):
    """It asks again and again for a large message; the node sends what the sockets hold."""
    large = message_of(home, {"theta": torch.zeros(8 * MEGABYTE)}, exchange=ExchangeId(1, 8, 0))
    node.state.active.outbox.put(large)
    request = framed(request_of(home, large.envelope.exchange))
    with RawStream(port, own_of(home, "n1")) as first:
        first.send(request * 50)
        assert first.answer().HasField("header")
        gc.collect()
        before = memory("self")
        with ExitStack() as opened:
            for _ in range(50):
                stream = opened.enter_context(RawStream(port, own_of(home, "n1")))
                stream.send(request * 50)
                check_served(home, port)
            wait_until(lambda: streams() <= 2, "replaced streams are still served")
            assert memory("self") - before < 64 * MEGABYTE
    found = fetched(port, own_of(home, "n4"), request_of(home, large.envelope.exchange))
    assert found == large.frame
    check_ended(node)


def test_a_refused_caller_that_keeps_sending_is_left(home, node, port, monkeypatch):
    """It may read the refusal; it may not keep a thread by sending a byte at a time."""
    monkeypatch.setattr(message_stream, "END_SECONDS", 0.2)
    with RawStream(port, own_of(home, "n2")) as stream:
        assert stream.answer().refusal.code == "PERMISSION_DENIED"
        deadline, pause = time.monotonic() + TIMEOUT, threading.Event()
        with suppress(OSError):
            while True:
                assert time.monotonic() < deadline, "the node still reads"
                stream.connection.sendall(b"x")
                pause.wait(0.02)
    check_ended(node)


def test_streams_do_not_leak(home, node, port):
    """Neither threads nor files nor memory, however they end."""
    request, own = framed(request_of(home)), own_of(home, "n1")
    starts = [request, b"\xff" * 9, request[:7], b""]  # the first two get an answer

    def burst(count):
        for number in range(count):
            with suppress(OSError), RawStream(port, own) as stream:
                stream.send(starts[number % 4])
                if number % 4 < 2 and number % 3:
                    stream.answer()
        check_ended(node)
        gc.collect()
        return memory("self"), len(list(Path("/proc/self/fd").iterdir()))

    before, files_before = burst(100)
    after, files_after = burst(400)
    assert after - before < 24 * MEGABYTE
    assert files_after <= files_before + 5
    assert node.log.lines("internal error") == []
    check_served(home, port)


def test_a_node_without_threads_refuses_streams_and_recovers(home, node, port, monkeypatch):
    """The system may allow no more; the gate must survive that."""
    start = threading.Thread.start

    def start_unless_stream(thread):
        if thread.name == "stream":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_unless_stream)
    assert fetched(port, own_of(home, "n1"), request_of(home)) is None
    assert "TasksMax" in node.log.wait_for("connection refused", reason="no threads")["remedy"]
    monkeypatch.undo()
    check_served(home, port)


# --- one hostile sender does not stall the others -------------------------------------------------


def test_a_stalled_sender_does_not_stall_the_messages_of_others(home):
    """n1 sends a byte and stops; n4 is received from and served meanwhile."""
    node, asked, end = IdleNode(home.node("n0")), threading.Event(), threading.Event()
    federation = home.manifest().federation
    messages = {name: pack(Envelope(federation, name, "", EXCHANGE), ROWS) for name in ("n1", "n4")}

    def stalled(number, requests):
        next(requests)
        asked.set()
        yield b"\x40"
        end.wait(TIMEOUT)

    n1, n4 = home.node("n1"), home.node("n4")
    with (
        ScriptedServer(n1.credentials(), n1.ca(), stalled, Hello=lambda raw: raw) as slow,
        ScriptedServer(
            n4.credentials(), n4.ca(), always(messages["n4"]), Hello=lambda raw: raw
        ) as quick,
        node.client("n1", slow.port) as first,
        node.client("n4", quick.port) as second,
        node.served() as port,
    ):
        receiving = Receiving(first, ExpectedMessage(messages["n1"].envelope, ROWS))
        assert asked.wait(TIMEOUT)
        found = receive(second, ExpectedMessage(messages["n4"].envelope, ROWS))
        assert torch.equal(found["theta"], ROWS["theta"])
        node.state.active.outbox.put(message_of(home))
        check_served(home, port)
        own = own_of(home, "n4")
        with closing(
            open_channel(f"127.0.0.1:{port}", "n0", federation, own, home.ca())
        ) as channel:
            status = channel.unary_unary(f"/{SERVICE}/GetStatus")(b"", timeout=TIMEOUT)
        assert wire.Status.FromString(status).name == "n0"
        first.cancel()
        assert isinstance(receiving.result(), Stopped)  # without waiting for the sender
        end.set()
    assert node.rejected() == 0
