"""Nodes that start over: their noise and masks are new, whatever the algorithm.

The order of a careful operator: a trial with public data, `rm -rf run`, then the real data. If both
runs had the same noise, the difference of the victim's first messages would be that of two
gradients, and a neighbour that knows the trial data would have the gradient of the real ones.
"""

import io
import shutil

import numpy as np
import pytest
import torch
from chaos import FRESH, LONG, ForkedFederation, logged, run_in_threads, until, until_step
from federations import (
    PRIVATE,
    federation,
    models,
    plan,
    relative_distance,
    simulated,
    stored_salts,
)

from tacit.config.loading import make_config
from tacit.engines.gradients.objective import HostedObjective
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.checkpoint_store import CheckpointStore
from tacit.peer.node.node import Node, NodeOptions
from tacit.peer.wire.messages import ExchangeId, ExpectedMessage

NAMES, VICTIM = ["n0", "n1", "n2"], "n0"
SAMPLES, WIDTH, LR = 40, 6, 0.1
LARGE = {"law": "gaussian", "scale": 10.0}
PROMISE = {"epsilon": 2.0, "delta": 1e-4, "samples": SAMPLES * len(NAMES)}
# Each algorithm, and the tensors of its first message; the last one depends on the gradient.
ALGORITHMS = {
    "lppa": ({"name": "lppa", "lr": LR, "noise": LARGE}, ("theta", "gamma")),
    "mdsg": ({"name": "mdsg", "lr": LR, "noise": LARGE}, ("psi",)),
    "decor": ({"name": "decor", "lr": LR}, ("theta",)),
}


def configuration(algorithm):
    values = {
        "data": {"name": "own", "shape": [WIDTH], "classes": 2},
        "model": {"name": "mlp", "hidden": [8]},
        "graph": {"kind": "ring", "clients": len(NAMES)},
        "algorithm": algorithm,
        "run": {"rounds": 1, "iterations_per_round": 1, "batch_size": 10, "seed": 3},
    }
    promise = {"privacy": PROMISE} if algorithm["name"] == "decor" else {}
    return make_config(values | promise)


def write_data(folder, seed):
    """Data of all nodes; {name} in the result stands for a node's name."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    for name in NAMES:
        x = rng.normal(size=(SAMPLES, WIDTH)).astype(np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    return f"{folder}/{{name}}.npz"


@pytest.fixture
def gradients(monkeypatch):
    """All gradients that the victim computes."""
    found = []

    def record(method):
        compute = getattr(HostedObjective, method)

        def recorded(self, *arguments):
            result = compute(self, *arguments)
            if list(self.clients) == [NAMES.index(VICTIM)]:
                found.append(result[0].double().clone())
            return result

        monkeypatch.setattr(HostedObjective, method, recorded)

    record("grad")
    record("clipped_sum")
    return found


def first_message(home, tags):
    """The last tensor that the victim sent in iteration 1, from the outbox that it has saved."""
    store = CheckpointStore(home.node(VICTIM).run / "checkpoints")
    checkpoint, _ = store.load(home.manifest().federation)
    (message,) = (one for one in checkpoint.messages if one.envelope.exchange.tick == 1)
    assert message.envelope.exchange == ExchangeId(1, 1, 0)
    expected = ExpectedMessage(message.envelope, dict.fromkeys(tags, checkpoint.state["theta"][0]))
    return expected.unpack(bytearray(message.frame))[tags[-1]].double()


def factor(home, data):
    """What the gradient is multiplied with in the first message."""
    options = NodeOptions(data.replace("{name}", VICTIM))
    algorithm = Node(home.node(VICTIM), options, EventLog(io.StringIO(), VICTIM)).algorithm
    if algorithm.name == "lppa":
        return 1.0
    return -LR / (algorithm.mechanism.expected_each if algorithm.name == "decor" else 1)


@pytest.mark.parametrize("label", ALGORITHMS)
def test_the_difference_of_two_first_messages_does_not_give_the_gradient(
    tmp_path, gradients, label
):
    algorithm, tags = ALGORITHMS[label]
    home = federation(tmp_path / "f", configuration(algorithm), clients=len(NAMES))
    trial, real = write_data(tmp_path / "trial", 1), write_data(tmp_path / "real", 2)
    messages, truth = [], []
    for data in (trial, real):
        gradients.clear()
        run_in_threads(home, data=data)
        messages.append(first_message(home, tags))
        truth.append(gradients[0])
        for name in NAMES:
            shutil.rmtree(home.node(name).run)
    # A neighbour knows the trial data, and so the gradient of the trial.
    guess = truth[0] + (messages[1] - messages[0]) / factor(home, real)
    error = float(torch.linalg.norm(guess - truth[1]) / torch.linalg.norm(truth[1]))
    print(f"{label}: relative error {100 * error:.4f} %")
    assert error > 10


def test_the_ends_of_a_directed_edge_have_the_same_keys(tmp_path):
    """The source of an edge hears of the target's salt only through others."""
    config = plan(FRESH, rounds=1, hidden=4, clients=4, graph="directed-ring")
    graph = config.graph.model_copy(update={"lazy": True, "mixing": "sinkhorn"})
    config = config.model_copy(update={"graph": graph})
    home = federation(tmp_path / "f", config, clients=4)
    assert home.manifest().graph.directed
    run_in_threads(home)
    assert relative_distance(models(home), simulated(home)) < 1e-6


def test_one_node_that_lost_its_state_has_another_salt_waits_and_says_why(tmp_path):
    """Its neighbours have stored the old salt, which they pass on."""
    home = federation(tmp_path / "f", plan(PRIVATE, rounds=50, hidden=4))
    run = home.node("n2").run
    with ForkedFederation(home, save_seconds=LONG) as running:
        until_step(home, 5)
        node = running.nodes["n2"]
        node.process.kill()
        node.process.wait()
        before = stored_salts(home, "n2")["n2"]
        shutil.rmtree(run)
        running.start("n2")
        until((run / "log.jsonl").exists, "n2 is back")
        until(lambda: logged(home, "n2", "rejected"), "the old salt is rejected")
        assert "another salt of n2" in logged(home, "n2", "rejected")[0]["why"]
        assert stored_salts(home, "n2")["n2"] != before
        # It has sent nothing but its new salt.
        assert not list(run.glob("checkpoints/masked-*.log"))


def test_after_a_crash_a_node_that_computes_something_else_sends_nothing(tmp_path):
    home = federation(tmp_path / "f", plan(FRESH, rounds=50, hidden=4))
    record = home.node("n2").run / "checkpoints" / "masked-000001.log"
    # It continues from the first checkpoint.
    with ForkedFederation(home, save_seconds=LONG) as running:
        until_step(home, 5)
        running.nodes["n2"].process.kill()
        running.nodes["n2"].process.wait()
        lines = record.read_text().splitlines()
        place, digest = lines[2].split()
        lines[2] = f"{place} {'0' * len(digest)}"
        record.write_text("".join(f"{line}\n" for line in lines))
        running.start("n2")
        until(running.failed, "n2 stops")
        assert (
            f"another message in iteration {place.split('-')[0]}"
            in running.nodes["n2"].last_error()
        )
    assert record.read_text().splitlines() == lines
