"""Connections that are reset, truncated, slow or stalled, and frozen nodes: no bit changes.

One federation lives through all tests and continues after each.
"""

from types import SimpleNamespace

import pytest
import torch
from chaos import (
    FRESH,
    LONG,
    NAMES,
    ForkedFederation,
    Proxies,
    frozen,
    monitored,
    ports_behind_proxies,
    step_of,
    undisturbed,
    until,
    until_step,
)
from federations import federation, models, plan, twin, with_salts

from tacit.peer.federation.federation_client import FederationClient


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A federation that is only copied, never run."""
    base = tmp_path_factory.mktemp("networks")
    config = plan(FRESH, rounds=10, iterations=10, hidden=4)
    return with_salts(federation(base / "home", config))


@pytest.fixture(scope="module")
def expected(home):
    """The final models [N, P] without faults."""
    return undisturbed(twin(home, home.path.parent / "undisturbed"))


@pytest.fixture(scope="module")
def faulty(home, expected):
    """The same federation with a harmful proxy at every address of the roster."""
    harmed = twin(home, home.path.parent / "harmed")
    ports, listen = ports_behind_proxies(home)
    with (
        Proxies(ports, seed=3) as proxies,
        ForkedFederation(harmed, save_seconds=0.3, listen=listen) as running,
    ):
        proxies.harmful = True
        yield SimpleNamespace(home=harmed, running=running, proxies=proxies)


@pytest.mark.parametrize("victim", ["n1", "n3"])
def test_all_wait_for_a_frozen_node_and_its_neighbours_name_it(faulty, victim):
    home = faulty.home
    until_step(home, 5)
    faulty.proxies.harmful = False
    client = FederationClient(home.manifest(), home.operator_credentials(), home.ca())
    neighbours = [member.name for member in home.manifest().in_neighbours(victim)]

    def all_wait():
        found = {report.member.name: report.status for report in client.status(1.0)}
        if found.pop(victim) is not None or None in found.values():
            return False
        return all(status.phase == "waiting" for status in found.values()) and all(
            victim in [text.split(" ")[0] for text in found[name].waiting_for]
            for name in neighbours
        )

    try:
        with frozen(faulty.running.nodes[victim]):
            until(all_wait, f"all wait, and its neighbours for {victim}")
            assert faulty.running.nodes[victim].process.poll() is None
            furthest = max(step_of(home, name) for name in NAMES if name != victim)
    finally:
        client.close()
        faulty.proxies.harmful = True
    until_step(home, furthest + 5)


def until_all_wait(home, names):
    def waits(name):
        status = monitored(home, name)
        return status and status["phase"] == "waiting" and status["waiting_for"]

    until(lambda: all(waits(name) for name in names), f"{names} wait")


def test_training_continues_after_all_nodes_were_isolated(faulty):
    until_step(faulty.home, 5)
    faulty.proxies.hold(NAMES)
    until_all_wait(faulty.home, NAMES)
    steps = [step_of(faulty.home, name) for name in NAMES]
    faulty.proxies.heal()
    until_step(faulty.home, max(steps) + 5)


def test_training_continues_after_two_nodes_were_unreachable(faulty):
    until_step(faulty.home, 5)
    faulty.proxies.refuse(["n0", "n1"])
    until_all_wait(faulty.home, ["n2", "n3", "n4"])
    steps = [step_of(faulty.home, name) for name in NAMES]
    faulty.proxies.heal()
    until_step(faulty.home, max(steps) + 5)


def test_no_bit_of_the_models_changed(faulty, expected):
    assert faulty.running.wait(LONG), [node.last_error() for node in faulty.running.failed()]
    assert {node.process.returncode for node in faulty.running.nodes.values()} == {0}
    counts = faulty.proxies.counts
    assert min(counts["reset"], counts["truncated"], counts["delayed"]) >= 10, counts
    assert counts["refused"] >= 2, counts
    assert torch.equal(models(faulty.home), expected)
