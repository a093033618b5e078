"""ResNet-18 between clients: what central training has in common with them, and the claims."""

import pytest
from filled_results import FULL, QUICK, fill_grades

from tacit.config.loading import with_keys
from tacit_papers.findings.resnet import CENTRAL, MASKED, TRACKING, _config
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.measures.simulated_training import SimulatedTraining

NAME = "findings/resnet"


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_central_training_sees_as_many_samples(scale):
    among, central = _config(TRACKING, scale), _config(CENTRAL, scale)
    clients = among.graph.options["clients"]
    assert central.graph.options["clients"] == 1
    assert central.run.batch_size == clients * among.run.batch_size
    for section in ("data", "model", "algorithm"):
        assert getattr(central, section) == getattr(among, section)
    assert central.run.model_dump(exclude={"batch_size"}) == among.run.model_dump(
        exclude={"batch_size"}
    )
    masked = _config(MASKED, scale)
    assert masked.algorithm.name == "lppa"
    assert masked.algorithm.options == among.algorithm.options


def test_a_round_is_an_epoch_of_cifar10():
    config = _config(TRACKING, FULL)
    seen = 16 * config.run.batch_size * config.run.iterations_per_round
    assert 0.99 < seen / 50_000 <= 1


@pytest.mark.parametrize("training", [TRACKING, MASKED, CENTRAL])
def test_training_is_measured(training):
    config = with_keys(_config(training, QUICK), "run", rounds=2, iterations_per_round=2)
    config = with_keys(config, "data", limit_train=120, limit_test=20)
    config = with_keys(config, "run", evaluate_every=1)
    values = SimulatedTraining(config)(0, MeasureContext())
    assert values["curve"]["round"] == [0, 1, 2]
    assert values["curve"]["accuracy"][-1] == values["accuracy"]
    assert 0 <= values["worst"] <= values["accuracy"] <= 100
    assert values["curve"]["loss"][0] != values["curve"]["loss"][-1] == values["loss"]
    assert (values["bytes_sent"] == 0) == (training == CENTRAL)
    assert "diverged" not in values


def test_training_that_diverges_ends_at_chance():
    config = with_keys(_config(TRACKING, QUICK), "run", rounds=3, iterations_per_round=2)
    config = with_keys(config, "data", limit_train=120, limit_test=20)
    config = with_keys(config, "run", evaluate_every=1, allow_divergence=True)
    config = with_keys(config, "algorithm", lr=1e30)
    values = SimulatedTraining(config)(0, MeasureContext())
    assert "not finite" in values["diverged"]
    assert values["curve"]["round"] == [0, 1, 2, 3]
    assert values["loss"] is None
    assert values["accuracy"] <= 50


def test_claims_can_fail():
    found = {TRACKING: 90.0, MASKED: 89.8, CENTRAL: 92.0}

    def values(key):
        return {"accuracy": found[key[0]]}

    assert set(fill_grades(NAME, values)) == {"reproduced"}
    found |= {MASKED: 91.2, CENTRAL: 99.9}
    assert fill_grades(NAME, values) == ["not reproduced", "not reproduced", "partly"]
    assert set(fill_grades(NAME, values, QUICK)) == {"not measured"}


def test_accuracies_are_compared_seed_by_seed():
    """A third seed of one algorithm, whose partition is hard, says nothing about the other."""
    found = {TRACKING: (90.0, 85.0, 60.0), MASKED: (90.1, 85.1), CENTRAL: (92.0, 87.0)}

    def values(key):
        return [{"accuracy": accuracy} for accuracy in found[key[0]]]

    assert set(fill_grades(NAME, values)) == {"reproduced"}
    found |= {MASKED: (90.1, 84.1)}
    assert fill_grades(NAME, values)[0] == "partly"
    found |= {MASKED: ()}
    assert fill_grades(NAME, values)[0] == "not measured"
