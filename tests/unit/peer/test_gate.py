"""The gate in front of a plain server that sends back what it receives."""

import queue
import socket
import socketserver
import threading
from contextlib import suppress

import pytest

from tacit.core.errors import Misuse
from tacit.peer.wire import gate as module, tls
from tacit.peer.wire.connection_limits import ConnectionLimits
from tacit.peer.wire.gate import Gate

TIMEOUT = 30


def hello(body):
    """The first record of a TLS connection."""
    return b"\x16\x03\x01" + len(body).to_bytes(2, "big") + body


HELLO = hello(b"hello")
STREAM_HELLO = hello(b"..." + bytes([len(tls.MESSAGES)]) + tls.MESSAGES.encode() + b"...")
MEGABYTE = 1 << 20


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        self.server.peers.put("ipv4:{}:{}".format(*self.client_address))
        while data := self.request.recv(MEGABYTE):
            if data.endswith(b"bye"):
                return
            self.request.sendall(data)


@pytest.fixture
def server():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads, server.peers = True, queue.Queue()
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def refused():
    return queue.Queue()


@pytest.fixture
def open_gate(server, refused):
    opened = []

    def start(pending=8, per_address=6, admitted=4, per_caller=2, serve_stream=None):
        limits = ConnectionLimits(pending, per_address, admitted, per_caller)
        gate = Gate("127.0.0.1:0", limits, lambda *what: refused.put(what))
        gate.start(server.server_address[1], serve_stream)
        opened.append(gate)
        return gate

    yield start
    for gate in opened:
        gate.close()


def connect(gate):
    return socket.create_connection(("127.0.0.1", gate.port), TIMEOUT)


def exchange(connection, data, size=None):
    """Send bytes and receive as many, or `size`."""
    size = len(data) if size is None else size
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    found = bytearray()
    while len(found) < size:
        received = connection.recv(MEGABYTE)
        assert received
        found += received
    sender.join()
    return bytes(found)


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_bytes_arrive_unchanged_in_both_directions(open_gate):
    data = HELLO + bytes(range(256)) * 100_000  # more than the buffers of all sockets
    with connect(open_gate()) as connection:
        assert exchange(connection, data) == data


def test_a_slow_reader_gets_everything(open_gate):
    data = HELLO + bytes(20 * MEGABYTE)
    gate = open_gate()
    with connect(gate) as slow, connect(gate) as other:
        sender = threading.Thread(target=slow.sendall, args=(data,), daemon=True)
        sender.start()
        # Meanwhile others are served.
        assert exchange(other, HELLO) == HELLO
        found = 0
        while found < len(data):
            found += len(slow.recv(4096 * 16))
        assert found == len(data)


def test_when_the_server_closes_the_caller_gets_the_rest_and_the_end(open_gate):
    with connect(open_gate()) as connection:
        assert exchange(connection, HELLO) == HELLO
        connection.sendall(b"bye")
        assert is_closed(connection)


def test_a_connection_without_a_call_is_closed_in_time(open_gate, refused, monkeypatch):
    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.1)
    gate = open_gate()
    with connect(gate) as idle, connect(gate) as half:
        half.sendall(HELLO)
        assert refused.get(timeout=TIMEOUT) == ("timeout", "127.0.0.1")
        assert refused.get(timeout=TIMEOUT) == ("timeout", "127.0.0.1")
        assert is_closed(idle)
    assert gate.open_connections == 0


def test_an_admitted_connection_stays(open_gate, server, refused, monkeypatch):
    gate = open_gate()
    with connect(gate) as member, connect(gate) as stranger:
        assert exchange(member, HELLO) == HELLO
        gate.admit(server.peers.get(timeout=TIMEOUT), "n1")
        # The gate's thread answers in order, so it has admitted the member when this arrives.
        assert exchange(member, HELLO) == HELLO
        monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.0)
        assert refused.get(timeout=TIMEOUT)[0] == "timeout"
        assert is_closed(stranger)
        assert exchange(member, HELLO) == HELLO
    assert refused.empty()


def test_a_caller_with_too_many_connections_loses_its_oldest(open_gate, server, refused):
    gate, open_ones = open_gate(), []
    for name in ("n1", "n2", "n1", "n1"):
        open_ones.append(connect(gate))
        assert exchange(open_ones[-1], HELLO) == HELLO
        gate.admit(server.peers.get(timeout=TIMEOUT), name)
    assert is_closed(open_ones[0])
    assert [exchange(each, HELLO) for each in open_ones[1:]] == [HELLO] * 3
    assert refused.empty()
    for each in open_ones:
        each.close()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(b"GET / HTTP/1.1\r\n\r\n", "not tls"), (HELLO + b"bye", "no valid certificate"),
     (b"", "closed"), (hello(bytes(2**14 + 1)), "not tls"), (b"\x16\x03\x01\xff\xff", "not tls")],
)  # fmt: skip
def test_every_failed_handshake_is_counted(open_gate, refused, sent, reason):
    gate = open_gate()
    for _ in range(3):
        with connect(gate) as connection:
            connection.sendall(sent)
            if sent:
                assert is_closed(connection)
    assert [refused.get(timeout=TIMEOUT)[0] for _ in range(3)] == [reason] * 3


def test_all_connections_of_a_caller_can_be_closed(open_gate, server, refused):
    gate = open_gate()
    callers = {}
    for name in ("a", "a", "b"):
        connection = connect(gate)
        exchange(connection, HELLO)
        gate.admit(server.peers.get(timeout=TIMEOUT), name)
        callers.setdefault(name, []).append(connection)
    gate.close_connections("a")
    assert all(is_closed(connection) for connection in callers["a"])
    assert exchange(callers["b"][0], HELLO) == HELLO
    # A later one is served: whether its certificate is accepted is decided at its first call.
    with connect(gate) as again:
        assert exchange(again, HELLO) == HELLO
    assert refused.empty() or refused.get()[0] == "no valid certificate"
    callers["b"][0].close()


