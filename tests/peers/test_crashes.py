"""Nodes that are killed during training continue from their checkpoints to the same bits."""

import random
import signal

import pytest
import torch
from chaos import FRESH, LONG, NAMES, ForkedFederation, logged, undisturbed, until, until_step
from federations import federation, models, plan, relative_distance, simulated, twin, with_salts

KILLS, EVERY = 10, 16  # processes to kill, and iterations between two kills
STEPS = 130


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A federation that is only copied, never run."""
    base = tmp_path_factory.mktemp("crashes")
    config = plan(FRESH, rounds=STEPS // 10, iterations=10, hidden=4)
    return with_salts(federation(base / "home", config))


@pytest.fixture(scope="module")
def expected(home):
    """The final models [N, P] without faults."""
    return undisturbed(twin(home, home.path.parent / "undisturbed"))


def plan_kills(rng):
    """(iteration, victims, again): sometimes two at once, and one again right after its restart."""
    kills, left, twice = [], KILLS, rng.randrange(4)
    while left:
        again = len(kills) == twice
        victims = rng.sample(NAMES, 1 if again else min(left, rng.choice([1, 2, 2])))
        kills.append((EVERY * len(kills) + rng.randint(1, EVERY), victims, again))
        left -= len(victims) + again
    return kills


def kill(running, victims):
    """Kill nodes and restart them."""
    for name in victims:
        running.nodes[name].process.kill()
    for name in victims:
        code = running.nodes[name].process.wait()
        assert code == -signal.SIGKILL, "training ended before all were killed"
        running.start(name)


def wait_for_restart(home, name):
    """Wait until a restarted node has loaded its checkpoint and listens."""
    starts = len(logged(home, name, "started"))
    until(lambda: len(logged(home, name, "started")) > starts, f"{name} is back")


def test_ten_kills_change_no_bit(home, expected):
    harmed = twin(home, home.path.parent / "killed")
    kills = plan_kills(random.Random(1))
    assert sum(len(victims) + again for _, victims, again in kills) == KILLS
    assert {len(victims) for _, victims, _ in kills} == {1, 2}
    assert kills[-1][0] < STEPS - EVERY
    with ForkedFederation(harmed, save_seconds=0.3) as running:
        for step, victims, again in kills:
            until_step(harmed, step, victims[:1])
            kill(running, victims)
            if again:
                wait_for_restart(harmed, victims[0])
                kill(running, victims)
        assert running.wait(LONG), [node.last_error() for node in running.failed()]
        assert {node.process.returncode for node in running.nodes.values()} == {0}
    assert torch.equal(models(harmed), expected)
    # Iterations were lost and repeated. One node may have been killed before it logged that.
    resumed = [line["step"] for name in NAMES for line in logged(harmed, name, "resumed")]
    assert len(resumed) >= KILLS - 1
    assert len(set(resumed)) > 2


def test_the_models_are_those_of_the_simulator(home, expected):
    assert relative_distance(expected, simulated(home)) < 1e-6
