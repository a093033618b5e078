"""Connections of strangers, which have no certificate, do not keep a federation from training."""

import socket
import subprocess
import threading
from contextlib import contextmanager, suppress

from chaos import ForkedCommand
from federations import federation, log_of, plan

STRANGERS = 1_100
FILES = 1_024  # the usual limit of a process
TIMEOUT = 60


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


@contextmanager
def running(home, name):
    """A node in a process with the usual limit of files."""
    node = home.node(name)
    node.run.mkdir(parents=True, exist_ok=True)
    process = ForkedCommand(["node", str(node.path)], node.run / "log.jsonl", FILES)
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


def wait_until_listening(port, process):
    for _ in range(TIMEOUT * 10):
        assert process.poll() is None
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    raise AssertionError("the node does not listen")
