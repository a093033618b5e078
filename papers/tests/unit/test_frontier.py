"""Accuracy against leak: known evidence fits the algorithm, shifts are removed, claims can fail."""

import numpy as np
import pytest
import torch
from filled_results import QUICK, fill, grades
from torch.func import grad

from tacit.algorithms import ALGORITHMS
from tacit.auditing.adversary import Adversary
from tacit.auditing.scoring.truth import Truth
from tacit.config.loading import with_keys
from tacit.privacy.matrix_step import MatrixStep
from tacit_papers.findings.frontier import BUDGETS, KEYS, MATRIX, RULES, config
from tacit_papers.findings.frontier_claims import HIDDEN, READ
from tacit_papers.findings.frontier_figure import LABEL_DISTANCE, POINT_DISTANCE, spread_apart
from tacit_papers.findings.frontier_picture import DARK, LABELS, LIGHT, draw
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.framework.drawing import write_figure
from tacit_papers.measures.best_reconstruction import (
    BestReconstruction,
    MatrixSearches,
    SearchesByEvidence,
    available_evidence,
)
from tacit_papers.measures.inversion_search import (
    InversionSearch,
    MatrixSearch,
    SignAgreement,
)
from tacit_papers.measures.recorded_run import RecordedRun

ONE, ALL = Adversary.parse("curious(1)+theta0"), Adversary.parse("curious(1,2,6,7)+theta0")
SERVER = Adversary.parse("server+theta0")
PRIVATE_NAMES = {n for n, kind in ALGORITHMS.items() if kind.keeps_guarantee}
ALL_RULES = {label: rule for rules in RULES.values() for label, rule in rules.items()}
WAY = "matrix 0.1"
FRESH, PRIVATE = "lppa, fresh masks, β = 0.05", "defl-vp, private variates, ε = 1"


def small(label):
    plain = with_keys(config(label, QUICK), "data", limit_train=64, limit_test=50)
    return with_keys(plain, "model", filters=2)


def recorded(label, iterations=1):
    return RecordedRun.record(small(label), iterations, 0, MeasureContext())


def first_gradient(run, number, victim=0):
    batch = Truth(run.task, 0).batch(victim, number)
    return grad(run.task.loss)(run.simulation.here.theta0[victim], *batch).double()


def off(found, true):
    return float((found - true).norm() / true.norm())


@pytest.mark.parametrize(
    ("label", "adversary", "kinds"),
    [
        ("dsgt", ONE, {"gradient"}),
        ("dsg", ONE, {"gradient"}),
        ("defl-vp, ε = 4", ONE, {"gradient"}),
        ("dp-dsgt, at the start, β = 0.025", ONE, {"noisy gradient", "difference", "group"}),
        ("dp-dsgt, every iteration, β = 0.1", ALL, {"noisy gradient"}),
        ("lppa, β = 0.1", ONE, {"noisy gradient", "difference", "group", "sum"}),
        (FRESH, ONE, {"noisy gradient", "sum"}),
        (FRESH, ALL, {"gradient"}),
        (PRIVATE, ALL, {"signs of the gradient"}),
        ("dsg-rms, σ = 0.1", ONE, {"gradient times a matrix"}),
        ("pdmm, σ = 0.3", ONE, {"noisy gradient"}),
        ("pdmm, σ = 0.3", ALL, {"gradient"}),
        ("fedavg", ONE, {"sum"}),
        ("fedavg", SERVER, {"gradient"}),
    ],
)
def test_what_there_is_to_invert(label, adversary, kinds):
    assert set(available_evidence(recorded(label, 8), [adversary], [0])) == kinds


def test_the_shift_of_gradient_tracking_is_removed_exactly():
    run = recorded("dsgt-rms, σ = 0.1")
    ((found,),) = available_evidence(run, [ONE], [0]).values()
    sent = run.transcript.of("gamma")[0].rows[0].double()
    assert off(sent, first_gradient(run, 0)) > 0.05
    assert off(found.values, first_gradient(run, 0)) < 1e-5


def test_the_shift_of_diffusion_is_removed_and_the_matrix_stays():
    run = recorded("dsg-rms, σ = 0.1")
    ((found,),) = available_evidence(run, [ONE], [0]).values()
    # The matrix has σ = 0.1 on and beside the diagonal.
    assert 0.05 < off(found.values, first_gradient(run, 1)) < 0.25


def test_signs_of_the_truth_agree_best():
    signs = torch.tensor([1.0, -2.0, 3.0, -0.1]).sign()
    right, half = (
        SignAgreement()(gradient, signs, torch.zeros(1))
        for gradient in (torch.tensor([2.0, -2.0, 2.0, -2.0]), torch.ones(4))
    )
    assert right < 1e-3
    assert half == pytest.approx(1.0)


