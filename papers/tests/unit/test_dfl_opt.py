"""Leaks of distributed optimization: what the measures give is what the theory, or a slow computation, says."""

import math
from dataclasses import replace
from functools import cache

import networkx as nx
import pytest
import torch
from torch.nn import functional

from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.memberships import Candidates
from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit_papers.dfl_opt.setting import SMALL_MLP, algorithm, config, radius
from tacit_papers.framework.artifact import Artifact, Cell, MeasureContext, Scale
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.framework.trends import above, falls, unchanged
from tacit_papers.measures.inverting import Inverting
from tacit_papers.measures.inverting_over_time import InvertingOverTime
from tacit_papers.measures.later_evidence import LaterEvidence
from tacit_papers.measures.logistic_leak import LogisticLeak, samples
from tacit_papers.measures.membership import MembershipMeasure
from tacit_papers.measures.overheard import Overheard, against, component
from tacit_papers.measures.published_lbfgs import PublishedLBFGS
from tacit_papers.measures.search import Search
from tacit_papers.measures.together import Together

QUICK, HERE = Scale(quick=True), MeasureContext()
TINY = SMALL_MLP | {"hidden": [8]}
NODES = 5


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Many small operations."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(protocol, **options):
    return config("MNIST", protocol, QUICK, nodes=NODES, model=TINY, **options)


@cache
def heard():
    return Overheard.of(tiny("DFL"), 2, 3, HERE)


@cache
def later():
    return LaterEvidence.of(tiny("DFL"), (0, 4), 3, HERE)


@pytest.mark.parametrize("protocol", ["CFL", "DFL"])
def test_samples_of_logistic_regression_follow_from_messages(protocol):
    values = LogisticLeak(protocol, 8, radius(8), 9)(2, HERE)
    assert values["largest_error"] < 1e-8
    assert len(values["curve"]["error"]) == (9 if protocol == "CFL" else 7)


def test_with_another_rho_than_the_nodes_the_eavesdropper_finds_nothing(monkeypatch):
    from tacit_papers.measures import logistic_leak

    right = logistic_leak.gradient_changes

    def wrong(told, n, rho, mu, solver):
        return right(told, n, 1.1 * rho, mu, solver)

    monkeypatch.setattr(logistic_leak, "gradient_changes", wrong)
    assert LogisticLeak("DFL", 8, radius(8), 9)(2, HERE)["error"] > 1e-2


def test_samples_are_around_two_means():
    x, labels = samples(4000, 0)
    for label, mean in ((0, -1.0), (1, 1.0)):
        assert x[labels == label].mean(0) == pytest.approx([mean, mean], abs=0.1)
    assert x[labels == 1].std() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("question", ["difference", "sum"])
def test_what_messages_tell_is_what_is_inside(question):
    honest = component(heard().graph, 0, 2)
    told = heard().held(against(honest, NODES), 0, question)
    inside = later().held(honest if question == "sum" else [0], question, 0)
    assert told.terms == inside.terms
    assert told.coefficients == inside.coefficients
    torch.testing.assert_close(told.points, inside.points.double(), rtol=0, atol=1e-5)
    off = (told.values - inside.values).norm() / inside.values.norm()
    assert float(off) < 1e-3


def test_three_messages_tell_a_late_difference():
    told = later().held([1], "difference", 4)
    without = replace(later(), changes={}).held([1], "difference", 4)
    assert 4 in later().changes
    assert not torch.equal(told.values, without.values)  # messages are rounded
    off = float((told.values - without.values).norm() / without.values.norm())
    assert off == pytest.approx(told.rounding, rel=1e-6)
    assert off < 1e-2


def test_a_gradient_is_the_mean_over_the_batch_by_hand():
    held = later().held([1], "gradient", 0)
    x, y = Truth(later().task, 3).members(1)
    weights = held.points[0].clone().requires_grad_(True)
    flat = later().task.loss.flat
    functional.cross_entropy(flat(weights, x), y).backward()
    torch.testing.assert_close(held.values, weights.grad.double(), rtol=1e-4, atol=1e-7)
    with pytest.raises(Misuse):
        later().held([0, 1], "gradient", 0)


def test_the_noise_left_on_a_gradient_is_half_of_what_was_drawn():
    """Each of the d edges brings zᵢ|ⱼ with variance σ²; messages tell zᵢ|ⱼ − zⱼ|ᵢ, which leaves half of it."""
    honest = component(heard().graph, 0, NODES - 1)
    held = heard().held(against(honest, NODES), 0, "gradient")
    degree = sum(i == 0 and j in honest for i, j in heard().graph.edges.tolist())
    assert held.kind == "noisy gradient"
    assert held.deviation == pytest.approx(0.01 * math.sqrt(degree / 2), rel=1e-6)


def test_without_a_corrupt_client_no_sum_is_known():
    with pytest.raises(Misuse, match="one client be corrupt"):
        heard().held(against(range(NODES), NODES), 0, "sum")


@pytest.mark.parametrize("size", [1, 3, 5])
def test_components_are_connected_and_have_the_victim(size):
    graph = heard().graph
    found = component(graph, 2, size)
    network = nx.Graph([(int(i), int(j)) for i, j in graph.edges]).subgraph(found)
    assert 2 in found
    assert len(found) == size
    assert nx.is_connected(network)


@pytest.mark.parametrize("scale", [1.0, 1e-14])
def test_published_lbfgs_gives_up_where_slopes_are_small(scale):
    curvature = torch.tensor([1.0, 3.0], dtype=torch.float64)

    def bowl(rows, which):
        return scale * (curvature * rows.square()).sum(1), scale * 2 * curvature * rows

    start = torch.tensor([[1.0, -2.0], [0.5, 1.0]], dtype=torch.float64)
    published = PublishedLBFGS(50).minimise(start, bowl).x.abs().amax()
    ours = LBFGS(50).minimise(start, bowl).x.abs().amax()
    assert float(ours) < 1e-3
    assert (float(published) < 1e-3) == (scale == 1.0)


