"""Five nodes on a ring that train next to nothing, so that what is left is the cost of being peers."""

from __future__ import annotations

import itertools
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import tacit
from tacit.config.sections import make_config
from tacit.core.errors import TacitError
from tacit.peer.federation.local_processes import LocalFederation
from tacit.peer.federation.operator import FederationFolder, create
from tacit.peer.node.results import read_history

NODES, DEGREE = 5, 2
PARAMETERS = 50_000
ROUND = 10  # iterations
PATIENCE = 240.0  # seconds for a federation to end


def target(name: str) -> tacit.Task:
    """What node n0, n1, … minimises: ‖θ − c‖²/2, which takes next to no time."""
    return _task([_centre(int(name[1:]))])


def federation(
    folder: Path, rule: Mapping[str, Any], rounds: int, ports: list[int]
) -> FederationFolder:
    """Nodes on a ring that minimise `target`."""
    config = make_config(
        {
            "data": {"name": "own", "shape": [1], "classes": 2},
            "graph": {"kind": "ring", "clients": len(ports)},
            "algorithm": dict(rule),
            "run": {"rounds": rounds, "iterations_per_round": ROUND},
        }
    )
    return create(
        folder, "bench", {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports)}, config
    )


def bytes_per_iteration(rule: Mapping[str, Any], rounds: int) -> float:
    """Bytes of all sockets per node and iteration, counted by proxies in front of the nodes."""
    ports, hidden = free_ports(NODES), free_ports(NODES)
    with tempfile.TemporaryDirectory() as base:
        home = federation(Path(base) / "ring", rule, rounds, ports)
        counters = [Counter(*pair) for pair in zip(ports, hidden, strict=True)]
        _train(home, {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(hidden)})
        for counter in counters:
            counter.close()
    return sum(counter.bytes for counter in counters) / NODES / (ROUND * rounds)


def peer_iterations(rule: Mapping[str, Any], rounds: int) -> list[float]:
    """Seconds per iteration of the nodes, round by round, after they found each other."""
    steps: list[float] = []
    with tempfile.TemporaryDirectory() as base:
        home = federation(Path(base) / "ring", rule, rounds, free_ports(NODES))
        _train(home, {})
        for node in range(NODES):
            lines = read_history(home.node(f"n{node}").run / "history.jsonl")
            seconds = [float(line["wall_seconds"]) for line in lines]
            steps += [(after - before) / ROUND for before, after in itertools.pairwise(seconds[2:])]
    return steps


def simulator_iterations(rule: Mapping[str, Any], rounds: int) -> list[float]:
    """Seconds of each iteration of the same experiment in the simulator, as one of the nodes has one thread."""
    options = {key: value for key, value in rule.items() if key != "name"}
    algorithm = tacit.ALGORITHMS[rule["name"]](**options)
    graph = tacit.Topology.ring(NODES).mixing("metropolis")
    simulation = tacit.Simulation(algorithm, _task([_centre(node) for node in range(NODES)]), graph)
    simulation.start()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times: list[float] = []
    try:
        for _ in range(rounds * ROUND):
            simulation.step()
            times.append(time.perf_counter())
    finally:
        torch.set_num_threads(threads)
    return [after - before for before, after in itertools.pairwise(times[2 * ROUND :])]


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Counter:
    """A proxy that counts the bytes it passes on, both ways."""

    def __init__(self, listen: int, to: int) -> None:
        self.bytes = 0
        self._lock = threading.Lock()
        self._to = to
        self._closed = False
        self._socket = socket.create_server(("127.0.0.1", listen))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that stand end with their nodes."""
        self._closed = True
        self._socket.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._socket.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # the node is not there yet: it is asked again
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


def _centre(node: int) -> torch.Tensor:
    return torch.randn(PARAMETERS, generator=torch.Generator().manual_seed(node))


def _task(centres: list[torch.Tensor]) -> tacit.Task:
    return tacit.Task.from_loss(
        lambda theta, c: (theta - c).square().sum() / 2, centres, torch.zeros(PARAMETERS)
    )


def _train(home: FederationFolder, listen: Mapping[str, str]) -> None:
    """Run all nodes to their end."""
    with LocalFederation(home, data=f"{__name__}:target", listen=listen) as local:
        if not local.wait(PATIENCE):
            words = "; ".join(f"{node.name}: {node.last_words()}" for node in local.failed())
            raise TacitError(
                f"The nodes of the bench did not end well. {words or 'They took too long.'}"
            )
