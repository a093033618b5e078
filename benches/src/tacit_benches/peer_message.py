"""One large message from a node, and the same bytes from a plain TLS socket.

Each server is a process of its own:

python -m tacit_benches.peer_message message|plain FOLDER BYTES

prints the port it listens on and serves until its standard input ends.
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

from tacit.core.errors import TacitError
from tacit.peer.federation.folders import FederationFolder, NodeFolder
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.neighbour_client import NeighbourClient
from tacit.peer.node.node_state import ActiveRoster, NodeState
from tacit.peer.node.servers import serve_peers
from tacit.peer.wire.messages import Envelope, ExchangeId, ExpectedMessage, pack
from tacit_benches.benchmark import TimedFunction
from tacit_benches.peer_ring import create_ring, free_ports
from tacit_benches.workloads import PLAIN_ALGORITHM

SENDER, RECEIVER = "n0", "n1"
EXCHANGE = ExchangeId(1, 1, 0)
CHUNK = 1 << 20


@contextmanager
def transfers(size: int) -> Iterator[dict[str, TimedFunction]]:
    """Two ways to receive `size` bytes from another process: as "message", and "plain"."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "pair"
        ring = create_ring(folder, PLAIN_ALGORITHM, 1, free_ports(2))
        message_port = stack.enter_context(_server_process("message", folder, size))
        plain_port = stack.enter_context(_server_process("plain", folder, size))
        node = ring.node(RECEIVER)
        manifest = node.manifest()
        state = _state(node, RECEIVER)
        member = replace(manifest.member(SENDER), address=f"127.0.0.1:{message_port}")
        client = NeighbourClient(state, member)
        stack.callback(client.close)
        envelope = Envelope(manifest.federation, SENDER, "", EXCHANGE)
        expected = ExpectedMessage(envelope, {"x": torch.empty(size // 4)})

        def receive_message() -> None:
            client.request(EXCHANGE, -1)
            client.receive(expected, lambda found: found, lambda: None)

        yield {
            "message": receive_message,
            "plain": lambda: _receive_plain(node, plain_port, size),
        }


@contextmanager
def _server_process(kind: str, folder: Path, size: int) -> Iterator[int]:
    """Start a server and yield its port."""
    command = [sys.executable, "-m", __name__, kind, str(folder), str(size)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line.strip().isdigit():
                raise TacitError(f"The server process {kind!r} of the bench did not start.")
            yield int(line)
        finally:
            process.terminate()


def _state(node: NodeFolder, name: str) -> NodeState:
    active = ActiveRoster.load(node, name, node.manifest())
    return NodeState(node, name, active, EventLog(io.StringIO(), name), 1, "float32")


def _serve_message(node: NodeFolder, size: int) -> None:
    """Serve as a node with one message in its outbox."""
    manifest = node.manifest()
    state = _state(node, SENDER)
    envelope = Envelope(manifest.federation, SENDER, "", EXCHANGE)
    state.active.outbox.put(pack(envelope, {"x": torch.zeros(size // 4)}))
    with serve_peers(state, "127.0.0.1:0") as port:
        print(port, flush=True)
        sys.stdin.read()


def _serve_plain(node: NodeFolder, size: int) -> None:
    """Serve the same number of bytes to every client with a certificate."""
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


def _receive_plain(node: NodeFolder, port: int, size: int) -> None:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, node)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port))) as secure:
        view, at = memoryview(bytearray(size)), 0
        while at < size:
            at += secure.recv_into(view[at : at + CHUNK])


def _context(side: int, node: NodeFolder) -> ssl.SSLContext:
    """Mutual TLS with certificates of the federation, without checks of host names."""
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.load_cert_chain(node.path / "node.pem", node.path / "node.key")
    context.load_verify_locations(node.path / "ca.pem")
    return context


if __name__ == "__main__":
    kind, folder, size = sys.argv[1], FederationFolder(Path(sys.argv[2])), int(sys.argv[3])
    (_serve_message if kind == "message" else _serve_plain)(folder.node(SENDER), size)
