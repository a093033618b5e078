"""Private training: equal guarantees, equal conditions without one, and claims that can fail."""

import pytest
from filled_results import FULL, QUICK, fill, grades

from tacit.config.build import build
from tacit_papers.findings.private_training_settings import (
    CENTRAL,
    CLIP,
    DECOR,
    LOCAL,
    PLAIN,
    PRIVATE,
    QUICK_STUDIES,
    STUDIES,
    studies,
)
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.framework.drawing import write_figure
from tacit_papers.framework.registry import find_artifact

NAME = "findings/private-training"
pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")


def built(algorithm, epsilon="3"):
    return build(QUICK_STUDIES["MNIST"].config(algorithm, epsilon))


@pytest.mark.parametrize(
    ("name", "iterations"),
    [("MNIST", 1160), ("Fashion-MNIST", 1120), ("Adult", 600), ("CIFAR-10", 600)],
)
def test_iterations(name, iterations):
    study = STUDIES[name]
    run = study.config(PRIVATE, next(iter(study.private))).run
    assert run.rounds * run.iterations_per_round == iterations
    assert abs(10 * run.batch_size - study.batch) < 5


def test_all_algorithms_keep_the_same_guarantee_with_as_many_samples():
    budgets = {name: built(name).algorithm.budget for name in (PRIVATE, CENTRAL, DECOR, LOCAL)}
    for part in ("epsilon", "delta", "noise_multiplier", "sampling_rate", "steps", "unit"):
        assert len({getattr(budget, part) for budget in budgets.values()}) == 1, part
    assert budgets[CENTRAL].honest == 1
    assert {budgets[name].honest for name in (PRIVATE, DECOR, LOCAL)} == {9}


def test_local_noise_is_all_of_the_guarantee_at_each_client_and_decor_has_less():
    local, decor = (built(name).algorithm for name in (LOCAL, DECOR))
    assert local.mechanism.own == pytest.approx(local.budget.noise_multiplier * CLIP)
    assert local.mechanism.shared == 0
    assert decor.mechanism.own < 0.5 * local.mechanism.own


def test_central_training_has_all_data_at_one_client():
    central = built(CENTRAL)
    assert central.graph.clients == 1
    assert central.task.batch_size == 10 * built(PRIVATE).task.batch_size


def test_algorithms_without_a_guarantee_have_the_same_data_graph_and_batches():
    study = STUDIES["MNIST"]
    private = study.config(PRIVATE, "3")
    for label in PLAIN:
        plain = study.plain_config(label)
        assert plain.privacy is None
        for section in ("data", "model", "graph", "run"):
            assert getattr(plain, section) == getattr(private, section), section


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_every_epsilon_has_all_algorithms_but_on_cifar(scale):
    keys = {cell.key for cell in find_artifact(NAME).cells(scale)}
    for name, study in studies(scale).items():
        others = () if name == "CIFAR-10" else (DECOR, LOCAL)
        for epsilon in {*study.private, *(set(study.required) if scale is FULL else ())}:
            assert {(name, epsilon, one) for one in (PRIVATE, CENTRAL, *others)} <= keys


def filled(accuracies, scale=FULL):
    """All cells at 99 % with a guarantee of our own or at the centre, 90 % with others."""
    high = {PRIVATE: 99.0, CENTRAL: 99.1}

    def values(key):
        mean = accuracies.get(key, high.get(key[2], 90.0))
        return [{"accuracy": mean + shift} for shift in (-0.1, 0.0, 0.1)]

    return fill(NAME, values, scale)


def test_claims_can_come_out_either_way(tmp_path):
    artifact, result = filled({})
    assert set(grades(artifact, result).values()) == {"reproduced"}
    assert len(write_figure(artifact.draw(result), tmp_path)) == 2
    low = {("MNIST", "3", PRIVATE): 97.7, ("Adult", "1", PRIVATE): 80.0}
    bad = grades(*filled(low | {("Fashion-MNIST", "1", DECOR): 99.5}))
    assert bad["MNIST, ε = 3: private-sgd reaches 97.8 %"] == "partly"
    assert bad["MNIST, ε = 3: at most 0.3 points below central DP-SGD"] == "not reproduced"
    assert bad["Adult, ε = 1: private-sgd reaches 82.8 %"] == "not reproduced"
    better = "more accurate than {} at the same ε (points)"
    assert bad[f"Fashion-MNIST: {better.format('decor')}"] == "partly"
    assert bad[f"Fashion-MNIST: {better.format('local noise')}"] == "reproduced"
    assert bad[f"Adult: {better.format('local noise')}"] == "not reproduced"
    assert bad["MNIST, ε = 1: private-sgd reaches 96.8 %"] == "reproduced"


def test_the_quick_version_judges_nothing_and_can_be_drawn(tmp_path):
    artifact, result = filled({}, QUICK)
    assert set(grades(artifact, result).values()) == {"not measured"}
    assert len(write_figure(artifact.draw(result), tmp_path)) == 2


def test_a_measurement_has_the_noise_and_the_budget_spent(tmp_path):
    artifact = find_artifact(NAME)
    (cell,) = [one for one in artifact.cells(QUICK) if one.key == ("MNIST", "8", PRIVATE)]
    values = cell.measure(0, MeasureContext(scratch=tmp_path / "run"))
    assert values["epsilon"] == pytest.approx(8.0, rel=1e-3)
    assert values["noise_multiplier"] == pytest.approx(
        built(PRIVATE, "8").algorithm.budget.noise_multiplier, rel=1e-5
    )
    assert values["accuracy"] > 70
