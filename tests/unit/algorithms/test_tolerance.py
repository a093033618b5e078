"""Which algorithms allow graphs that change, absent clients and late messages."""

import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message
from support.suited import made, suited
from tacit import ALGORITHMS, Matchings, Participation, Topology
from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.tolerance import UNSTATED
from tacit.engines.lying import Lying
from tacit.graph import World

N = 6
RING = Topology.ring(N).mixing("metropolis", lazy=True)
MATCHINGS = Matchings(Topology.complete(N))
WORLDS = {
    "changing_graph": World(MATCHINGS.union.lazy(), MATCHINGS),
    "absent_clients": World(RING, None, Participation(share=0.5)),
    "late_messages": World(RING, None, Participation(delay=2)),
}
OPTIONS = {"lppa": {"fresh": True}}

pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")


@pytest.fixture
def task():
    return tacit.quadratic(torch.eye(2).repeat(N, 1, 1).double(), torch.ones(N, 2).double())


@pytest.mark.parametrize("what", WORLDS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_run_or_refuse_as_they_declare(name, what, task):
    world = WORLDS[what]
    algorithm, task = suited(made(ALGORITHMS[name], **OPTIONS.get(name, {})), task, RING)
    reason = getattr(algorithm.tolerates, what)
    setting = tacit.Setting(
        algorithm, task, world.graph, schedule=world.schedule, participation=world.participation
    )
    if reason:
        assert reason != UNSTATED
        assert_mentions(misuse_message(setting.check), name, reason)
        return
    simulation = tacit.Simulation(setting)
    simulation.start()
    for _ in range(4):
        simulation.step()
    assert simulation.t == 4
    assert bool(simulation.state.theta.isfinite().all())


def test_masks_of_the_start_are_refused_with_the_option_that_helps(task):
    message = misuse_message(tacit.run, task, tacit.LPPA(lr=0.1), MATCHINGS, steps=1)
    assert_mentions(message, "fresh = True", "Set fresh = true")


def test_an_algorithm_that_declares_nothing_is_refused(task):
    class Silent(tacit.DSG):
        name = "silent"
        tolerates = Algorithm.tolerates

    assert_mentions(misuse_message(tacit.run, task, Silent(lr=0.1), MATCHINGS, steps=1), UNSTATED)


def test_robust_mixing_is_refused_and_liars_are_not(task):
    robust = tacit.Robust(tacit.DSG(lr=0.1), "trimmed-mean")
    message = misuse_message(tacit.run, task, robust, MATCHINGS, steps=1)
    assert_mentions(message, "Robust mixing", "fixed graph")
    lying = Lying(tacit.LPPA(lr=0.1, fresh=True), liars=(1,), scale=1.0)
    assert tacit.run(task, lying, MATCHINGS, steps=3).history[-1].step == 3
    silent = Lying(tacit.EDSG(lr=0.1), liars=(1,))
    assert_mentions(misuse_message(tacit.run, task, silent, MATCHINGS, steps=1), "edsg")
