"""The gate in front of a plain server that sends back what it receives."""

import queue
import socket
import socketserver
import threading

import pytest

from tacit.core.errors import Misuse
from tacit.peer.wire import gate as module
from tacit.peer.wire.connection_limits import ConnectionLimits
from tacit.peer.wire.gate import Gate

TIMEOUT = 30
HELLO = b"\x16hello"
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

    def start(pending=8, per_address=6, admitted=4, per_caller=2):
        limits = ConnectionLimits(pending, per_address, admitted, per_caller)
        gate = Gate("127.0.0.1:0", limits, lambda *what: refused.put(what))
        gate.start(server.server_address[1])
        opened.append(gate)
        return gate

    yield start
    for gate in opened:
        gate.close()


def connect(gate):
    return socket.create_connection(("127.0.0.1", gate.port), TIMEOUT)


def exchange(connection, data):
    """Send bytes and receive as many."""
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    found = bytearray()
    while len(found) < len(data):
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


def test_an_idle_flood_keeps_nobody_out(open_gate, refused):
    gate = open_gate()
    strangers = [connect(gate) for _ in range(50)]
    for _ in range(44):  # all but as many as one address may have
        assert refused.get(timeout=TIMEOUT) == ("too many", "127.0.0.1")
    assert gate.pending_connections == 6
    with connect(gate) as honest:
        assert exchange(honest, HELLO) == HELLO
    for each in strangers:
        each.close()


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
     (b"", "closed")],
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
