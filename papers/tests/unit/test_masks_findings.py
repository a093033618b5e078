"""What masks leave to a curious neighbour: evidence is what is inside, noise is what theory says, claims judge it."""

import math
from dataclasses import replace

import pytest
import torch
from torch.func import grad

from tacit.auditing.scoring.truth import Truth
from tacit.config.loading import with_keys, make_config
from tacit_papers.findings import fresh_masks, start_masks
from tacit_papers.framework.artifact import MeasureContext, Scale
from tacit_papers.framework.drawing import write_figure
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.framework.registry import find_artifact
from tacit_papers.measures.neighbour_inversion import AHEAD, NeighbourInversion, neighbour
from tacit_papers.measures.neighbour_knowledge import NeighbourKnowledge
from tacit_papers.measures.recorded_run import RecordedRun
from tacit_papers.measures.inversion_search import InversionSearch

QUICK, HERE = Scale(quick=True), MeasureContext()
TINY = {"name": "mlp", "hidden": [8], "activation": "sigmoid", "init": "independent"}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Many small operations."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(rule, batch=1, samples=10):
    return make_config(
        start_masks.config(rule, QUICK, batch, samples=samples).as_dict() | {"model": TINY}
    )


def inside(heard, seed, victim, number):
    """A gradient by the data that it was taken on, at the model that was sent."""
    loss = heard.task.loss
    theta = heard.transcript.of("theta")
    at = next(message.rows for message in theta if message.tick == number + 1)[victim]
    return grad(loss)(at, *Truth(heard.task, seed).batch(victim, number)).double()


@pytest.mark.parametrize("iteration", [0, 7])
def test_the_difference_from_messages_is_that_of_the_gradients_whatever_the_masks(iteration):
    measure = NeighbourInversion(tiny(start_masks.masks(0.5)), "difference", InversionSearch(), iteration)
    heard = RecordedRun.of(measure.config, iteration + AHEAD, 2, HERE, since=iteration)
    assert {message.tick for message in heard.transcript.messages} == set(
        range(iteration + 1, iteration + AHEAD + 1)
    )
    told = measure.held(heard, 3)
    true = inside(heard, 2, 3, iteration + 1) - inside(heard, 2, 3, iteration)
    assert told.deviation == 0
    assert float((told.values - true).norm() / true.norm()) < 1e-3


def test_fresh_masks_leave_it_under_the_noise_that_the_audit_names():
    measure = NeighbourInversion(tiny(start_masks.masks(0.1, fresh=True)), "difference", InversionSearch(), 3)
    heard = RecordedRun.of(measure.config, 3 + AHEAD, 0, HERE, since=3)
    told = measure.held(heard, 0)
    error = told.values - (inside(heard, 0, 0, 4) - inside(heard, 0, 0, 3))
    # two masks that are shared with the other neighbour, of variance 2β² each
    assert told.deviation == pytest.approx(0.2, rel=1e-6)
    assert float(error.std()) == pytest.approx(told.deviation, rel=0.1)


def test_a_neighbour_is_one_that_hears_the_victim():
    graph = RecordedRun.of(tiny({"name": "dsgt"}), 1, 0, HERE).graph
    assert [neighbour(graph, victim) for victim in range(5)] == [1, 2, 3, 4, 0]


def test_differences_are_inverted_and_large_masks_hinder_what_is_under_noise():
    search = InversionSearch("ours", 100, 1)
    exact = NeighbourInversion(tiny(start_masks.masks(0.5), samples=1), "difference", search, 0, 1)(
        0, HERE
    )
    noisy = NeighbourInversion(tiny(start_masks.masks(0.5, fresh=True)), "gradient", search, 0, 1)(
        0, HERE
    )
    assert exact["exact"]
    assert exact["ssim"] > exact["ssim_of_class_mean"] + 0.3
    assert not noisy["exact"]
    assert noisy["noise"] == pytest.approx(1.0, rel=1e-6)
    assert noisy["ssim"] < noisy["ssim_of_class_mean"]


def known(rule):
    config = with_keys(tiny(rule), "graph", kind="complete", clients=5)
    return NeighbourKnowledge(config, 4)(0, HERE)


