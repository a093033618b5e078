"""Nodes that are killed in the middle of training: they come back where they were, and no bit of the result changes."""

import random
import signal

import pytest
import torch
from chaos import FRESH, LONG, NAMES, ForkedFederation, logged, undisturbed, until, until_step
from federations import federation, models, plan, simulated, twin

KILLS, EVERY = 10, 16  # how many processes are killed, and about how many iterations apart
STEPS = 130


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A federation that is never run itself."""
    base = tmp_path_factory.mktemp("crashes")
    return federation(base / "home", plan(FRESH, rounds=STEPS // 10, iterations=10, hidden=4))


@pytest.fixture(scope="module")
def expected(home):
    """The models [N, P] when nothing happens."""
    return undisturbed(twin(home, home.path.parent / "undisturbed"))


def waves(chance):
    """Who is killed after how many iterations: two at once now and then, and one again as soon as it is back."""
    found, left, twice = [], KILLS, chance.randrange(4)
    while left:
        again = len(found) == twice
        victims = chance.sample(NAMES, 1 if again else min(left, chance.choice([1, 2, 2])))
        found.append((EVERY * len(found) + chance.randint(1, EVERY), victims, again))
        left -= len(victims) + again
    return found


def kill(running, victims):
    """End processes from one moment to the next, and start them anew."""
    for name in victims:
        running.nodes[name].process.kill()
    for name in victims:
        assert running.nodes[name].process.wait() == -signal.SIGKILL, (
            "training ended before all were killed"
        )
        running.start(name)


def test_ten_kills_change_no_bit(home, expected):
    harmed = twin(home, home.path.parent / "killed")
    deaths = waves(random.Random(1))
    assert sum(len(victims) + again for _, victims, again in deaths) == KILLS
    assert {len(victims) for _, victims, _ in deaths} == {1, 2}
    assert deaths[-1][0] < STEPS - EVERY
    with ForkedFederation(harmed, save_seconds=0.3) as running:
        for step, victims, again in deaths:
            until_step(harmed, step, victims[:1])
            kill(running, victims)
            if again:
                _until_back(harmed, victims[0])
                kill(running, victims)
        assert running.wait(LONG), [node.last_words() for node in running.failed()]
        assert {node.process.returncode for node in running.nodes.values()} == {0}
    assert torch.equal(models(harmed), expected)
    # That was no run from one checkpoint to the next: work was lost and done again.
    resumed = [line["step"] for name in NAMES for line in logged(harmed, name, "resumed")]
    assert len(resumed) >= KILLS - 1  # one may be killed before it has said so
    assert len(set(resumed)) > 2


def _until_back(home, name):
    """Wait until a node that was started anew has read its checkpoint and listens."""
    lives = len(logged(home, name, "started"))
    until(lambda: len(logged(home, name, "started")) > lives, f"{name} is back")


def test_the_models_are_those_of_the_simulator(home, expected):
    simulation = simulated(home)
    difference = torch.linalg.norm((expected - simulation).double(), dim=1)
    assert (difference / torch.linalg.norm(simulation.double(), dim=1)).max() < 1e-6
