"""A node is removed, another one joins: the others rebuild W, restart the tracking and continue."""

import json
import signal

import pytest
import torch
from chaos import ForkedFederation, announce, logged, until_status, until_step
from federations import federation, free_ports, models, plan
from safetensors import safe_open

from tacit.peer.federation.operator import add, remove
from tacit.peer.node.checkpoint_store import CheckpointStore

STEPS = 250


def newest_states(home):
    """The states in the newest checkpoints of the members."""
    states = {}
    for member in home.members:
        path = CheckpointStore(home.node(member.name).run / "checkpoints").newest_first()[0]
        with safe_open(path, framework="pt") as file:
            states[member.name] = {tag: file.get_tensor(tag) for tag in file.keys()}  # noqa: SIM118
    return states


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Four nodes on a ring: n3 is killed and removed, n4 joins. Also what was observed."""
    config = plan(
        {"name": "lppa", "lr": 0.02, "fresh": True},
        rounds=STEPS // 10, iterations=10, clients=4, evaluate_every=5,
    )  # fmt: skip
    home = federation(tmp_path_factory.mktemp("changing") / "f", config, clients=4)
    seen = {}
    with ForkedFederation(home, save_seconds=0.5) as local:
        until_step(home, 20, ["n0", "n1", "n2", "n3"])
        local.nodes["n3"].process.send_signal(signal.SIGKILL)
        local.nodes["n3"].process.wait()
        del local.nodes["n3"]
        before = home.manifest()
        seen["removed"] = remove(home.path, "n3")
        seen["answers to removal"] = announce(home, before)
        until_status(
            home,
            lambda status: (
                status.generation == 2 and status.phase == "training" and status.step >= 60
            ),
            local,
        )
        before = home.manifest()
        seen["added"] = add(home.path, "n4", f"127.0.0.1:{free_ports(1)[0]}")
        seen["answers to addition"] = announce(home, before)
        local.start("n4")
        assert local.wait(120), [(node.name, node.last_error()) for node in local.failed()]
    return home, seen


def test_the_others_learn_of_it_and_finish(changed):
    home, seen = changed
    refused = {name for name, problem in seen["answers to removal"].items() if problem}
    assert refused == {"n3"}
    assert seen["answers to removal"].keys() == {"n0", "n1", "n2", "n3"}
    assert set(seen["answers to addition"].values()) == {""}
    for name in ("n0", "n1", "n2"):
        changes = [line["generation"] for line in logged(home, name, "roster changed")]
        assert changes == [2, 3]
    for member in home.members:
        summary = json.loads((home.node(member.name).run / "summary.json").read_text())
        assert summary["steps"] == STEPS


def test_the_weights_are_those_of_the_new_graphs(changed):
    _, seen = changed
    names = {"removed": ["n0", "n1", "n2"], "added": ["n0", "n1", "n2", "n4"]}
    for change, members in names.items():
        assert [member.name for member in seen[change].members] == members
        assert seen[change].graph.doubly_stochastic


def test_the_trackers_sum_to_the_gradients_again(changed):
    """Σγ = Σ∇L, which would not hold again without a restart after a node was lost."""
    home, _ = changed
    states = newest_states(home)
    assert sorted(states) == ["n0", "n1", "n2", "n4"]
    gamma = torch.stack([state["gamma"][0].double() for state in states.values()]).sum(0)
    grad = torch.stack([state["grad"][0].double() for state in states.values()]).sum(0)
    assert torch.linalg.norm(gamma - grad) < 1e-4 * torch.linalg.norm(grad)


def test_a_new_node_starts_with_the_current_model(changed):
    home, _ = changed
    first, others = (
        json.loads((home.node(name).run / "history.jsonl").read_text().splitlines()[0])
        for name in ("n4", "n0")
    )
    assert first["generation"] == 3
    assert first["step"] >= 60
    assert first["loss"] < others["loss"]  # of an untrained model


def test_all_finish_with_nearly_the_same_model(changed):
    home, _ = changed
    final = models(home).double()
    spread = torch.linalg.norm(final - final.mean(0), dim=1).max()
    assert spread < 0.2 * torch.linalg.norm(final.mean(0))