def test_what_all_neighbours_know_on_a_complete_graph():
    plain, start, fresh = (
        known(rule)
        for rule in ({"name": "dsgt"}, start_masks.masks(0.1), start_masks.masks(0.1, fresh=True))
    )
    assert plain["pairs"] == 20
    assert [one["gradient_exact"] for one in (plain, start, fresh)] == [1, 0, 0]
    assert [one["difference_exact"] for one in (plain, start, fresh)] == [1, 1, 0]
    assert [one["sum_exact"] for one in (plain, start, fresh)] == [1, 1, 1]
    # three neighbours that are honest, two masks with each, of variance 2β²
    first = math.sqrt(12) * 0.1
    assert (
        start["gradient_noise"] == start["gradient_noise_later"] == pytest.approx(first, rel=1e-5)
    )
    assert fresh["gradient_noise"] == pytest.approx(first, rel=1e-5)
    assert fresh["gradient_noise_later"] == pytest.approx(2 * first, rel=1e-5)


def filled(name, values, scale=QUICK):
    """An outcome with made-up values, by a function of the key, and the verdicts on it."""
    artifact = find_artifact(name)
    result = ArtifactResult.empty(artifact, scale, artifact.cells(scale))
    for cell in result.cells:
        cell.values[0] = values(cell.key)
    return result, {claim.text: claim.verdict(result).word for claim in artifact.claims}


def leak(masked):
    def values(key):
        noisy = key[2] in start_masks.NOISY
        ssim = masked if noisy else 1 - 0.15 * int(key[1]) * (key[0] != start_masks.LATER)
        picture = [[[0.0, 1.0], [1.0, 0.0]]]
        return {
            "ssim": ssim,
            "ssim_of_class_mean": 0.3,
            "exact": not noisy,
            "noise": 0.05 if noisy else 0.0,
            "pictures": {"truth": picture, "guess": picture},
        }

    return values


def test_claims_about_inversion_judge_both_ways(tmp_path):
    result, right = filled("findings/start-masks", leak(masked=0.1))
    assert set(right.values()) <= {"reproduced", "not measured"}
    assert list(right.values()).count("reproduced") >= 12
    _, wrong = filled("findings/start-masks", leak(masked=0.9))
    assert wrong["masks of β = 0.5 hide it"] == "not reproduced"
    assert wrong["IID: larger batches, less from differences"] == "reproduced"
    _, none = filled(
        "findings/start-masks", lambda key: leak(0.1)(key) | {"ssim": 0.3, "exact": False}
    )
    assert none["IID: larger batches, less from differences"] == "not reproduced"
    assert none["they do so in every round (class mean + 0.3)"] == "not reproduced"
    assert write_figure(result.artifact.draw(result), tmp_path)[0].stat().st_size > 1000


def cost(lost):
    def values(key):
        fresh, none = key[1] == fresh_masks.FRESH, key[1] == fresh_masks.NONE
        noise = None if none else 0.05
        return {
            "accuracy": 90.0 - lost * fresh,
            "consensus_distance": 1.0 if fresh else 0.1,
            "gradient_exact": float(none),
            "difference_exact": float(not fresh),
            "sum_exact": 0.7,
            "gradient_noise": noise,
            "gradient_noise_later": noise
            and noise * (math.sqrt(fresh_masks.AUDITED) if fresh else 1.0),
        }

    return values


def test_claims_about_cost_judge_both_ways(tmp_path):
    result, words = filled("findings/fresh-masks", cost(0.0))
    assert set(words.values()) == {"reproduced"}
    _, words = filled("findings/fresh-masks", cost(10.0))
    lost = [word for text, word in words.items() if text.startswith("fresh masks, β")]
    assert lost == ["not reproduced"] * 3
    assert write_figure(result.artifact.draw(result), tmp_path)[0].stat().st_size > 1000
    part = replace(result, cells=[cell for cell in result.cells if cell.key == fresh_masks.PLAIN])
    assert write_figure(part.artifact.draw(part), tmp_path)


def test_the_protocol_of_the_paper_is_kept_at_full_size():
    config = fresh_masks.config("0.1", fresh_masks.FRESH, Scale())
    assert (config.run.rounds, config.run.batch_size, config.data.name) == (50, 128, "mnist")
    assert config.algorithm.options["noise"] == {"law": "laplace", "scale": 0.1}
    assert config.algorithm.options["fresh"] is True
    assert fresh_masks.config("0", fresh_masks.NONE, Scale()).algorithm.name == "dsgt"
