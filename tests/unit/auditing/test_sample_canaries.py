"""Sample canaries: found where gradients are sent in clear, below the ledger's bound with noise."""

from dataclasses import replace

import pytest
import torch

import tacit
from tacit import data, models
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.canaries.sample import draw_samples, plant, sample_canaries
from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting

RING = tacit.Topology.ring(3).mixing("metropolis", lazy=True)
DIGITS = data.load("mnist-mini", limit_train=90, limit_test=120)
TEST = (DIGITS.test.x, DIGITS.test.y)


def setting(algorithm, batch_size=None, test=TEST):
    parts = [(DIGITS.train.x[k::3], DIGITS.train.y[k::3]) for k in range(3)]
    network = models.build("mlp", tuple(DIGITS.train.x.shape[1:]), 10, hidden=[16])
    task = tacit.Task(network, parts, batch_size=batch_size, test=test, init="same")
    return Setting(algorithm, task.clipped(1.0), RING)


def test_exact_gradients_show_which_samples_are_in():
    found = sample_canaries(setting(tacit.DSGT(lr=0.1)), "eavesdropper", count=100, iterations=3)
    assert found.scored_by == "inner products with 3 exact gradients"
    assert found.lower.epsilon > 0.5
    assert found.lower.coins == 100
    assert "for one sample" in str(found)
    assert found.as_dict()["unit"] == "sample"
    assert not found.is_defect  # There is no guarantee to contradict.


def test_noise_keeps_samples_below_the_bound_of_the_client():
    noisy = tacit.PDLMS(lr=0.1, noise=tacit.Gaussian(1.0))
    found = sample_canaries(setting(noisy), "eavesdropper+theta0", count=100, iterations=3)
    assert "noisy gradients" in found.scored_by
    assert 0 <= found.lower.epsilon < found.upper.epsilon < 10
    assert "for all data of the client: ε = " in str(found)


def test_the_whole_training_is_scored_by_a_trained_model():
    noisy = tacit.PDLMS(lr=0.1, noise=tacit.Gaussian(1.0))
    calls = []
    found = sample_canaries(
        setting(noisy, batch_size=10), "curious(1)", count=40, iterations=2, steps=5,
        progress=lambda *call: calls.append(call),
    )  # fmt: skip
    assert found.scored_by == "the loss at the trained model of a corrupt client"
    assert found.iterations == 5
    assert calls[-1] == ("training with canaries", 5, 5)
    assert found.lower.epsilon < found.upper.epsilon


@pytest.mark.parametrize("batch_size", [None, 10])
def test_only_the_victim_gets_the_canaries_whose_coins_say_so(batch_size):
    before = setting(tacit.DSGT(lr=0.1), batch_size).task
    samples = draw_samples(before, 50, 3)
    after = plant(before, 1, samples)
    truth = [Truth(task, 0) for task in (before, after)]
    for client in (0, 2):
        for one, other in zip(truth[0].members(client), truth[1].members(client), strict=True):
            assert torch.equal(one, other)
    x, y = truth[1].members(1)
    held = len(truth[0].members(1)[0])
    assert torch.equal(x[held:], samples.x[samples.coins])
    assert torch.equal(y[held:], samples.y[samples.coins])
    # All labels are wrong.
    true = {tuple(a.flatten().tolist()): int(b) for a, b in zip(*TEST, strict=True)}
    for a, b in zip(samples.x, samples.y, strict=True):
        assert true[tuple(a.flatten().tolist())] != int(b)


def test_what_is_impossible_is_refused():
    with pytest.raises(Misuse, match="no test set"):
        sample_canaries(setting(tacit.DSGT(lr=0.1), test=None), "eavesdropper")
    with pytest.raises(Misuse, match="at most 120"):
        sample_canaries(setting(tacit.DSGT(lr=0.1)), "eavesdropper", count=121)
    with pytest.raises(Misuse, match="corrupt"):
        sample_canaries(setting(tacit.DSGT(lr=0.1)), "curious(0)")


def test_a_lower_bound_above_the_guarantee_is_called_a_defect():
    found = sample_canaries(setting(tacit.DSGT(lr=0.1)), "eavesdropper", count=60, iterations=2)
    claimed = replace(found, upper=Bound(0.1, 0.0, "by assumption"))
    assert claimed.is_defect
    assert "a defect of the analysis" in str(claimed)
