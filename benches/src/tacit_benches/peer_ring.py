"""Five nodes on a ring with a trivial task, so that the cost of communication remains."""

from __future__ import annotations

import itertools
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from tacit.algorithms import ALGORITHMS
from tacit.config.loading import make_config
from tacit.core.errors import TacitError
from tacit.core.workers import torch_threads
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.graph import Topology
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.local_processes import LocalFederation
from tacit.peer.federation.operator import create
from tacit.peer.node.results import read_history
from tacit.tasks import Objective, Task

NODES, DEGREE = 5, 2
PARAMETERS = 50_000
ROUND = 10  # iterations
TIMEOUT = 240.0  # seconds for a federation to finish


def target(name: str) -> Objective:
    """The task of node n0, n1, …: minimise ‖θ − c‖²/2, which takes next to no time."""
    return _task([int(name[1:])])


def create_ring(
    folder: Path, rule: Mapping[str, Any], rounds: int, ports: list[int]
) -> FederationFolder:
    """A federation on a ring that minimises `target`, with a node for each port."""
    config = make_config(
        {
            "data": {"name": "own", "shape": [1], "classes": 2},
            "graph": {"kind": "ring", "clients": len(ports)},
            "algorithm": dict(rule),
            "run": {"rounds": rounds, "iterations_per_round": ROUND},
        }
    )
    return create(folder, "bench", _addresses(ports), config)


def bytes_per_iteration(rule: Mapping[str, Any], rounds: int) -> float:
    """Bytes of all sockets per node and iteration, counted by proxies in front of the nodes."""
    ports, hidden = free_ports(NODES), free_ports(NODES)
    with tempfile.TemporaryDirectory() as base:
        folder = create_ring(Path(base) / "ring", rule, rounds, ports)
        proxies = [CountingProxy(*pair) for pair in zip(ports, hidden, strict=True)]
        _train(folder, listen=_addresses(hidden))
        for proxy in proxies:
            proxy.close()
    return sum(proxy.bytes for proxy in proxies) / NODES / (ROUND * rounds)


def peer_iterations(rule: Mapping[str, Any], rounds: int) -> list[float]:
    """Seconds per iteration of the nodes, averaged over each round, without the first rounds."""
    steps: list[float] = []
    with tempfile.TemporaryDirectory() as base:
        folder = create_ring(Path(base) / "ring", rule, rounds, free_ports(NODES))
        _train(folder, listen={})
        for member in folder.members:
            history = read_history(folder.node(member.name).run / "history.jsonl")
            seconds = [float(record["wall_seconds"]) for record in history]
            steps += [(after - before) / ROUND for before, after in itertools.pairwise(seconds[2:])]
    return steps


def simulator_iterations(rule: Mapping[str, Any], rounds: int) -> list[float]:
    """Seconds of each iteration of the same experiment in the simulator, with one thread."""
    options = {key: value for key, value in rule.items() if key != "name"}
    algorithm = ALGORITHMS[rule["name"]](**options)
    graph = Topology.ring(NODES).mixing("metropolis")
    simulation = Simulation(Setting(algorithm, _task(range(NODES)), graph))
    simulation.start()
    times: list[float] = []
    with torch_threads(1):
        for _ in range(rounds * ROUND):
            simulation.step()
            times.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(times[2 * ROUND :])]


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class CountingProxy:
    """A TCP proxy that counts the bytes in both directions."""

    def __init__(self, listen: int, to: int) -> None:
        self.bytes = 0
        self._lock = threading.Lock()
        self._to = to
        self._closed = False
        self._socket = socket.create_server(("127.0.0.1", listen))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections; open ones end with their nodes."""
        self._closed = True
        self._socket.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._socket.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
            # The node does not listen yet: the caller will try again.
            except OSError:
                continue
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                with self._lock:
                    self.bytes += len(data)
                target.sendall(data)
        except OSError:
            pass
        finally:
            target.close()


def _addresses(ports: list[int]) -> dict[str, str]:
    return {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports)}


def _task(nodes: Iterable[int]) -> Objective:
    centres = [
        torch.randn(PARAMETERS, generator=torch.Generator().manual_seed(node)) for node in nodes
    ]
    return Task(
        torch.zeros(PARAMETERS), centres, loss=lambda theta, c: (theta - c).square().sum() / 2
    )


def _train(folder: FederationFolder, listen: Mapping[str, str]) -> None:
    with LocalFederation(folder, data=f"{__name__}:target", listen=listen) as local:
        if not local.wait(TIMEOUT):
            reasons = "; ".join(f"{node.name}: {node.last_error()}" for node in local.failed())
            raise TacitError(
                f"The nodes of the bench did not finish. {reasons or 'They took too long.'}"
            )
