"""The monitoring server responds to local requests only; bad requests learn and block nothing."""

import json
import math
import re
import socket
import threading
import time
from http.client import HTTPConnection

import pytest

from tacit.core.errors import Misuse
from tacit.peer.monitoring import http_server
from tacit.peer.monitoring.access import Access
from tacit.peer.monitoring.http_server import MAX_HEADER, MAX_THREADS, serve_pages
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.monitoring.pages import monitoring_pages


class Node:
    """What the monitoring server reads."""

    def __init__(self):
        self.metrics = Metrics()
        self.status_values = {"name": "a", "step": 3, "loss": math.nan, "waiting_for": ("b",)}
        self.health = (True, "training")

    def status(self, scores):
        if isinstance(self.status_values, Exception):
            raise self.status_values
        return self.status_values

    def healthy(self):
        if isinstance(self.health, Exception):
            raise self.health
        return self.health

    def pages(self):
        return monitoring_pages(self.status, self.healthy, self.metrics, Access())


@pytest.fixture
def node():
    return Node()


@pytest.fixture
def port(node):
    with serve_pages(0, node.pages()) as port:
        yield port


def fetch(port, path, method="GET", timeout=30, **headers):
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def exchange(port, sent, timeout=30):
    """All bytes that come back for these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        try:
            connection.sendall(sent)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        except ConnectionError:
            return b""
        return answer


def test_metrics_are_those_of_the_node(node, port):
    node.metrics.count("tacit_rejected_total", 3, reason="Zürich")
    answer, body = fetch(port, "/metrics")
    assert answer.status == 200
    assert answer.getheader("Content-Type").startswith("text/plain; version=0.0.4")
    assert body == node.metrics.text()
    assert "Zürich" in body


def test_status_is_json_with_null_for_nan(port):
    answer, body = fetch(port, "/status?pretty")
    assert answer.status == 200
    assert answer.getheader("Content-Type") == "application/json"
    assert json.loads(body, parse_constant=pytest.fail) == {
        "name": "a", "step": 3, "loss": None, "waiting_for": ["b"],
    }  # fmt: skip


def test_health_is_reported_by_the_node(node, port):
    answer, body = fetch(port, "/health")
    assert answer.status == 200
    assert json.loads(body) == {"healthy": True, "reason": "training"}
    node.health = (False, "waiting for b for an hour")
    answer, body = fetch(port, "/health")
    assert answer.status == 503
    assert json.loads(body) == {"healthy": False, "reason": "waiting for b for an hour"}


def test_an_exception_means_unhealthy_and_its_message_stays_private(node, port):
    node.health = node.status_values = RuntimeError("the key is 1234")
    answer, body = fetch(port, "/health")
    assert answer.status == 503
    assert json.loads(body)["healthy"] is False
    assert "1234" not in body
    answer, body = fetch(port, "/status")
    assert answer.status == 500
    assert "1234" not in body
    assert fetch(port, "/metrics")[0].status == 200


@pytest.mark.parametrize(
    "path", ["/", "/metrics/", "/../etc/passwd", "//status", "/stat%75s", "/<script>"]
)
def test_other_paths_are_not_found(port, path):
    answer, body = fetch(port, path)
    assert answer.status == 404
    assert body == "Not Found\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_only_get_and_head_are_allowed(port, method):
    answer, _ = fetch(port, "/metrics", method=method)
    assert answer.status == 405
    assert answer.getheader("Allow") == "GET, HEAD"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:9100", "localhost", "LOCALHOST:1", "[::1]", "[::1]:80"]
)
def test_loopback_hosts_are_allowed(port, host):
    assert fetch(port, "/status", Host=host)[0].status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:80", "",
     "127.0.0.2", "localhost:", "localhost:x", "0.0.0.0", "[::1", "localhost@evil", "[::]"],
)  # fmt: skip
def test_other_hosts_are_forbidden(port, host):
    answer, body = fetch(port, "/status", Host=host)
    assert answer.status == 403
    assert body == "Forbidden\n"


@pytest.mark.parametrize(
    ("sent", "status"),
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
def test_requests_byte_by_byte(port, sent, status):
    answer = exchange(port, sent)
    assert re.match(rb"HTTP/1\.1 (\d+) ", answer)[1] == str(status).encode()
    assert b"evil" not in answer
    assert b"script" not in answer


def test_no_part_of_the_request_is_repeated(port):
    marker = "s3ntinel"
    for path, method, headers in (
        (f"/{marker}", "GET", {}),
        (f"/status?{marker}", "GET", {}),
        ("/status", marker.upper(), {}),
        ("/status", "GET", {"Host": marker}),
        ("/status", "GET", {"X-Other": marker}),
    ):
        answer, body = fetch(port, path, method=method, **headers)
        assert marker not in (f"{answer.reason}{answer.headers}{body}").lower()


def test_a_header_without_end_is_cut_off(port):
    endless = b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * MAX_HEADER
    answer = exchange(port, endless[:MAX_HEADER])
    assert answer.startswith(b"HTTP/1.1 431 ")
    answer = exchange(port, endless + b"x" * 1_000_000)  # the rest is not read
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert fetch(port, "/status")[0].status == 200


def slow_connections(port, count):
    connections = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
    for connection in connections:
        connection.sendall(b"GET /status HT")
    return connections


def test_slow_requests_do_not_block_others(port):
    slow = slow_connections(port, 3 * MAX_THREADS)
    begun = time.monotonic()
    for _ in range(5):
        assert fetch(port, "/status")[0].status == 200
    assert time.monotonic() - begun < 4
    for connection in slow:
        connection.close()


def test_a_trickle_of_bytes_does_not_keep_a_connection_open(port, monkeypatch):
    monkeypatch.setattr(http_server, "TIMEOUT", 0.5)
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

    def status(scores):
        with lock:
            here[0] += 1
            most[0] = max(most[0], here[0])
        going.wait(20)
        with lock:
            here[0] -= 1
        return {}

    answers = []
    with serve_pages(0, monitoring_pages(status, node.healthy, node.metrics, Access())) as busy:
        requesters = [
            threading.Thread(target=lambda: answers.append(fetch(busy, "/status")[0].status))
            for _ in range(MAX_THREADS + 8)
        ]
        for requester in requesters:
            requester.start()
        deadline = time.monotonic() + 20
        while here[0] < MAX_THREADS and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        assert here[0] == most[0] == MAX_THREADS
        going.set()
        for requester in requesters:
            requester.join()
    assert answers == [200] * (MAX_THREADS + 8)
    assert most[0] <= MAX_THREADS


def test_it_listens_on_loopback_only(node, monkeypatch):
    bound = []

    class Server(http_server._Server):
        def server_activate(self):
            bound.append(self.socket.getsockname())
            super().server_activate()

    monkeypatch.setattr(http_server, "_Server", Server)
    with serve_pages(0, node.pages()) as port:
        assert bound == [("127.0.0.1", port)]


def test_an_unusable_port_is_refused_with_a_remedy(node, port):
    for wanted in (port, 70_000, -1, "x"):
        with (
            pytest.raises(Misuse, match=rf"port {wanted!r} of 127.0.0.1.*another port"),
            serve_pages(wanted, node.pages()),
        ):
            pass
