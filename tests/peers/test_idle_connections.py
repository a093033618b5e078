"""Connections of strangers, which have no certificate, do not keep a federation from training."""

import resource
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import pytest
from federations import federation, free_ports, log_of, plan
from hostile import IdleNode, expired, first_bytes, tls

from tacit.peer.federation.signing import create_authority, issue_credentials
from tacit.peer.node.servers import run_servers
from tacit.peer.wire.tls import MESSAGES
from tacit.peer.wire.transport import SERVICE, open_channel

STRANGERS = 1_100
FILES = 1_024  # the usual limit of a process
TIMEOUT = 60


def limit_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


class Strangers(threading.Thread):
    """Keeps many connections to a port open without a byte, and opens them again when closed."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self._port, self._ended, self._open = port, threading.Event(), []
        self.filled = threading.Event()

    def run(self):
        while not self._ended.is_set():
            self._open = [each for each in self._open if is_open(each)]
            for _ in range(STRANGERS - len(self._open)):
                with suppress(OSError):
                    self._open.append(socket.create_connection(("127.0.0.1", self._port), 1))
            self.filled.set()
            self._ended.wait(2)

    def __enter__(self):
        self.start()
        assert self.filled.wait(TIMEOUT)

    def __exit__(self, *_):
        self._ended.set()
        self.join()
        for each in self._open:
            each.close()


def is_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@pytest.fixture
def many_files():
    """Let this process open more files than the nodes may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def running(home, name):
    """A node in a process with the usual limit of files."""
    node = home.node(name)
    node.run.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tacit", "node", str(node.path)]
    with (node.run / "log.jsonl").open("ab") as log:
        process = subprocess.Popen(command, stderr=log, preexec_fn=limit_files)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_idle_connections_do_not_stop_a_federation(tmp_path, many_files):
    home = federation(tmp_path / "f", plan({"name": "dsgt", "lr": 0.05}, clients=2), 2)
    port = int(home.members[0].address.rpartition(":")[2])
    with running(home, "n0") as n0:
        wait_until_listening(port, n0)
        with Strangers(port), running(home, "n1") as n1:
            ends = [each.wait(TIMEOUT) for each in (n0, n1)]
    lines = log_of(home, "n0")
    assert ends == [0, 0], lines[-3:]
    refused = {one["reason"]: one for one in lines if one["event"] == "connection refused"}
    assert refused["too many"]["level"] == "warning"
    assert refused["too many"]["address"] == "127.0.0.1"
    assert not [one for one in lines if one["event"] == "save failed"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    config = plan({"name": "dsgt", "lr": 0.05}, clients=3)
    return federation(tmp_path_factory.mktemp("gate") / "f", config, clients=3)


@pytest.fixture
def node(home):
    return IdleNode(home.node("n0"))


@pytest.fixture
def served(home, node):
    """The servers of n0 as they run in its process."""
    (port,) = free_ports(1)
    with run_servers(node.state, f"127.0.0.1:{port}", 0):
        yield port
    node.state.stop.clear()


def refused(node, reason):
    """How many connections were refused, as soon as there is one."""
    line = node.log.wait_for("connection refused", reason=reason)
    assert (line["level"], line["address"]) == ("warning", "127.0.0.1")
    return node.state.metrics.value("tacit_connections_refused_total", reason=reason)


@pytest.mark.parametrize("protocol", ["h2", MESSAGES])
@pytest.mark.parametrize("kind", ["another authority", "expired", "no certificate"])
def test_a_failed_handshake_leaves_a_trace(home, node, served, kind, protocol):
    name = home.manifest().federation
    own = {
        "another authority": issue_credentials(create_authority(name), "n1", name),
        "expired": expired(home.authority(), "n1", name),
        "no certificate": None,
    }[kind]
    assert first_bytes(served, tls(own, protocol=protocol)) == b""
    assert refused(node, "no valid certificate") == 1
    assert "check its log, its certificate" in node.log.lines("connection refused")[0]["remedy"]


def test_a_member_is_admitted_and_leaves_no_trace(home, node, served):
    own, manifest = home.node("n1").credentials(), home.manifest()
    channel = open_channel(f"127.0.0.1:{served}", "n0", manifest.federation, own, home.ca())
    channel.unary_unary(f"/{SERVICE}/GetStatus")(b"", timeout=TIMEOUT)
    assert "tacit_connections 1\n" in node.state.metrics.text()
    channel.close()
    assert node.log.lines("connection refused") == []


def test_garbage_leaves_a_trace(node, served):
    with socket.create_connection(("127.0.0.1", served), TIMEOUT) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert refused(node, "not tls") == 1
        assert not is_open(stranger)


def wait_until_listening(port, process):
    for _ in range(TIMEOUT * 10):
        assert process.poll() is None
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    raise AssertionError("the node does not listen")
