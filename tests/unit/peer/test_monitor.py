"""The monitor answers this computer, briefly, and whoever asks badly neither learns nor blocks anything."""

import json
import math
import re
import socket
import threading
import time
from http.client import HTTPConnection

import pytest

from tacit.core.errors import Misuse
from tacit.peer.monitoring import monitor as module
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.monitoring.monitor import HEAD, THREADS, Monitor


class Node:
    """What a monitor asks."""

    def __init__(self):
        self.measures = Metrics()
        self.told = {"name": "a", "step": 3, "loss": math.nan, "waiting_for": ("b",)}
        self.health = (True, "training")

    def status(self):
        if isinstance(self.told, Exception):
            raise self.told
        return self.told

    def healthy(self):
        if isinstance(self.health, Exception):
            raise self.health
        return self.health


@pytest.fixture
def node():
    return Node()


@pytest.fixture
def port(node):
    monitor = Monitor(0, node.status, node.healthy, node.measures)
    yield monitor.start()
    monitor.stop()


def ask(port, path, method="GET", timeout=30, **headers):
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def raw(port, words, timeout=30):
    """All that comes back to these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        try:
            connection.sendall(words)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        except ConnectionError:
            return b""
        return answer


def test_metrics_are_those_of_the_node(node, port):
    node.measures.count("tacit_rejected_total", 3, reason="Zürich")
    answer, body = ask(port, "/metrics")
    assert answer.status == 200
    assert answer.getheader("Content-Type").startswith("text/plain; version=0.0.4")
    assert body == node.measures.text()
    assert "Zürich" in body


def test_status_is_json_even_of_numbers_that_are_none(port):
    answer, body = ask(port, "/status?pretty")
    assert answer.status == 200
    assert answer.getheader("Content-Type") == "application/json"
    assert json.loads(body, parse_constant=pytest.fail) == {
        "name": "a", "step": 3, "loss": None, "waiting_for": ["b"],
    }  # fmt: skip


def test_health_is_the_node_s_own_word(node, port):
    answer, body = ask(port, "/health")
    assert answer.status == 200
    assert json.loads(body) == {"healthy": True, "reason": "training"}
    node.health = (False, "waits for b since an hour")
    answer, body = ask(port, "/health")
    assert answer.status == 503
    assert json.loads(body) == {"healthy": False, "reason": "waits for b since an hour"}


def test_a_node_that_cannot_tell_is_not_well_and_tells_no_secret(node, port):
    node.health = node.told = RuntimeError("the key is 1234")
    answer, body = ask(port, "/health")
    assert answer.status == 503
    assert json.loads(body)["healthy"] is False
    assert "1234" not in body
    answer, body = ask(port, "/status")
    assert answer.status == 500
    assert "1234" not in body
    assert ask(port, "/metrics")[0].status == 200


def test_head_has_the_headers_only(port):
    whole, body = ask(port, "/metrics")
    head, nothing = ask(port, "/metrics", method="HEAD")
    assert nothing == ""
    assert head.status == 200
    assert (
        head.getheader("Content-Length")
        == whole.getheader("Content-Length")
        == str(len(body.encode()))
    )


@pytest.mark.parametrize(
    "path", ["/", "/metrics/", "/../etc/passwd", "//status", "/stat%75s", "/<script>"]
)
def test_nothing_else_is_there(port, path):
    answer, body = ask(port, path)
    assert answer.status == 404
    assert body == "Not Found\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_only_reading_is_possible(port, method):
    answer, _ = ask(port, "/metrics", method=method)
    assert answer.status == 405
    assert answer.getheader("Allow") == "GET, HEAD"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:9100", "localhost", "LOCALHOST:1", "[::1]", "[::1]:80"]
)
def test_loopback_names_are_answered(port, host):
    assert ask(port, "/status", Host=host)[0].status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "127.0.0.2",
     "localhost:", "localhost:x", "0.0.0.0", "[::1", "localhost@evil", "[::]"],
)  # fmt: skip
def test_other_names_are_refused(port, host):
    answer, body = ask(port, "/status", Host=host)
    assert answer.status == 403
    assert body == "Forbidden\n"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (b"GET /status HTTP/1.1\r\n\r\n", 403),
        (b"GET /status HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /status\r\n\r\n", 400),
        (b"GET http://evil.example/status HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /status HTTP/2.0\r\nHost: localhost\r\n\r\n", 400),
        (b"get /status HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\x00<script>\xff\r\n\r\n", 400),
    ],
)
def test_requests_byte_by_byte(port, words, status):
    answer = raw(port, words)
    assert re.match(rb"HTTP/1\.1 (\d+) ", answer)[1] == str(status).encode()
    assert b"evil" not in answer
    assert b"script" not in answer


def test_no_word_of_the_request_comes_back(port):
    marker = "s3ntinel"
    for path, method, headers in (
        (f"/{marker}", "GET", {}),
        (f"/status?{marker}", "GET", {}),
        ("/status", marker.upper(), {}),
        ("/status", "GET", {"Host": marker}),
        ("/status", "GET", {"X-Other": marker}),
    ):
        answer, body = ask(port, path, method=method, **headers)
        assert marker not in (f"{answer.reason}{answer.headers}{body}").lower()


def test_a_head_without_end_is_cut_off(port):
    endless = b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * HEAD
    answer = raw(port, endless[:HEAD])
    assert answer.startswith(b"HTTP/1.1 431 ")
    answer = raw(port, endless + b"x" * 1_000_000)  # the rest is not even read
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert ask(port, "/status")[0].status == 200


def slow_connections(port, count):
    connections = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
    for connection in connections:
        connection.sendall(b"GET /status HT")
    return connections


def test_who_is_slow_to_ask_does_not_block_others(port):
    slow = slow_connections(port, 3 * THREADS)
    begun = time.monotonic()
    for _ in range(5):
        assert ask(port, "/status")[0].status == 200
    assert time.monotonic() - begun < 4
    for connection in slow:
        connection.close()


def test_a_byte_now_and_then_does_not_hold_a_connection(port, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.5)
    (slow,) = slow_connections(port, 1)
    begun = time.monotonic()
    slow.settimeout(0.1)
    ended = None
    while ended is None and time.monotonic() - begun < 20:
        try:
            slow.sendall(b"x")
            ended = slow.recv(100)
        except TimeoutError:
            continue
        except ConnectionError:
            ended = b""
    assert ended == b""
    assert time.monotonic() - begun < 10


def test_no_more_threads_than_allowed(node):
    going, here, most, lock = threading.Event(), [0], [0], threading.Lock()

    def status():
        with lock:
            here[0] += 1
            most[0] = max(most[0], here[0])
        going.wait(20)
        with lock:
            here[0] -= 1
        return {}

    monitor = Monitor(0, status, node.healthy, node.measures)
    busy = monitor.start()
    answers = []
    askers = [
        threading.Thread(target=lambda: answers.append(ask(busy, "/status")[0].status))
        for _ in range(THREADS + 8)
    ]
    for asker in askers:
        asker.start()
    deadline = time.monotonic() + 20
    while here[0] < THREADS and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert here[0] == most[0] == THREADS
    going.set()
    for asker in askers:
        asker.join()
    monitor.stop()
    assert answers == [200] * (THREADS + 8)
    assert most[0] <= THREADS


def test_it_listens_on_loopback_only(node):
    monitor = Monitor(0, node.status, node.healthy, node.measures)
    port = monitor.start()
    assert monitor._server.socket.getsockname() == ("127.0.0.1", port)
    monitor.stop()


def test_a_taken_port_is_refused_with_a_remedy(node, port):
    for wanted in (port, 70_000, -1, "x"):
        with pytest.raises(Misuse, match=rf"port {wanted!r} of 127.0.0.1.*another port"):
            Monitor(wanted, node.status, node.healthy, node.measures).start()


def test_it_can_be_stopped_and_started_again(node):
    monitor = Monitor(0, node.status, node.healthy, node.measures)
    monitor.stop()
    port = monitor.start()
    assert ask(port, "/status")[0].status == 200
    monitor.stop()
    monitor.stop()
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    again = Monitor(port, node.status, node.healthy, node.measures)
    assert again.start() == port
    assert ask(port, "/status")[0].status == 200
    again.stop()


def test_nothing_is_said_on_standard_error(port, capfd):
    ask(port, "/nothing")
    raw(port, b"\x00\r\n\r\n")
    slow_connections(port, 1)[0].close()
    time.sleep(0.2)
    assert capfd.readouterr() == ("", "")
