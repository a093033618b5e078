"""What peers cost: bytes on the wire, the speed of a large letter, and the time that an iteration takes on top.

    python benches/peers.py            all of it, on loopback
    python benches/peers.py bytes|speed|overhead

bytes      what really goes through the sockets per iteration, counted by proxies in front of the nodes, against the
           2·P·4·out-degree that the numbers of DSGT take
speed      a letter of 100 MB pulled over mutual TLS, against the same bytes through a plain TLS socket, in turns
overhead   an iteration of five nodes on a ring, 50,000 parameters, against one of the simulator on the same task
"""

from __future__ import annotations

import hashlib
import io
import itertools
import multiprocessing
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

import tacit
from tacit.errors import Misuse
from tacit.experiment.config import make_config
from tacit.peer.federation import FederationFolder, create
from tacit.peer.frames import Address, Envelope, Expected, pack
from tacit.peer.local import LocalFederation
from tacit.peer.results import read_history

PARAMETERS = 50_000
HERE = Path(__file__).parent
LETTER = 100_000_000  # bytes


def target(name: str) -> tacit.Task:
    """What a node of these benches minimises: ‖θ − c‖²/2, which takes next to no time."""
    generator = torch.Generator().manual_seed(int(name[1:]))
    centre = torch.randn(PARAMETERS, generator=generator)
    return tacit.Task.from_loss(
        lambda theta, c: (theta - c).square().sum() / 2, [centre], torch.zeros(PARAMETERS)
    )


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def federation(folder: Path, algorithm: dict[str, object], rounds: int, ports: list[int]) -> FederationFolder:
    """Nodes on a ring that minimise `target`."""
    config = make_config(
        {
            "data": {"name": "own", "shape": [1], "classes": 2},
            "graph": {"kind": "ring", "clients": len(ports)},
            "algorithm": algorithm,
            "run": {"rounds": rounds, "iterations_per_round": 10},
        }
    )
    return create(folder, "bench", {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports)}, config)


class Counter:
    """A proxy that counts the bytes it passes on, both ways."""

    def __init__(self, listen: int, to: int) -> None:
        self.bytes = 0
        self._lock = threading.Lock()
        self._to = to
        self._socket = socket.create_server(("127.0.0.1", listen))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                continue
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(1 << 16):
                with self._lock:
                    self.bytes += len(data)
                other.sendall(data)
        except OSError:
            pass
        finally:
            other.close()


def bench_bytes() -> None:
    """Bytes per iteration and node, of the whole connection: TLS, HTTP/2, questions and answers."""
    rounds, sent = 20, {}
    for algorithm in ("dsgt", "lppa"):
        with tempfile.TemporaryDirectory() as base:
            ports, hidden = free_ports(5), free_ports(5)
            home = federation(Path(base) / "f", {"name": algorithm, "lr": 0.05}, rounds, ports)
            counters = [Counter(*pair) for pair in zip(ports, hidden, strict=True)]
            listen = {name: f"127.0.0.1:{port}" for name, port in zip(names(home), hidden, strict=True)}
            with LocalFederation(home, data="peers:target", listen=listen) as local:
                assert local.wait(120), "a node failed"
            sent[algorithm] = sum(counter.bytes for counter in counters) / 5 / (10 * rounds)
    numbers = 2 * PARAMETERS * 4 * 2
    for algorithm, amount in sent.items():
        print(
            f"bytes     {algorithm:5} {amount:,.0f} per node and iteration = {amount / numbers:.4f} × 2·P·4·degree"
        )
    print(f"bytes     lppa / dsgt = {sent['lppa'] / sent['dsgt']:.4f}")


def names(home: FederationFolder) -> list[str]:
    """The nodes of a federation."""
    return [member.name for member in home.manifest().members]


