"""Leaks of distributed optimization: measures agree with theory or with a slow computation."""

import math
from dataclasses import replace
from functools import cache

import networkx as nx
import numpy as np
import pytest
import torch
from filled_results import FULL, QUICK, fill_grades
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from torch.nn import functional

from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.membership_attacks import Candidates
from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit.graph import Topology
from tacit_papers.dfl_opt.setting import SMALL_MLP, algorithm, config, radius
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Combined, MeasureContext, Scale
from tacit_papers.framework.claims import above, falls, unchanged
from tacit_papers.framework.stored_values import unpacked
from tacit_papers.measures.evidence_inversion import EvidenceInversion
from tacit_papers.measures.inversion_over_time import InversionOverTime
from tacit_papers.measures.inversion_search import InversionSearch, TorchLBFGS
from tacit_papers.measures.logistic_leak import LogisticLeak, samples
from tacit_papers.measures.membership import GradientMembership
from tacit_papers.measures.model_snapshots import ModelSnapshots
from tacit_papers.measures.recorded_run import RecordedRun, all_others, nearest_clients

CONTEXT = MeasureContext()
TINY = SMALL_MLP | {"hidden": [8]}
NODES = 5


def tiny(protocol, **options):
    return config("MNIST", protocol, QUICK, nodes=NODES, model=TINY, **options)


@cache
def recorded():
    return RecordedRun.record(tiny("DFL"), 2, 3, CONTEXT)


@cache
def snapshots():
    return ModelSnapshots.record(tiny("DFL"), (0, 4), 3, CONTEXT)


@pytest.mark.parametrize("protocol", ["CFL", "DFL"])
def test_samples_of_logistic_regression_follow_from_messages(protocol):
    values = LogisticLeak(protocol, 8, radius(8), 9)(2, CONTEXT)
    assert values["largest_error"] < 1e-8
    assert len(values["curve"]["error"]) == (9 if protocol == "CFL" else 7)


def test_with_another_rho_than_the_nodes_the_eavesdropper_finds_nothing(monkeypatch):
    from tacit_papers.measures import logistic_leak

    right = logistic_leak.gradient_differences

    def wrong(messages, n, rho, solver):
        return right(messages, n, 1.1 * rho, solver)

    monkeypatch.setattr(logistic_leak, "gradient_differences", wrong)
    assert LogisticLeak("DFL", 8, radius(8), 9)(2, CONTEXT)["error"] > 1e-2


def test_samples_are_around_two_means():
    x, labels = samples(4000, 0)
    for label, mean in ((0, -1.0), (1, 1.0)):
        assert x[labels == label].mean(0) == pytest.approx([mean, mean], abs=0.1)
    assert x[labels == 1].std() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("question", ["difference", "sum"])
def test_evidence_from_messages_is_that_of_the_models(question):
    honest = nearest_clients(recorded().graph, 0, 2)
    found = recorded().evidence(all_others(honest, NODES), 0, question)
    true = snapshots().evidence(honest if question == "sum" else [0], question, 0)
    assert found.terms == true.terms
    assert found.coefficients == true.coefficients
    torch.testing.assert_close(found.points, true.points.double(), rtol=0, atol=1e-5)
    off = (found.values - true.values).norm() / true.values.norm()
    assert float(off) < 1e-3


def test_three_messages_reveal_a_late_difference():
    found = snapshots().evidence([1], "difference", 4)
    true = replace(snapshots(), differences={}).evidence([1], "difference", 4)
    assert 4 in snapshots().differences
    assert not torch.equal(found.values, true.values)  # messages are rounded
    off = float((found.values - true.values).norm() / true.values.norm())
    assert off == pytest.approx(found.rounding, rel=1e-6)
    assert off < 1e-2


def test_a_gradient_is_the_mean_over_the_batch_by_hand():
    found = snapshots().evidence([1], "gradient", 0)
    x, y = Truth(snapshots().task, 3).members(1)
    weights = found.points[0].clone().requires_grad_(True)
    flat = snapshots().task.loss.flat
    functional.cross_entropy(flat(weights, x), y).backward()
    torch.testing.assert_close(found.values, weights.grad.double(), rtol=1e-4, atol=1e-7)
    with pytest.raises(Misuse):
        snapshots().evidence([0, 1], "gradient", 0)


