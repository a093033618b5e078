"""One large letter, served by a node and by a plain TLS socket, each in a process of its own.

python -m tacit.bench.peer_message letter|plain FOLDER BYTES

prints the port it listens on and serves until its input ends.
"""

from __future__ import annotations

import io
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from tacit.bench.peer_ring import federation, free_ports
from tacit.bench.stopwatch import Work
from tacit.bench.workloads import PLAIN_RULE
from tacit.core.errors import TacitError
from tacit.peer.federation.operator import FederationFolder, NodeFolder
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.outbox import Outbox
from tacit.peer.node.state import ActiveRoster, NodeState
from tacit.peer.wire.frames import Address, Envelope, Expected, pack
from tacit.peer.wire.neighbour_client import NeighbourClient
from tacit.peer.wire.server import Service
from tacit.peer.wire.transport import listen

SENDER, RECEIVER = "n0", "n1"
ADDRESS = Address(1, 1, 0)
CHUNK = 1 << 20


@contextmanager
def pulls(size: int) -> Iterator[dict[str, Work]]:
    """Two ways to get `size` bytes from another process: as a "letter", and "plain"."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "pair"
        home = federation(folder, PLAIN_RULE, 1, free_ports(2))
        letter_port = stack.enter_context(_serving("letter", folder, size))
        plain_port = stack.enter_context(_serving("plain", folder, size))
        node = home.node(RECEIVER)
        manifest = node.manifest()
        desk = _desk(node, RECEIVER, Outbox.to(1, []))
        member = replace(manifest.member(SENDER), address=f"127.0.0.1:{letter_port}")
        line = NeighbourClient(desk, member, node.credentials(), node.ca())
        stack.callback(line.close)
        envelope = Envelope(manifest.federation, SENDER, "", ADDRESS)
        expected = Expected(envelope, {"x": torch.empty(size // 4)})

        def letter() -> None:
            line.receive(
                line.ask(ADDRESS, -1), ADDRESS, expected, lambda found: found, lambda: None
            )

        yield {"letter": letter, "plain": lambda: _pull_plain(node, plain_port, size)}


@contextmanager
def _serving(kind: str, folder: Path, size: int) -> Iterator[int]:
    """A process that serves, and its port."""
    command = [sys.executable, "-m", __name__, kind, str(folder), str(size)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            said = process.stdout.readline() if process.stdout is not None else ""
            if not said.strip().isdigit():
                raise TacitError(f"The process that serves the {kind} bytes did not start.")
            yield int(said)
        finally:
            process.terminate()


def _desk(node: NodeFolder, name: str, outbox: Outbox) -> NodeState:
    event_log = EventLog(io.StringIO(), name)
    return NodeState(
        node, name, ActiveRoster(node.manifest(), outbox), Metrics(), event_log, 1, "float32"
    )


def _serve_letter(node: NodeFolder, size: int) -> None:
    """A node that has one letter in its outbox."""
    manifest = node.manifest()
    outbox = Outbox.to(1, [RECEIVER])
    envelope = Envelope(manifest.federation, SENDER, "", ADDRESS)
    outbox.post(pack(envelope, {"x": torch.zeros(size // 4)}))
    handlers = [Service(_desk(node, SENDER, outbox)).handlers()]
    server, port = listen("127.0.0.1:0", handlers, 4, node.credentials(), node.ca())
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0)


def _serve_plain(node: NodeFolder, size: int) -> None:
    """The same bytes to whoever connects with a certificate."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, node)
    context.verify_mode = ssl.CERT_REQUIRED
    listening = socket.create_server(("127.0.0.1", 0))
    data = memoryview(bytes(size))

    def serve() -> None:
        while True:
            raw, _ = listening.accept()
            with context.wrap_socket(raw, server_side=True) as secure:
                for at in range(0, size, CHUNK):
                    secure.sendall(data[at : at + CHUNK])

    threading.Thread(target=serve, daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    sys.stdin.read()


def _pull_plain(node: NodeFolder, port: int, size: int) -> None:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, node)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port))) as secure:
        view, at = memoryview(bytearray(size)), 0
        while at < size:
            at += secure.recv_into(view[at : at + CHUNK])


def _context(side: int, node: NodeFolder) -> ssl.SSLContext:
    """Both ends show certificates of the federation; names are not what is measured."""
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.load_cert_chain(node.path / "node.pem", node.path / "node.key")
    context.load_verify_locations(node.path / "ca.pem")
    return context


if __name__ == "__main__":
    kind, folder, size = sys.argv[1], FederationFolder(Path(sys.argv[2])), int(sys.argv[3])
    (_serve_letter if kind == "letter" else _serve_plain)(folder.node(SENDER), size)
