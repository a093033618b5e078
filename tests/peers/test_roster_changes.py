"""A node leaves for good, another one joins: the others rebuild W, restart the tracking, and go on."""

import json
import signal
import time

import pytest
import torch
from chaos import ForkedFederation
from federations import federation, free_ports, models, plan
from safetensors import safe_open

from tacit.peer.federation import operator as files
from tacit.peer.federation.client import FederationClient

STEPS = 250


def log_of(home, name):
    text = (home.node(name).run / "log.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def statuses(home):
    enquiry = FederationClient(home.manifest(), home.operator(), home.ca())
    try:
        return {answer.member.name: answer.status for answer in enquiry.status(2.0)}
    finally:
        enquiry.close()


def wait_for(home, condition, local, seconds=90):
    """Ask until all nodes that answer meet a condition, and all members answer."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        told = statuses(home)
        if all(status is not None and condition(status) for status in told.values()):
            return told
        assert not local.failed(), [node.last_words() for node in local.failed()]
        time.sleep(0.1)
    raise AssertionError({name: str(status) for name, status in statuses(home).items()})


def announce(home, before):
    enquiry = FederationClient(before, home.operator(), home.ca())
    told = enquiry.announce(*home.signed())
    enquiry.close()
    return told


def newest_states(home):
    """The states of the members in their newest checkpoints."""
    states = {}
    for member in home.manifest().members:
        path = sorted(
            (home.node(member.name).run / "checkpoints").glob("generation-*.safetensors")
        )[-1]
        with safe_open(path, framework="pt") as file:
            states[member.name] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return states


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Four nodes on a ring, of which n3 dies and is removed, and n4 joins; what was seen in between."""
    base = tmp_path_factory.mktemp("changing")
    config = plan(
        {"name": "lppa", "lr": 0.02, "fresh": True},
        rounds=STEPS // 10,
        iterations=10,
        clients=4,
        evaluate_every=5,
    )
    home = federation(base / "f", config, clients=4)
    seen = {}
    with ForkedFederation(home, save_seconds=0.5) as local:
        wait_for(home, lambda status: status.step >= 20, local)
        local.nodes["n3"].process.send_signal(signal.SIGKILL)
        local.nodes.pop("n3").process.wait()
        before = home.manifest()
        seen["removed"] = files.remove(home.path, "n3")
        seen["told of removal"] = announce(home, before)
        wait_for(
            home,
            lambda status: (
                status.generation == 2 and status.phase == "training" and status.step >= 60
            ),
            local,
        )
        before = home.manifest()
        seen["added"] = files.add(home.path, "n4", f"127.0.0.1:{free_ports(1)[0]}")
        told = announce(home, before)
        seen["told of joining"] = told
        seen["at joining"] = max(
            status.step for status in statuses(home).values() if status is not None
        )
        local.start("n4")
        assert local.wait(120), [(node.name, node.last_words()) for node in local.failed()]
    return home, seen


def test_the_others_hear_of_it_and_end(changed):
    home, seen = changed
    assert {name for name, problem in seen["told of removal"].items() if not problem} == {
        "n0",
        "n1",
        "n2",
    }
    assert seen["told of removal"]["n3"]
    assert set(seen["told of joining"].values()) == {""}
    for name in ("n0", "n1", "n2"):
        changes = [
            line["generation"] for line in log_of(home, name) if line["event"] == "roster changed"
        ]
        assert changes == [2, 3]
    for member in home.manifest().members:
        assert (
            json.loads((home.node(member.name).run / "summary.json").read_text())["steps"] == STEPS
        )


def test_the_weights_are_those_of_the_new_graphs(changed):
    _, seen = changed
    for manifest, names in (
        (seen["removed"], ["n0", "n1", "n2"]),
        (seen["added"], ["n0", "n1", "n2", "n4"]),
    ):
        assert [member.name for member in manifest.members] == names
        assert manifest.graph.doubly_stochastic


def test_the_trackers_sum_to_the_gradients_again(changed):
    """Σγ = Σ∇L, which a node that dies breaks for ever without a restart of the tracking."""
    home, _ = changed
    states = newest_states(home)
    assert sorted(states) == ["n0", "n1", "n2", "n4"]
    gamma = torch.stack([state["gamma"][0].double() for state in states.values()]).sum(0)
    grad = torch.stack([state["grad"][0].double() for state in states.values()]).sum(0)
    assert torch.linalg.norm(gamma - grad) < 1e-4 * torch.linalg.norm(grad)


def test_the_newcomer_begins_with_the_current_model(changed):
    home, _ = changed
    lines = (home.node("n4").run / "history.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    others = json.loads((home.node("n0").run / "history.jsonl").read_text().splitlines()[0])
    assert first["generation"] == 3
    assert first["step"] >= 60
    assert first["loss"] < others["loss"]  # that of a first model


def test_all_end_with_nearly_the_same_model(changed):
    home, _ = changed
    final = models(home).double()
    spread = torch.linalg.norm(final - final.mean(0), dim=1).max()
    assert spread < 0.2 * torch.linalg.norm(final.mean(0))