def test_the_noise_left_on_a_gradient_is_half_of_what_was_drawn():
    """Each of d edges adds zᵢ|ⱼ of variance σ²; messages reveal zᵢ|ⱼ − zⱼ|ᵢ, which halves it."""
    honest = nearest_clients(recorded().graph, 0, NODES - 1)
    found = recorded().evidence(all_others(honest, NODES), 0, "gradient", noisy=True)
    degree = sum(i == 0 and j in honest for i, j in recorded().graph.edges.tolist())
    assert found.kind == "noisy gradient"
    assert found.deviation == pytest.approx(0.01 * math.sqrt(degree / 2), rel=1e-6)


def test_without_a_corrupt_client_no_sum_is_known():
    with pytest.raises(Misuse, match="one client be corrupt"):
        recorded().evidence(all_others(range(NODES), NODES), 0, "sum")


@pytest.mark.parametrize("size", [1, 3, 5])
def test_nearest_clients_are_connected_and_include_the_victim(size):
    graph = recorded().graph
    found = nearest_clients(graph, 2, size)
    network = nx.Graph([(int(i), int(j)) for i, j in graph.edges]).subgraph(found)
    assert 2 in found
    assert len(found) == size
    assert nx.is_connected(network)


@pytest.mark.parametrize("scale", [1.0, 1e-14])
def test_torch_lbfgs_gives_up_where_slopes_are_small(scale):
    curvature = torch.tensor([1.0, 3.0], dtype=torch.float64)

    def bowl(rows, which):
        return scale * (curvature * rows.square()).sum(1), scale * 2 * curvature * rows

    start = torch.tensor([[1.0, -2.0], [0.5, 1.0]], dtype=torch.float64)
    published = TorchLBFGS(50).minimise(start, bowl).x.abs().amax()
    ours = LBFGS(50).minimise(start, bowl).x.abs().amax()
    assert float(ours) < 1e-3
    assert (float(published) < 1e-3) == (scale == 1.0)


def test_a_gradient_is_inverted_and_noise_hinders_it():
    search = InversionSearch("ours", 120, 1)
    clear = EvidenceInversion(tiny("CFL", batch=1), "gradient", search, 1)(0, CONTEXT)
    noise = tiny("DFL", batch=1, variance=0.1)
    noisy = EvidenceInversion(noise, "gradient", search, 1, NODES - 1)(0, CONTEXT)
    assert clear["ssim"] > 0.95
    assert noisy["ssim"] < 0.5
    assert clear["gradients_in_each"] == noisy["gradients_in_each"] == [1]
    guess, truth = (unpacked(clear["pictures"][name][0]) for name in ("guess", "truth"))
    assert float(abs(guess - truth).mean()) < 0.02


def test_one_scattered_honest_node_is_alone_in_its_sum():
    search = InversionSearch("DLG", 5, 1)
    measure = EvidenceInversion(tiny("DFL", batch=1), "sum", search, 2, 1, scattered=True)
    assert measure(0, CONTEXT)["gradients_in_each"] == [1, 1]
    assert measure.describe()["honest"] == 1


def test_inversion_over_time_is_repeatable():
    search = InversionSearch("DLG", 5, 1)
    measure = InversionOverTime(tiny("DFL", batch=1), "difference", search, (0, 3), 1)
    values = measure(1, CONTEXT)
    assert values["curve"]["iteration"] == [0, 3]
    assert values["first"] == values["curve"]["ssim"][0]
    assert measure(1, CONTEXT) == values


def test_membership_is_the_area_by_counting_pairs():
    setting = tiny("CFL", batch=30)
    values = GradientMembership(setting, "gradient", (0,), victims=1)(4, CONTEXT)
    run = ModelSnapshots.record(setting, (0,), 4, CONTEXT)
    evidence, truth = run.evidence([0], "gradient", 0), Truth(run.task, 4)
    candidates = Candidates.of(truth.members(0), truth.non_members(0), 4)
    scores = []
    for x, y in zip(candidates.x, candidates.y, strict=True):
        weights = evidence.points[0].clone().requires_grad_(True)
        functional.cross_entropy(run.task.loss.flat(weights, x[None]), y[None]).backward()
        cosine = functional.cosine_similarity(weights.grad.double(), evidence.values, dim=0)
        scores.append(float(cosine))
    members = [s for s, member in zip(scores, candidates.members, strict=True) if member]
    others = [s for s, member in zip(scores, candidates.members, strict=True) if not member]
    area = sum((a > b) + (a == b) / 2 for a in members for b in others) / len(members) / len(others)
    assert values["auc"] == pytest.approx(area, abs=1e-3)


