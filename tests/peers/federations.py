"""Federations of real processes on this machine, and the simulations that they must agree with."""

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import shutil
import socket
import threading
import time
from dataclasses import replace

import torch
from safetensors.torch import load_file

from tacit.config.algorithms import make_algorithm_for
from tacit.config.build import build
from tacit.config.loading import make_config
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.operator import create
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.peer.node.local_data import load_local_data
from tacit.peer.node.node import REPEATED_ITERATIONS, Node, NodeOptions
from tacit.privacy.keystreams import KeyRing


def free_ports(count):
    """Free ports, outside the range that the system uses for outgoing connections."""
    found = []
    while len(found) < count:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found += [port] if port not in found else []
    return found


PRIVATE = {"name": "private-sgd", "lr": 0.5, "momentum": 0.9}


def plan(
    algorithm,
    rounds=2,
    iterations=5,
    hidden=16,
    clients=5,
    graph="ring",
    privacy=None,
    model=None,
    **run,
):
    """The configuration of a small perceptron, or of another model, and a few digits."""
    if algorithm == PRIVATE and privacy is None:
        privacy = {"epsilon": 8.0, "delta": 1e-4, "samples": 40 * clients}
    promise = {} if privacy is None else {"privacy": privacy}
    return make_config(
        promise
        | {
            "data": {"name": "mnist-mini", "limit_train": 40 * clients, "limit_test": 50},
            "model": model or {"name": "mlp", "hidden": [hidden]},
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
    return create(folder, "clinics", nodes, config, min_neighbours=1)


def twin(home, folder):
    """A copy of a federation, with the same keys, that has not run yet; see `with_salts`."""
    shutil.copytree(home.path, folder)
    return FederationFolder(folder)


def simulated(home):
    """The final models [N, P] of a simulation with the keys of a federation."""
    simulation, steps = _started(home, home.manifest())
    return _advanced(simulation, steps)


def observed(home):
    """The last record of a simulation with the keys of a federation."""
    simulation, steps = _started(home, home.manifest())
    _advanced(simulation, steps)
    return simulation.observe()


def simulated_through_change(home, before, step):
    """The final models of a simulation in which the roster changes after `step` iterations.

    Args:
        home: The federation, with the roster after the change.
        before: The manifest before the change.
        step: How many iterations were done under it.
    """
    first, _ = _started(home, before)
    theta = _advanced(first, step)[:1]
    second, steps = _started(home, home.manifest())
    # A change keeps the model, and starts everything else again.
    state = replace(second.state, theta=theta.expand(len(home.members), -1))
    second.restore(replace(second.checkpoint(""), state=state, step=step))
    return _advanced(second, steps)


def _started(home, manifest):
    """A simulation with the keys and salts of a federation under one roster, and its length."""
    experiment = build(manifest.config)
    keys = KeyRing(
        manifest.federation,
        manifest.generation,
        [member.name for member in manifest.members],
        [member.mask_key for member in manifest.members],
        {i: home.node(member.name).mask_secret() for i, member in enumerate(manifest.members)},
        salts(home, manifest),
    )
    seed = manifest.config.run.seed
    reserve = REPEATED_ITERATIONS
    algorithm, _ = make_algorithm_for(manifest.config, experiment.task, manifest.graph, reserve)
    setting = Setting(
        algorithm, experiment.task, manifest.graph, seed, gradients="looped", prg=keys
    )
    simulation = Simulation(setting)
    simulation.start()
    return simulation, experiment.steps


def _advanced(simulation, steps):
    """The models after so many iterations, with their local parameters."""
    while simulation.t < steps:
        simulation.step()
    theta, local = simulation.state.theta, simulation.task.local
    return theta if local is None else local.join(theta, simulation.local)


def salts(home, manifest):
    """The salts of the nodes under a roster, by position."""
    stored = {name: stored_salts(home, name, manifest.generation) for name in manifest.names}
    return {at: bytes.fromhex(stored[name][name]) for at, name in enumerate(manifest.names)}


def with_salts(home):
    """The same federation, whose nodes have drawn their salts: its copies will use the same."""
    manifest = home.manifest()
    for position, member in enumerate(manifest.members):
        place = (manifest.config, len(manifest.members), position, member.number, member.name)
        digest = load_local_data(*place, None).digest
        run = home.node(member.name).run
        FreshKeys(run / "checkpoints", manifest.generation).own_salt(member.name, digest)
    return home


def stored_salts(home, name, generation=1):
    """The salts of all members, as one node has stored them."""
    path = home.node(name).run / "checkpoints" / f"salts-{generation:06d}.json"
    return json.loads(path.read_text())["salts"]


def models(home):
    """The final models [N, P] of the nodes of a federation."""
    paths = [home.node(member.name).run / "model.safetensors" for member in home.members]
    return torch.stack([load_file(path)["theta"] for path in paths])


def relative_distance(found, expected):
    """The largest distance between two models of one node, relative to the norm."""
    distances = torch.linalg.norm((found - expected).double(), dim=1)
    return (distances / torch.linalg.norm(expected.double(), dim=1)).max()


def log_of(home, name):
    """The log of a node, in which every line must be JSON."""
    text = (home.node(name).run / "log.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def run_in_turn(folders, names, seconds, options=None):
    """Run several federations one after the other, each node in one process."""
    options = options or NodeOptions()
    context = forkserver()
    processes = {}
    deadline = time.monotonic() + seconds
    try:
        for name in names:
            work = (name, folders, options)
            processes[name] = context.Process(target=_run_nodes, args=work, daemon=True)
            processes[name].start()
        for name, process in processes.items():
            process.join(max(1, deadline - time.monotonic()))
            logs = [FederationFolder(one).node(name).run / "log.jsonl" for one in folders]
            ends = [log.read_text()[-2000:] for log in logs if log.exists()]
            assert process.exitcode == 0, (name, process.exitcode, ends)
    finally:
        for process in processes.values():
            if process.is_alive():
                process.kill()
                process.join()


def forkserver():
    """The context of processes that are forked from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    # Modules of the tests cannot be preloaded: Python 3.11 does not hand its path to the server.
    context.set_forkserver_preload(["tacit.cli.app", "tacit.peer.node.node"])
    return context


def _run_nodes(name, folders, options):
    """Run the node `name` of each federation."""
    die_with_parent()
    torch.set_num_threads(1)
    for folder in folders:
        node = FederationFolder(folder).node(name)
        node.run.mkdir(parents=True, exist_ok=True)
        with (node.run / "log.jsonl").open("a", encoding="utf-8") as log:
            Node(node, options, EventLog(log, name)).run()


def die_with_parent():
    """End this process when the process of the tests ends, also if that is killed."""
    sentinel = multiprocessing.parent_process().sentinel

    def watch():
        multiprocessing.connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
