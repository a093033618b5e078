"""Real processes go on without a member that is gone, and with it when it is back."""

import json

import torch
from chaos import NAMES, ForkedFederation, frozen, logged, monitored, until, until_step
from federations import PRIVATE, free_ports, models, plan

from tacit.config.loading import make_config
from tacit.peer.federation.operator import create


def config(rounds):
    return make_config({
        "data": {"name": "mnist-mini", "limit_train": 2000, "limit_test": 1000},
        "model": {"name": "linear"},
        "graph": {"kind": "ring", "clients": 5},
        "algorithm": {"name": "lppa", "lr": 0.1, "noise": {"law": "laplace", "scale": 0.001}},
        "run": {"rounds": rounds, "iterations_per_round": 10, "batch_size": 64, "seed": 3,
                "evaluate_every": 10},
    })  # fmt: skip


def patient(folder, settings):
    """A federation of n0 … n4 on this machine, whose patience ends."""
    nodes = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(5), strict=True)}
    return create(folder, "clinics", nodes, settings, patience="3s")


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


def test_a_budget_carries_over_and_the_member_that_is_back_has_the_current_model(tmp_path):
    """Private training, whose members have one model: a member is stopped, and continues."""
    settings = plan(PRIVATE, rounds=40, iterations=10, hidden=4)
    home = patient(tmp_path / "f", settings)
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


def test_the_others_go_on_without_a_member_that_is_killed_and_it_rejoins(tmp_path):
    home = patient(tmp_path / "f", config(rounds=2000))
    rest = [name for name in NAMES if name != "n3"]
    with ForkedFederation(home, save_seconds=0.5) as running:
        until_step(home, 20)
        running.nodes["n3"].process.kill()
        until(lambda: all(suspended(home, name) == {"n3"} for name in rest), "n3 is suspended")
        assert monitored(home, "n0")["suspended"]["n3"] > 1_600_000_000
        furthest = max(monitored(home, name)["step"] for name in rest)
        until_step(home, furthest + 10, rest)
        running.start("n3")
        until(lambda: all(suspended(home, name) == set() for name in NAMES), "n3 is back")
        until_step(home, furthest + 20)
        for name in rest:
            change, *_ = logged(home, name, "roster changed")
            assert (change["generation"], change["epoch"], change["members"]) == (1, 1, rest)
            # It did not send the others back.
            assert all(
                line["before"] - line["step"] <= len(NAMES)
                for line in logged(home, name, "iterations repeated")
            )


def test_a_member_that_dies_before_the_end_does_not_keep_the_others(tmp_path):
    """All but one have finished; they agree to go on without it, and end."""
    home = patient(tmp_path / "f", config(rounds=3))
    rest = [name for name in NAMES if name != "n4"]
    with ForkedFederation(home, save_seconds=0.2) as running:
        until_step(home, 5)
        running.nodes["n4"].process.kill()
        until_finished(running, rest)
    for summary in summaries(home, rest).values():
        assert summary["steps"] == 30
        assert summary["accuracy"] > 30