def test_a_sum_of_one_reveals_as_much_about_membership_as_its_gradient():
    by_sum, by_gradient = (
        GradientMembership(tiny("DFL", batch=30), question, (0, 2), 1, 1)(0, CONTEXT)["auc"]
        for question in ("sum", "gradient")
    )
    assert by_sum == by_gradient


class FixedMeasure:
    def __init__(self, **values):
        self.values = values

    def describe(self):
        return dict(self.values)

    def __call__(self, seed, context):
        return dict(self.values)


def test_combined_measures_prefer_the_first():
    both = Combined((FixedMeasure(ssim=0.5, curve=1), FixedMeasure(accuracy=90.0, curve=2)))
    assert both(0, CONTEXT) == {"ssim": 0.5, "accuracy": 90.0, "curve": 1}


A, B, C = ("a",), ("b",), ("c",)


@pytest.mark.parametrize(
    ("claim", "numbers", "word"),
    [
        (above("t", "p", [(A, B), (A, C)], 0.1), {"a": 0.9, "b": 0.5, "c": 0.2}, "reproduced"),
        (above("t", "p", [(A, B), (A, C)], 0.1), {"a": 0.9, "b": 0.85, "c": 0.2}, "partly"),
        (above("t", "p", [(A, B)], 0.1), {"a": 0.2, "b": 0.5}, "not reproduced"),
        (above("t", "p", [(A, C)]), {"a": 0.2, "b": 0.5}, "not measured"),
        (falls("t", "p", [A, B, C]), {"a": 0.9, "b": 0.5, "c": 0.2}, "reproduced"),
        (falls("t", "p", [A, B, C]), {"a": 0.9, "b": 0.1, "c": 0.2}, "partly"),
        (falls("t", "p", [A, B, C]), {"a": 0.9, "b": 0.5, "c": 0.9}, "not reproduced"),
        (unchanged("t", "p", [A, B, C], 1.0), {"a": 90.0, "b": 90.5, "c": 90.9}, "reproduced"),
        (unchanged("t", "p", [A, B, C], 1.0), {"a": 90.0, "b": 92.0}, "partly"),
        (unchanged("t", "p", [A, B], 1.0), {"a": 90.0, "b": 80.0}, "not reproduced"),
    ],
)
def test_trends_are_judged_both_ways(claim, numbers, word):
    cells = [Cell((name,), FixedMeasure(score=value)) for name, value in numbers.items()]
    artifact = Artifact("t/t", "t", ("a",), lambda scale: cells, "score", [], None, "p", "q")
    result = artifact.new_result(Scale())
    for cell in cells:
        result[cell.key].values[0] = cell.measure(0, CONTEXT)
    assert claim.judge(result).grade == word


@pytest.mark.parametrize(("scale", "least", "most"), [(FULL, "2%", "98%"), (QUICK, "10%", "90%")])
def test_one_honest_node_is_compared_with_the_gradient(scale, least, most):
    found = {(least, "CFL, gradient"): 0.95, (most, "DFL, sum"): 0.96}

    def judged():
        values = {("MNIST", *key): {"ssim": number} for key, number in found.items()}
        return fill_grades("dfl-opt/fig8", values.get, scale)[1]

    assert judged() == "reproduced"
    found[most, "DFL, sum"] = 0.5
    assert judged() == "not reproduced"
    del found[most, "DFL, sum"]
    assert judged() == "not measured"


def test_both_protocols_take_the_same_step():
    assert algorithm("CFL")["lr"] == algorithm("DFL")["solver"]["mu"] == 1 / 30
    assert algorithm("DFL", 1e-4)["noise"]["scale"] == pytest.approx(0.01)


def test_graphs_of_figure_2_have_the_degrees_that_its_explanation_names():
    squares = [Topology.random_geometric(60, radius(60), seed) for seed in range(3)]
    assert [int(graph.degrees.max()) for graph in squares] == [24, 28, 28]
    cubes = [np.random.default_rng(seed).random((60, 3)) for seed in range(200)]
    graphs = [cdist(at, at) < radius(60) for at in cubes]
    connected = [near for near in graphs if connected_components(near)[0] == 1]
    assert len(connected) == 149
    assert max(near.sum(axis=1).max() - 1 for near in connected) == 24