def test_a_gradient_is_inverted_and_noise_hinders_it():
    search = Search("ours", 120, 1)
    clear = Inverting(tiny("CFL", batch=1), "gradient", search, 1)(0, HERE)
    noisy = Inverting(tiny("DFL", batch=1, variance=0.1), "gradient", search, 1, NODES - 1)(0, HERE)
    assert clear["ssim"] > 0.95
    assert noisy["ssim"] < 0.5
    assert clear["gradients_in_each"] == noisy["gradients_in_each"] == [1]
    picture = torch.tensor(clear["pictures"]["guess"][0]) - torch.tensor(
        clear["pictures"]["truth"][0]
    )
    assert float(picture.abs().mean()) < 0.02


def test_one_scattered_honest_node_is_alone_in_its_sum():
    measure = Inverting(tiny("DFL", batch=1), "sum", Search("DLG", 5, 1), 2, 1, scattered=True)
    assert measure(0, HERE)["gradients_in_each"] == [1, 1]
    assert measure.describe()["honest"] == 1


def test_over_time_is_the_same_again():
    measure = InvertingOverTime(tiny("DFL", batch=1), "difference", Search("DLG", 5, 1), (0, 3), 1)
    values = measure(1, HERE)
    assert values["curve"]["iteration"] == [0, 3]
    assert values["first"] == values["curve"]["ssim"][0]
    assert measure(1, HERE) == values


def test_membership_is_the_area_by_counting_pairs():
    setting = tiny("CFL", batch=30)
    values = MembershipMeasure(setting, "gradient", (0,), victims=1)(4, HERE)
    inside = LaterEvidence.of(setting, (0,), 4, HERE)
    held, truth = inside.held([0], "gradient", 0), Truth(inside.task, 4)
    asked = Candidates.of(truth.members(0), truth.outsiders(0), 4)
    scores = []
    for x, y in zip(asked.x, asked.y, strict=True):
        weights = held.points[0].clone().requires_grad_(True)
        functional.cross_entropy(inside.task.loss.flat(weights, x[None]), y[None]).backward()
        scores.append(
            float(functional.cosine_similarity(weights.grad.double(), held.values, dim=0))
        )
    members = [s for s, member in zip(scores, asked.members, strict=True) if member]
    others = [s for s, member in zip(scores, asked.members, strict=True) if not member]
    area = sum((a > b) + (a == b) / 2 for a in members for b in others) / len(members) / len(others)
    assert values["auc"] == pytest.approx(area, abs=1e-3)


def test_a_sum_of_one_says_as_much_of_membership_as_its_gradient():
    by = [
        MembershipMeasure(tiny("DFL", batch=30), question, (0, 2), 1, 1)(0, HERE)["auc"]
        for question in ("sum", "gradient")
    ]
    assert by[0] == by[1]


class Told:
    def __init__(self, **values):
        self.values = values

    def describe(self):
        return dict(self.values)

    def __call__(self, seed, place):
        return dict(self.values)


def test_together_prefers_the_first():
    both = Together((Told(ssim=0.5, curve=1), Told(accuracy=90.0, curve=2)))
    assert both(0, HERE) == {"ssim": 0.5, "accuracy": 90.0, "curve": 1}


def outcome(numbers):
    cells = [Cell((name,), Told(score=value)) for name, value in numbers.items()]
    made = Artifact("t/t", "t", ("a",), lambda scale: cells, "score", [], None, "p", "q")
    found = ArtifactResult.empty(made, Scale(), cells)
    for cell in cells:
        found[cell.key].values[0] = cell.measure(0, HERE)
    return found


A, B, C = ("a",), ("b",), ("c",)


@pytest.mark.parametrize(
    ("claim", "numbers", "word"),
    [
        (above([(A, B), (A, C)], "t", "p", 0.1), {"a": 0.9, "b": 0.5, "c": 0.2}, "reproduced"),
        (above([(A, B), (A, C)], "t", "p", 0.1), {"a": 0.9, "b": 0.85, "c": 0.2}, "partly"),
        (above([(A, B)], "t", "p", 0.1), {"a": 0.2, "b": 0.5}, "not reproduced"),
        (above([(A, C)], "t", "p"), {"a": 0.2, "b": 0.5}, "not measured"),
        (falls([A, B, C], "t", "p"), {"a": 0.9, "b": 0.5, "c": 0.2}, "reproduced"),
        (falls([A, B, C], "t", "p"), {"a": 0.9, "b": 0.1, "c": 0.2}, "partly"),
        (falls([A, B, C], "t", "p"), {"a": 0.9, "b": 0.5, "c": 0.9}, "not reproduced"),
        (unchanged([A, B, C], "t", "p", 1.0), {"a": 90.0, "b": 90.5, "c": 90.9}, "reproduced"),
        (unchanged([A, B, C], "t", "p", 1.0), {"a": 90.0, "b": 92.0}, "partly"),
        (unchanged([A, B], "t", "p", 1.0), {"a": 90.0, "b": 80.0}, "not reproduced"),
    ],
)
def test_trends_are_judged_both_ways(claim, numbers, word):
    assert claim.verdict(outcome(numbers)).word == word


def test_both_protocols_take_the_same_step():
    assert algorithm("CFL")["lr"] == algorithm("DFL")["solver"]["mu"] == 1 / 30
    assert algorithm("DFL", 1e-4)["noise"]["scale"] == pytest.approx(0.01)