def bench_overhead() -> None:
    """Median time of an iteration of five nodes, less what the simulator takes for the same iteration."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as base:
        home = federation(Path(base) / "f", {"name": "lppa", "lr": 0.05}, 30, free_ports(5))
        with LocalFederation(home, data="peers:target") as local:
            assert local.wait(120), "a node failed"
        steps = []
        for name in names(home):
            seconds = [line["wall_seconds"] for line in read_history(home.node(name).run / "history.jsonl")]
            steps += [(b - a) / 10 for a, b in itertools.pairwise(seconds[3:])]
    centres = [target(f"n{i}").parts[0][0] for i in range(5)]
    task = tacit.Task.from_loss(
        lambda theta, c: (theta - c).square().sum() / 2, centres, torch.zeros(PARAMETERS)
    )
    graph = tacit.Topology.ring(5).mixing("metropolis")
    times: list[float] = []
    tacit.simulate(
        tacit.LPPA(lr=0.05), task, graph, steps=300, record_every=300,
        progress=lambda simulation: times.append(time.perf_counter()),
    )  # fmt: skip
    own = statistics.median(b - a for a, b in itertools.pairwise(times[20:]))
    here = statistics.median(steps)
    print(
        f"overhead  an iteration of five peers takes {1e3 * here:.1f} ms (median; 10 to 90 %: "
        f"{1e3 * quantile(steps, 0.1):.1f} to {1e3 * quantile(steps, 0.9):.1f}), of the simulator {1e3 * own:.1f} ms: "
        f"{1e3 * (here - own):.1f} ms on top"
    )


def quantile(values: list[float], q: float) -> float:
    """A quantile of some times."""
    return sorted(values)[int(q * (len(values) - 1))]


def serve_letter(folder: str, ready: multiprocessing.Queue[int], done: multiprocessing.Event) -> None:
    """A node that has one large letter."""
    from tacit.peer.desk import Desk, Standing
    from tacit.peer.journal import Journal
    from tacit.peer.measures import Measures
    from tacit.peer.outbox import Outbox
    from tacit.peer.server import Service
    from tacit.peer.transport import listen

    node = FederationFolder(Path(folder)).node("n0")
    manifest = node.manifest()
    outbox = Outbox.to(1, ["n1"])
    rows = {"x": torch.zeros(LETTER // 4)}
    outbox.post(pack(Envelope(manifest.federation, "n0", "", Address(1, 1, 0)), rows))
    desk = Desk(node, "n0", Standing(manifest, outbox), Measures(), Journal(sys.stderr, "n0"), 1, "float32")
    server, port = listen("127.0.0.1:0", [Service(desk).handlers()], 4, node.credentials(), node.ca())
    ready.put(port)
    done.wait()
    server.stop(0)


def serve_plain(folder: str, ready: multiprocessing.Queue[int]) -> None:
    """The same bytes by a plain TLS socket with both certificates."""
    path = FederationFolder(Path(folder)).node("n0").path
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path / "node.pem", path / "node.key")
    context.load_verify_locations(path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    listening = socket.create_server(("127.0.0.1", 0))
    ready.put(listening.getsockname()[1])
    data = memoryview(bytes(LETTER))
    while True:
        raw, _ = listening.accept()
        with context.wrap_socket(raw, server_side=True) as secure:
            for at in range(0, LETTER, 1 << 20):
                secure.sendall(data[at : at + (1 << 20)])


def pull_plain(folder: Path, port: int) -> float:
    """Seconds to get the bytes by a plain TLS socket."""
    path = FederationFolder(folder).node("n1").path
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(path / "node.pem", path / "node.key")
    context.load_verify_locations(path / "ca.pem")
    context.check_hostname = False
    began = time.perf_counter()
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port))) as secure:
        view, at = memoryview(bytearray(LETTER)), 0
        while at < LETTER:
            at += secure.recv_into(view[at : at + (1 << 20)])
    return time.perf_counter() - began


def bench_speed() -> None:
    """The ratio of speeds, medians of turns."""
    from dataclasses import replace

    from tacit.peer.desk import Desk, Standing
    from tacit.peer.journal import Journal
    from tacit.peer.line import Line
    from tacit.peer.measures import Measures
    from tacit.peer.outbox import Outbox

    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "f"
        home = federation(folder, {"name": "dsgt", "lr": 0.1}, 1, free_ports(2))
        context = multiprocessing.get_context("spawn")
        ready, done = context.Queue(), context.Event()
        peer = context.Process(target=serve_letter, args=(str(folder), ready, done), daemon=True)
        peer.start()
        peer_port = ready.get()
        plain = context.Process(target=serve_plain, args=(str(folder), ready), daemon=True)
        plain.start()
        plain_port = ready.get()
        node = home.node("n1")
        manifest = node.manifest()
        desk = Desk(
            node,
            "n1",
            Standing(manifest, Outbox.to(1, [])),
            Measures(),
            Journal(io.StringIO(), "n1"),
            1,
            "float32",
        )
        member = replace(manifest.member("n0"), address=f"127.0.0.1:{peer_port}")
        line = Line(desk, member, node.credentials(), node.ca())
        address = Address(1, 1, 0)
        envelope = Envelope(manifest.federation, "n0", "", address)
        expected = Expected(envelope, {"x": torch.empty(LETTER // 4)})
        ours, theirs = [], []
        for turn in range(8):
            theirs.append(pull_plain(folder, plain_port))
            began = time.perf_counter()
            line.receive(line.ask(address, -1), address, expected, lambda found: found, lambda: None)
            ours.append(time.perf_counter() - began)
            if turn == 0:
                ours.clear(), theirs.clear()  # connecting
        line.close()
        done.set()
        plain.terminate()
        peer.join(5)
    fast, slow = LETTER / statistics.median(theirs) / 1e6, LETTER / statistics.median(ours) / 1e6
    hashing = time.perf_counter()
    hashlib.sha256(bytes(LETTER)).digest()
    hashing = LETTER / (time.perf_counter() - hashing) / 1e6
    print(
        f"speed     a letter of 100 MB: {slow:.0f} MB/s, a plain TLS socket: {fast:.0f} MB/s: ratio {slow / fast:.2f} "
        f"(SHA-256, which checks the letter: {hashing:.0f} MB/s)"
    )


BENCHES = {"bytes": bench_bytes, "speed": bench_speed, "overhead": bench_overhead}

if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    for wanted in sys.argv[1:] or BENCHES:
        if wanted not in BENCHES:
            raise Misuse(f"There is no bench {wanted!r}.", f"Choose from {', '.join(BENCHES)}.")
        BENCHES[wanted]()
