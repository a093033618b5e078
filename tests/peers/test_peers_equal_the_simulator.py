"""Five processes with mutual TLS give the numbers of the simulator, for every kind of algorithm."""

import json

import pytest
import torch
from federations import (
    PRIVATE,
    federation,
    models,
    observed,
    plan,
    relative_distance,
    run_in_turn,
    simulated,
)

from tacit.config.sections import AugmentSection, ModelSection, RobustSection

pytestmark = pytest.mark.quick  # the one end-to-end test of peers in `make test`
# Each algorithm once; options, models and rules are spread over them.
ALGORITHMS = {
    "dsgt": {"name": "dsgt", "lr": 0.05},
    "lppa": {"name": "lppa", "lr": 0.05, "local_steps": 3},
    "lppa, masks sent": {"name": "lppa", "lr": 0.01, "masks": "sent", "momentum": 0.9},
    "dsg, adam": {"name": "dsg", "lr": 0.01, "optimizer": "adam"},
    "edsg": {"name": "edsg", "lr": 0.05},
    "edsg-rms": {"name": "edsg-rms", "lr": 0.05},
    "d-psgd": {"name": "d-psgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3},
    "push-sum": {"name": "push-sum", "lr": 0.05},
    "defl-vp": {"name": "defl-vp", "lr": 0.001, "private_variates": True},
}
ADAM = {"name": "private-sgd", "lr": 0.5, "optimizer": "adam"}
SUMS = {
    "private-sgd, adam": (ADAM, {"epsilon": 8.0, "delta": 1e-4}),
    "private-sgd, clients": (
        {**PRIVATE, "local_steps": 2},
        {"epsilon": 50.0, "delta": 0.1, "unit": "client"},
    ),
    "private-sgd, no noise": (PRIVATE, {"epsilon": float("inf"), "clip": float("inf")}),
}
ROBUST = {"dsg, clipping": "centred-clipping", "dsg, trimming": "trimmed-mean"}
# Modules with branches, on images of 28×28 pixels.
RESNET = {"name": "resnet18-gn", "width": 2, "groups": 2}
TRANSFORMER = {"name": "transformer", "patch": 7, "layers": 2, "dim": 8, "heads": 2}
MODELS = {
    "lppa fresh, resnet": ({"name": "lppa", "lr": 0.05, "fresh": True}, RESNET),
    "pdmm, transformer": (
        {"name": "pdmm", "rho": 0.1, "solver": {"solver": "quadratic", "mu": 0.05}},
        TRANSFORMER,
    ),
}
# With dropout, on images that are cropped and flipped at random.
AUGMENTED = {"dsgt, augmented": {"name": "dsgt", "lr": 0.05}, "private-sgd, augmented": PRIVATE}
METRICS = ["auc", "f1", "brier"]
LAZY = ("edsg", "edsg-rms")  # they need a positive definite W


@pytest.fixture(scope="module")
def federations(tmp_path_factory):
    """One federation per algorithm, after its run."""
    base = tmp_path_factory.mktemp("federations")
    homes = {}
    for number, (label, algorithm) in enumerate(ALGORITHMS.items()):
        config = plan(algorithm, metrics=METRICS)
        if algorithm["name"] in LAZY:
            lazy = config.graph.model_copy(update={"lazy": True})
            config = config.model_copy(update={"graph": lazy})
        homes[label] = federation(base / f"f{number}", config)
    for number, (label, (algorithm, privacy)) in enumerate(SUMS.items()):
        promise = {"samples": 200, **privacy}
        homes[label] = federation(base / f"s{number}", plan(algorithm, privacy=promise))
    for number, (label, (algorithm, model)) in enumerate(MODELS.items()):
        config = plan(algorithm, rounds=1, iterations=4, model=model)
        homes[label] = federation(base / f"m{number}", config)
    for number, (label, rule) in enumerate(ROBUST.items()):
        config = plan({"name": "dsg", "lr": 0.05})
        section = RobustSection(rule=rule, liars=1)
        homes[label] = federation(
            base / f"r{number}", config.model_copy(update={"robust": section})
        )
    for number, (label, algorithm) in enumerate(AUGMENTED.items()):
        config = plan(algorithm)
        data = config.data.model_copy(update={"augment": AugmentSection(crop=2, flip=True)})
        model = ModelSection(name="mlp", hidden=[16], dropout=0.2)
        drawing = config.model_copy(update={"data": data, "model": model})
        homes[label] = federation(base / f"a{number}", drawing)
    run_in_turn([home.path for home in homes.values()], [f"n{i}" for i in range(5)], seconds=240)
    return homes


@pytest.mark.parametrize("label", [*ALGORITHMS, *MODELS, *ROBUST, "dsgt, augmented"])
def test_the_models_are_those_of_the_simulator(federations, label):
    found, expected = models(federations[label]), simulated(federations[label])
    assert relative_distance(found, expected) < 1e-6
    assert (expected[0] != expected[1]).any()


def test_the_metrics_are_those_of_the_simulator(federations):
    home = federations["dsgt"]
    expected = observed(home)
    for client, member in enumerate(home.members):
        run = home.node(member.name).run
        summary = json.loads((run / "summary.json").read_text())
        last = json.loads((run / "history.jsonl").read_text().splitlines()[-1])
        assert last["metrics"] == summary["metrics"]
        assert last["baseline"] == summary["baseline"] == expected.baseline
        for name in METRICS:
            one = expected.per_client[name][client]
            assert last["metrics"][name] == pytest.approx(one, rel=1e-5)
        assert sum(map(sum, summary["confusion"]["counts"])) == 50


@pytest.mark.parametrize("label", [*SUMS, "private-sgd, augmented"])
def test_masked_sums_give_the_models_of_the_simulator_to_the_last_bit(federations, label):
    found, expected = models(federations[label]), simulated(federations[label])
    assert torch.equal(found, expected)
    assert torch.equal(found, found[:1].expand_as(found))


def test_augmentation_and_dropout_have_an_effect(federations):
    plain, augmented = models(federations["dsgt"]), models(federations["dsgt, augmented"])
    assert relative_distance(plain, augmented) > 1e-3
