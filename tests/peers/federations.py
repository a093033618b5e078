"""Federations of real processes on loopback, and the simulation that each must agree with."""

import contextlib
import multiprocessing
import random
import shutil
import socket
import time

import torch
from safetensors.torch import load_file
from worker import be_node

from tacit.config.build import build
from tacit.config.sections import make_config
from tacit.peer.federation.operator import FederationFolder, create
from tacit.privacy.keystreams import KeyRing
from tacit.simulation import Simulation


def free_ports(count):
    """Ports that are free, and not among those that the system gives to outgoing connections."""
    found = []
    while len(found) < count:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found += [port] if port not in found else []
    return found


def plan(algorithm, rounds=2, iterations=5, hidden=16, clients=5, graph="ring", **run):
    """Training of a small perceptron on a few digits."""
    return make_config(
        {
            "data": {"name": "mnist-mini", "limit_train": 40 * clients, "limit_test": 50},
            "model": {"name": "mlp", "hidden": [hidden]},
            "graph": {"kind": graph, "clients": clients},
            "algorithm": algorithm,
            "run": {
                "rounds": rounds,
                "iterations_per_round": iterations,
                "batch_size": 8,
                "seed": 3,
                **run,
            },
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
        manifest.generation,
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
    return torch.stack(
        [load_file(home.node(one.name).run / "model.safetensors")["theta"] for one in members]
    )


def run_in_turn(folders, names, seconds):
    """Run several federations one after the other, each node in a process of its own.

    The processes are forked from one that has imported everything: starting Python takes longer than the run.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tacit.peer.node.node", "worker"])
    processes = {name: context.Process(target=be_node, args=(name, folders)) for name in names}
    for process in processes.values():
        process.start()
    limit = time.monotonic() + seconds
    try:
        for name, process in processes.items():
            process.join(max(1, limit - time.monotonic()))
            assert process.exitcode == 0, (
                name,
                process.exitcode,
                [last_words(one, name) for one in folders],
            )
    finally:
        for process in processes.values():
            if process.is_alive():
                process.kill()
                process.join()


def last_words(folder, name):
    """The end of a node's log."""
    log = FederationFolder(folder).node(name).run / "log.jsonl"
    return log.read_text(encoding="utf-8")[-2000:] if log.exists() else "no log"