def test_unknown_peers_are_not_admitted(open_gate):
    gate = open_gate()
    for peer in ("", "unix:", "ipv4:127.0.0.1:9", "ipv6:%5B::1%5D:9"):
        gate.admit(peer, "n1")
    with connect(gate) as connection:
        assert exchange(connection, HELLO) == HELLO
        assert (gate.open_connections, gate.pending_connections) == (1, 1)


def test_a_used_port_is_refused(open_gate):
    with pytest.raises(Misuse, match="another program uses the port"):
        Gate(f"127.0.0.1:{open_gate().port}", ConnectionLimits(1, 1, 1), lambda *_: None)


# --- the first record -----------------------------------------------------------------------------


def test_the_largest_hello_is_forwarded(open_gate):
    largest = hello(bytes(tls.MAX_HELLO_BYTES))
    with connect(open_gate()) as connection:
        assert exchange(connection, largest + b"more") == largest + b"more"


@pytest.mark.parametrize("sent", [HELLO[:1], HELLO[:4], HELLO[:5], HELLO[:-1], STREAM_HELLO[:-1]])
def test_a_hello_that_is_cut_off_reaches_no_server(open_gate, server, refused, sent):
    gate = open_gate(serve_stream=lambda *_: pytest.fail("a stream was served"))
    with connect(gate) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert refused.get(timeout=TIMEOUT) == ("closed", "127.0.0.1")
        assert is_closed(connection)
    assert server.peers.empty()
    assert gate.open_connections == 0


# --- streams of messages --------------------------------------------------------------------------


class Streams:
    """Serves streams: admits their caller, if it has one, and sends back what it receives."""

    def __init__(self):
        self.callers = []  # of the streams to come
        self.served, self.ended = queue.Queue(), queue.Queue()

    def __call__(self, raw, admit):
        with raw:
            caller = self.callers.pop(0) if self.callers else None
            first = raw.recv(len(STREAM_HELLO), socket.MSG_WAITALL)
            self.served.put((threading.current_thread().name, first))
            if caller is not None:
                admit(caller)
            with suppress(OSError):
                while data := raw.recv(MEGABYTE):
                    if data.endswith(b"bye"):
                        break
                    raw.sendall(data)
        self.ended.put(caller)


@pytest.fixture
def streams():
    return Streams()


def open_stream(gate, streams, caller=None):
    """A stream that is served; if its caller is known, it is admitted."""
    if caller is not None:
        streams.callers.append(caller)
    connection = connect(gate)
    connection.sendall(STREAM_HELLO)
    assert streams.served.get(timeout=TIMEOUT) == ("stream", STREAM_HELLO)
    # What was sent before this answer has been admitted before another connection is accepted.
    assert exchange(connection, b"ping") == b"ping"
    return connection


def wait_until_admitted(gate, connections):
    """The gate's thread accepts connections after what it was told before."""
    with connect(gate) as probe:
        assert exchange(probe, HELLO) == HELLO
        assert gate.open_connections - gate.pending_connections == connections


def test_a_stream_has_a_thread_of_its_own_and_all_its_bytes(open_gate, server, refused, streams):
    data = bytes(range(256)) * 10_000
    gate = open_gate(serve_stream=streams)
    with open_stream(gate, streams, "n1") as connection:
        assert exchange(connection, data) == data
        wait_until_admitted(gate, 1)
        connection.sendall(b"bye")
        assert is_closed(connection)
    assert streams.ended.get(timeout=TIMEOUT) == "n1"
    assert server.peers.qsize() == 1  # the probe


def test_what_follows_the_first_record_makes_no_stream(open_gate, server, streams):
    gate = open_gate(serve_stream=streams)
    with connect(gate) as connection:
        assert exchange(connection, HELLO + STREAM_HELLO) == HELLO + STREAM_HELLO
    assert streams.served.empty()


def test_a_stream_without_a_known_caller_is_closed_in_time(
    open_gate, refused, streams, monkeypatch
):
    gate = open_gate(serve_stream=streams)
    with open_stream(gate, streams, "n1") as member, open_stream(gate, streams) as stranger:
        wait_until_admitted(gate, 1)
        assert refused.get(timeout=TIMEOUT)[0] == "no valid certificate"  # the probe
        monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.0)
        assert refused.get(timeout=TIMEOUT) == ("timeout", "127.0.0.1")
        assert is_closed(stranger)
        # Its thread has ended.
        assert streams.ended.get(timeout=TIMEOUT) is None
        assert exchange(member, b"x") == b"x"
    assert refused.empty()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_in_a_stream_closes_it(open_gate, refused):
    def broken(raw, admit):
        with raw:
            raise ZeroDivisionError

    with connect(open_gate(serve_stream=broken)) as connection:
        connection.sendall(STREAM_HELLO)
        assert is_closed(connection)
    assert refused.get(timeout=TIMEOUT)[0] == "no valid certificate"


def test_streams_and_calls_of_a_caller_share_their_limit(open_gate, server, streams):
    gate = open_gate(serve_stream=streams)
    stream = open_stream(gate, streams, "n1")
    calls = [connect(gate) for _ in range(2)]
    for call in calls:
        assert exchange(call, HELLO) == HELLO
        gate.admit(server.peers.get(timeout=TIMEOUT), "n1")
    assert is_closed(stream)
    for one in (stream, *calls):
        one.close()
