"""Sums over samples drawn at random are not scored against batches that were never drawn."""

import math

import pytest

import tacit
from tacit.auditing.options import AttackOptions


@pytest.fixture(scope="module")
def run():
    """Two iterations of five clients on a ring, without noise."""
    digits = tacit.data.load("mnist-mini")
    parts = digits.train.parts("iid", clients=5)
    model = tacit.models.build("mlp", shape=(1, 28, 28), classes=10, hidden=[4])
    task = tacit.Task(model, parts, batch_size=2, init="same")
    graph = tacit.Topology.ring(5).mixing("metropolis")
    rule, promise = tacit.PrivateSGD(lr=0.1), tacit.Privacy(epsilon=math.inf)
    return tacit.run(task, rule, graph, steps=2, privacy=promise)


@pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")
def test_attacks_on_gradients_of_drawn_samples_are_noted_and_not_made(run):
    audit = tacit.audit(run, adversary="curious(1,4)", victim=0, iterations=2)
    (result,) = audit.results
    # Without noise, the neighbours together know the sums of the client between them exactly.
    assert result.verdicts[0].headline == "exposed"
    assert result.reconstructions == []
    assert not any("gradients" in one.score for one in result.memberships)
    assert any("drawn at random" in note for note in audit.notes)


@pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")
def test_no_recovered_samples_are_counted(run):
    little = AttackOptions(restarts=1, seconds=0.3, canary_trials=0)
    audit = tacit.audit(run, "malicious(1,4):echo", victim=0, iterations=2, attacks=little)
    assert audit.gains
    assert all(not gain.active.recovered for gain in audit.gains)
    assert all("recovered samples were not counted" in gain.statement for gain in audit.gains)
    assert any("drawn at random" in note for note in audit.notes)
