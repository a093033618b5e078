"""Real processes go on without a member that is gone, and with it when it is back."""

import json
from types import SimpleNamespace

import pytest
import torch
from chaos import NAMES, ForkedFederation, frozen, logged, monitored, until, until_step
from federations import PRIVATE, free_ports, models, plan
from partitions import DividedNetwork

from tacit.config.loading import make_config
from tacit.peer.federation.operator import create

PATIENCE = "4s"
# So little that two runs with other masks end with nearly the same accuracy.
NOISE = {"law": "laplace", "scale": 0.001}


def config(algorithm=None, rounds=30):
    return make_config({
        "data": {"name": "mnist-mini", "limit_train": 2000, "limit_test": 1000},
        "model": {"name": "linear"},
        "graph": {"kind": "ring", "clients": 5},
        "algorithm": algorithm or {"name": "lppa", "lr": 0.1, "noise": NOISE},
        "run": {"rounds": rounds, "iterations_per_round": 10, "batch_size": 64, "seed": 3,
                "evaluate_every": 10},
    })  # fmt: skip


def patient(folder, settings, patience=PATIENCE):
    """A federation of n0 … n4 on this machine, whose patience ends."""
    nodes = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(5), strict=True)}
    return create(folder, "clinics", nodes, settings, patience=patience)


def suspended(home, name):
    """The members that are suspended according to a node; None if it does not run."""
    status = monitored(home, name)
    return None if status is None else set(status["suspended"])


def summaries(home, names):
    return {name: json.loads((home.node(name).run / "summary.json").read_text()) for name in names}


def until_finished(running, names):
    until(
        lambda: all(running.nodes[name].process.poll() is not None for name in names),
        f"{names} have ended",
    )
    assert {running.nodes[name].process.returncode for name in names} == {0}, [
        running.nodes[name].last_error() for name in names
    ]


def test_the_others_go_on_without_a_member_that_was_killed_for_good(tmp_path):
    rest = [name for name in NAMES if name != "n2"]
    without = patient(tmp_path / "without", config())
    with ForkedFederation(without, save_seconds=1) as running:
        # It is never started, in effect.
        running.nodes["n2"].process.kill()
        until_finished(running, rest)
    home = patient(tmp_path / "f", config())
    with ForkedFederation(home, save_seconds=1) as running:
        until_step(home, 20)
        running.nodes["n2"].process.kill()
        until(lambda: all(suspended(home, name) == {"n2"} for name in rest), "n2 is suspended")
        since = monitored(home, "n0")["suspended"]["n2"]
        until_finished(running, rest)
    assert since > 1_600_000_000
    for name in rest:
        (change,) = logged(home, name, "roster changed")
        assert (change["generation"], change["epoch"], change["members"]) == (1, 1, rest)
    found, expected = summaries(home, rest), summaries(without, rest)
    assert {one["steps"] for one in found.values()} == {300}
    for name in rest:
        assert found[name]["accuracy"] > 80
    mean = [sum(one["accuracy"] for one in each.values()) / 4 for each in (found, expected)]
    assert abs(mean[0] - mean[1]) <= 1.0, mean


@pytest.fixture
def divided(tmp_path):
    """A federation whose network can be divided, while it trains."""
    home = patient(tmp_path / "f", config(rounds=2000))
    fronts = [int(member.address.rpartition(":")[2]) for member in home.members]
    backs = free_ports(len(NAMES))
    listen = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, backs, strict=True)}
    ports = dict(zip(NAMES, zip(fronts, backs, strict=True), strict=True))
    with (
        DividedNetwork(ports) as network,
        ForkedFederation(home, save_seconds=1, listen=listen) as running,
    ):
        network.pids = {name: node.process.pid for name, node in running.nodes.items()}
        yield SimpleNamespace(home=home, running=running, network=network)