def test_a_matrix_of_variance_one_hides_from_a_distance_and_not_from_its_likelihood():
    """With the dimensions of the finding, one sample, and an attack of a tenth of its effort."""
    label = "dsg-rms, σ = 1"
    setting = with_keys(config(label, QUICK), "run", batch_size=1)
    known = MatrixSearch("matrix", 200, 2, True, 0.1, MatrixStep(**RULES[MATRIX][label]["matrix"]))
    plain = tuple(InversionSearch("ours", 100, 2, True, weight) for weight in (0.01, 0.1))
    searches = MatrixSearches(plain, plain, (), plain, (known,))
    values = BestReconstruction(setting, searches, victims=1)(0, MeasureContext())
    floor, kind = values["class_mean"], "gradient times a matrix"
    assert values["tried"].keys() == {f"{kind}, {way}" for way in ("ours 0.01", "ours 0.1", WAY)}
    assert values["tried"][f"{kind}, {WAY}"] > floor + READ
    assert max(values["tried"][f"{kind}, ours {weight}"] for weight in (0.01, 0.1)) < floor + HIDDEN


def test_a_leak_is_never_below_the_class_mean():
    search = (InversionSearch("ours", 3, 1),)
    searches = SearchesByEvidence(search, search, search, search)
    values = BestReconstruction(small(FRESH), searches, victims=1)(0, MeasureContext())
    for suffix in ("", "_together"):
        leak, floor = values[f"leak{suffix}"], values[f"class_mean{suffix}"]
        assert leak in {*values[f"tried{suffix}"].values(), floor}
        assert leak >= floor
    assert set(values["tried"]) == {"noisy gradient, ours 0", "sum, ours 0"}
    inherited = {f"{way}, of one" for way in values["tried"]}
    assert set(values["tried_together"]) == {"gradient, ours 0", *inherited}


def test_every_algorithm_is_there():
    # Push-sum is for directed graphs, and the finding has an undirected one.
    assert {rule["name"] for rule in ALL_RULES.values()} == set(ALGORITHMS) - {"push-sum"}


def test_those_with_a_guarantee_have_a_budget():
    private = {label for label, rule in ALL_RULES.items() if rule["name"] in PRIVATE_NAMES}
    assert set(BUDGETS) == private
    assert config("decor, ε = 8, batches of 256", QUICK).privacy.epsilon == 8


def filled(leaks, accuracies):
    """All cells at SSIM 1 and 95 %, except those given by label."""

    def values(key):
        one, together = leaks.get(key[1], (1.0, 1.0))
        return {
            "accuracy": accuracies.get(key[1], 95.0),
            "leak": one,
            "leak_together": together,
            "class_mean": 0.3,
            "class_mean_together": 0.3,
            "by": "gradient",
            "by_together": "gradient",
        }

    return fill("findings/frontier", values)


def test_claims_can_come_out_either_way(tmp_path):
    every = "dp-dsgt, every iteration, β = 0.1"
    hidden = {
        FRESH: (0.33, 1.0),
        PRIVATE: (0.3, 0.3),
        every: (0.35, 0.35),
        "pdmm, σ = 0.3": (0.3, 1.0),
        "fedavg": (0.35, 1.0),
        "pd-lms, σ = 0.02": (0.3, 0.3),
        **dict.fromkeys(BUDGETS, (0.3, 0.3)),
    }
    assert set(hidden) <= set(KEYS)
    artifact, result = filled(hidden, {every: 90.0})
    assert set(grades(artifact, result).values()) == {"reproduced"}
    assert len(write_figure(artifact.draw(result), tmp_path)) == 2
    bad = grades(*filled({"dsgt": (0.3, 0.3)}, {FRESH: 80.0}))
    assert bad["without protection one neighbour sees the pictures"] == "not reproduced"
    assert (
        bad["lppa with fresh masks, β = 0.05: one neighbour sees no pictures"] == "not reproduced"
    )
    assert bad["lppa with fresh masks, β = 0.05, costs at most 0.5 points"] == "not reproduced"
    noise = "dp-dsgt: noise that hides the pictures costs at least 2 points"
    assert bad[noise] == "not measured"
    assert grades(*filled({every: (0.3, 0.3)}, {every: 94.9}))[noise] == "not reproduced"


def test_the_picture_names_settings_that_exist_and_works_without_the_others(tmp_path):
    assert set(LABELS) <= set(KEYS)
    _, frontier = filled({}, {"psgt": 10.0, "private-sgd, ε = 8": 86.0})
    _, training = fill("findings/private-training", lambda key: {"accuracy": 97.0})
    _, missing = fill(
        "findings/private-training", lambda key: None if key[1] == "∞" else {"accuracy": 97.0}
    )
    texts = {text.get_text() for axes in draw(frontier, training).axes for text in axes.texts}
    assert {"private-sgd", "lppa", "central DP-SGD", "dsgt"} <= texts
    assert any("psgt" in text for text in texts)
    for result, theme in ((training, LIGHT), (missing, DARK)):
        path = tmp_path / "picture.png"
        draw(frontier, result, theme).savefig(path)
        assert path.stat().st_size > 10_000


def test_labels_do_not_overlap():
    anchors = np.array([[100.0, 100.0], [101.0, 100.0], [100.0, 102.0], [160.0, 100.0]])
    found = spread_apart(anchors, anchors, np.zeros(2), np.array([300.0, 300.0]))
    apart = np.linalg.norm(found[:, None] - found[None], axis=2) + 1e9 * np.eye(4)
    assert apart.min() > 0.8 * LABEL_DISTANCE
    assert np.linalg.norm(found[:, None] - anchors[None], axis=2).min() > 0.7 * POINT_DISTANCE
