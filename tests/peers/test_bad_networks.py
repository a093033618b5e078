"""Connections that are reset, cut off, slow or held, and neighbours that freeze: no bit of the result changes.

One federation lives through all of it, test by test, and goes on after each.
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
    asked,
    frozen,
    step_of,
    undisturbed,
    until,
    until_step,
)
from federations import federation, free_ports, models, plan, twin

from tacit.peer.federation.federation_client import FederationClient


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A federation that is never run itself."""
    base = tmp_path_factory.mktemp("networks")
    return federation(base / "home", plan(FRESH, rounds=10, iterations=10, hidden=4))


@pytest.fixture(scope="module")
def expected(home):
    """The models [N, P] when nothing happens."""
    return undisturbed(twin(home, home.path.parent / "undisturbed"))


@pytest.fixture(scope="module")
def life(home, expected):
    """The same federation with a proxy at every address of the roster, which harms from the first byte on."""
    harmed = twin(home, home.path.parent / "harmed")
    fronts = [int(member.address.rpartition(":")[2]) for member in home.manifest().members]
    backs = free_ports(len(NAMES))
    listen = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, backs, strict=True)}
    ways = dict(zip(NAMES, zip(fronts, backs, strict=True), strict=True))
    with (
        Proxies(ways, seed=3) as proxies,
        ForkedFederation(harmed, save_seconds=0.3, listen=listen) as running,
    ):
        proxies.harmful = True
        yield SimpleNamespace(home=harmed, running=running, proxies=proxies)


@pytest.mark.parametrize("victim", ["n1", "n3"])
def test_a_frozen_node_is_waited_for_and_named(life, victim):
    home = life.home
    until_step(home, 5)
    life.proxies.harmful = False
    enquiry = FederationClient(home.manifest(), home.operator_credentials(), home.ca())

    neighbours = [member.name for member in home.manifest().in_neighbours(victim)]

    def blamed():
        """Whether all others say that they wait, and its neighbours for whom."""
        found = {answer.member.name: answer.status for answer in enquiry.status(1.0)}
        if found.pop(victim) is not None or None in found.values():
            return False
        return all(status.phase == "waiting" for status in found.values()) and all(
            victim in [words.split(" ")[0] for words in found[name].waiting_for]
            for name in neighbours
        )

    try:
        with frozen(life.running.nodes[victim]):
            until(blamed, f"all wait, and its neighbours for {victim}")
            assert life.running.nodes[victim].process.poll() is None
            furthest = max(step_of(home, name) for name in NAMES if name != victim)
    finally:
        enquiry.close()
        life.proxies.harmful = True
    until_step(home, furthest + 5)


def waiting_for(home, name):
    """For whom a node says that it waits."""
    said = asked(home, name)
    return said["waiting_for"] if said and said["phase"] == "waiting" else []


def test_training_goes_on_when_everybody_was_alone(life):
    until_step(life.home, 5)
    life.proxies.hold(NAMES)
    until(lambda: all(waiting_for(life.home, name) for name in NAMES), "all wait")
    steps = [step_of(life.home, name) for name in NAMES]
    life.proxies.heal()
    until_step(life.home, max(steps) + 5)


def test_training_goes_on_when_two_nodes_were_cut_off(life):
    until_step(life.home, 5)
    life.proxies.refuse(["n0", "n1"])
    # For whom each waits depends on which letters had arrived: for n0, for n1, or for one that waits for them.
    until(
        lambda: all(waiting_for(life.home, name) for name in ("n2", "n3", "n4")), "the others wait"
    )
    steps = [step_of(life.home, name) for name in NAMES]
    life.proxies.heal()
    until_step(life.home, max(steps) + 5)


def test_no_bit_of_the_models_changed(life, expected):
    assert life.running.wait(LONG), [node.last_error() for node in life.running.failed()]
    assert {node.process.returncode for node in life.running.nodes.values()} == {0}
    counts = life.proxies.counts
    assert min(counts["reset"], counts["truncated"], counts["delayed"]) >= 10, counts
    assert counts["refused"] >= 2, counts
    assert torch.equal(models(life.home), expected)
