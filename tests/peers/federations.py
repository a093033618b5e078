"""Federations of real processes on loopback, and the simulation that each must agree with."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from tacit.experiment.build import build
from tacit.experiment.config import make_config
from tacit.peer.federation import FederationFolder, create
from tacit.privacy.keystreams import KeyRing
from tacit.simulation import Simulation

WORKER = Path(__file__).with_name("worker.py")


def free_ports(count):
    """Ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def plan(algorithm, rounds=2, iterations=5, hidden=16, clients=5, graph="ring", **run):
    """Training of a small perceptron on a few digits."""
    return make_config(
        {
            "data": {"name": "mnist-mini", "limit_train": 40 * clients, "limit_test": 50},
            "model": {"name": "mlp", "hidden": [hidden]},
            "graph": {"kind": graph, "clients": clients},
            "algorithm": algorithm,
            "run": {"rounds": rounds, "iterations_per_round": iterations, "batch_size": 8, "seed": 3, **run},
        }
    )


def federation(folder, config, clients=5):
    """A federation of nodes n0, n1, … on this machine."""
    nodes = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(clients))}
    return create(folder, "clinics", nodes, config)


def twin(home, folder):
    """The same federation with the same keys in another folder, before it has run."""
    shutil.copytree(home.path, folder)
    return FederationFolder(folder)


def simulated(home):
    """The models [N, P] that a simulation with the keys of a federation ends with."""
    manifest = home.manifest()
    experiment = build(manifest.config)
    keys = KeyRing(
        manifest.federation,
        manifest.epoch,
        [member.name for member in manifest.members],
        [member.mask_key for member in manifest.members],
        {i: home.node(member.name).mask_secret() for i, member in enumerate(manifest.members)},
    )
    simulation = Simulation(
        experiment.algorithm, experiment.task, manifest.graph, seed=manifest.config.run.seed,
        gradients="looped", prg=keys,
    )  # fmt: skip
    simulation.start()
    for _ in range(experiment.steps):
        simulation.step()
    return simulation.state.theta


def models(home):
    """The models [N, P] that the nodes of a federation have left."""
    members = home.manifest().members
    return torch.stack([load_file(home.node(one.name).run / "model.safetensors")["theta"] for one in members])


def run_in_turn(folders, names, seconds):
    """Run several federations one after the other, each node in a process of its own; what the processes printed."""
    commands = {name: [sys.executable, str(WORKER), name, *map(str, folders)] for name in names}
    processes = {
        name: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for name, command in commands.items()
    }
    limit = time.monotonic() + seconds
    said = {}
    try:
        for name, process in processes.items():
            out, _ = process.communicate(timeout=max(1, limit - time.monotonic()))
            said[name] = out.decode(errors="replace")
            assert process.returncode == 0, said[name][-3000:]
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
    return said