def test_of_two_and_three_the_three_go_on_and_all_agree_afterwards(divided):
    home, two, three = divided.home, ["n0", "n1"], ["n2", "n3", "n4"]
    until_step(home, 10)
    divided.network.divide(two, three)
    until(lambda: all(suspended(home, name) == set(two) for name in three), "the three agree")
    waiting = [monitored(home, name)["step"] for name in two]
    furthest = max(monitored(home, name)["step"] for name in three)
    until_step(home, furthest + 30, three)
    assert [monitored(home, name)["step"] for name in two] == waiting
    assert [suspended(home, name) for name in two] == [set(), set()]
    divided.network.heal()
    until(lambda: all(suspended(home, name) == set() and monitored(home, name)["epoch"] >= 2
                      for name in NAMES), "all are back")  # fmt: skip
    until_step(home, furthest + 60)
    assert len({monitored(home, name)["manifest"] for name in NAMES}) == 1
    for name in two:
        assert logged(home, name, "suspended")[0]["epoch"] == 1
    for name in NAMES:
        # Nobody went back, and nobody was left behind.
        steps = [line["step"] for line in logged(home, name, "evaluated")]
        assert steps == sorted(steps)


def test_a_budget_carries_over_and_the_member_that_is_back_has_the_current_model(tmp_path):
    """Private training, whose members have one model: a member is stopped, and continues."""
    settings = plan(PRIVATE, rounds=40, iterations=10, hidden=4)
    home = patient(tmp_path / "f", settings, patience="3s")
    rest = [name for name in NAMES if name != "n3"]
    with ForkedFederation(home, save_seconds=1) as running:
        until_step(home, 5)
        with frozen(running.nodes["n3"]):
            until(lambda: all(suspended(home, name) == {"n3"} for name in rest), "n3 is suspended")
            furthest = max(monitored(home, name)["step"] for name in rest)
            until_step(home, furthest + 5, rest)
        until_finished(running, NAMES)
    final = models(home)
    assert all(torch.equal(one, final[0]) for one in final)
    found = summaries(home, NAMES)
    assert {one["steps"] for one in found.values()} == {400}
    for one in found.values():
        assert one["privacy"]["epsilon_spent"] <= one["privacy"]["epsilon"]
    # What it missed, it did not pay for.
    assert found["n3"]["privacy"]["sums"] < found["n0"]["privacy"]["sums"]
    assert logged(home, "n3", "suspended")


def test_a_member_that_is_started_again_rejoins(tmp_path):
    home = patient(tmp_path / "f", config(rounds=2000), patience="3s")
    rest = [name for name in NAMES if name != "n3"]
    with ForkedFederation(home, save_seconds=0.5) as running:
        until_step(home, 20)
        running.nodes["n3"].process.kill()
        until(lambda: all(suspended(home, name) == {"n3"} for name in rest), "n3 is suspended")
        furthest = max(monitored(home, name)["step"] for name in rest)
        until_step(home, furthest + 10, rest)
        running.start("n3")
        until(lambda: all(suspended(home, name) == set() for name in NAMES), "n3 is back")
        until_step(home, furthest + 20)
        for name in rest:
            # It did not send the others back.
            assert not logged(home, name, "iterations repeated") or all(
                line["before"] - line["step"] <= len(NAMES)
                for line in logged(home, name, "iterations repeated")
            )


def test_a_member_that_dies_before_the_end_does_not_keep_the_others(tmp_path):
    """All but one have finished; they agree to go on without it, and end."""
    home = patient(tmp_path / "f", config(rounds=3), patience="3s")
    rest = [name for name in NAMES if name != "n4"]
    with ForkedFederation(home, save_seconds=0.2) as running:
        until_step(home, 5)
        running.nodes["n4"].process.kill()
        until_finished(running, rest)
    assert {one["steps"] for one in summaries(home, rest).values()} == {30}


def test_three_of_a_ring_wait_because_two_could_not_protect_each_other(tmp_path):
    ports = free_ports(3)
    nodes = {name: f"127.0.0.1:{port}" for name, port in zip("abc", ports, strict=True)}
    ring = plan({"name": "lppa", "lr": 0.1}, rounds=100, clients=3, hidden=4)
    home = create(tmp_path / "f", "clinics", nodes, ring, patience="2s")
    with ForkedFederation(home, save_seconds=1) as running:
        until_step(home, 3, ["a", "b", "c"])
        running.nodes["c"].process.kill()
        found = until(lambda: (monitored(home, "a") or {}).get("problem"), "a says why it waits")
        assert "the others cannot go on without c: a, b would have fewer than 2" in found
        assert suspended(home, "a") == set()
