"""What masks leave to a curious neighbour: evidence is true, noise is what theory predicts."""

import math
from dataclasses import replace

import pytest
import torch
from filled_results import FULL, QUICK, fill, grades
from torch.func import grad

from tacit.auditing.scoring.truth import Truth
from tacit.config.loading import make_config, with_keys
from tacit_papers.findings import fresh_masks, start_masks
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.framework.drawing import write_figure
from tacit_papers.framework.stored_values import packed
from tacit_papers.measures.evidence_inversion import AHEAD, NeighbourInversion, next_neighbour
from tacit_papers.measures.inversion_search import InversionSearch
from tacit_papers.measures.neighbour_knowledge import NeighbourKnowledge
from tacit_papers.measures.recorded_run import RecordedRun

CONTEXT = MeasureContext()
TINY = {"name": "mlp", "hidden": [8], "activation": "sigmoid", "init": "independent"}


def tiny(rule, samples=10):
    plain = start_masks.config(rule, QUICK, 1, samples=samples).as_dict()
    return make_config(plain | {"model": TINY})


def true_gradient(run, seed, victim, number):
    """From the data and the model of the victim."""
    messages = run.transcript.of("theta")
    theta = next(message.rows for message in messages if message.tick == number + 1)[victim]
    batch = Truth(run.task, seed).batch(victim, number)
    return grad(run.task.loss)(theta, *batch).double()


@pytest.mark.parametrize("iteration", [0, 7])
def test_the_difference_from_messages_is_exact_for_masks_of_any_size(iteration):
    config = tiny(start_masks.masks(0.5))
    measure = NeighbourInversion(config, "difference", InversionSearch(), iteration)
    run = RecordedRun.record(config, iteration + AHEAD, 2, CONTEXT, since=iteration)
    recorded = {message.tick for message in run.transcript.messages}
    assert recorded == set(range(iteration + 1, iteration + AHEAD + 1))
    found = measure.evidence(run, 3)
    true = true_gradient(run, 2, 3, iteration + 1) - true_gradient(run, 2, 3, iteration)
    assert found.deviation == 0
    assert float((found.values - true).norm() / true.norm()) < 1e-3


def test_fresh_masks_leave_it_under_the_noise_that_the_audit_computes():
    config = tiny(start_masks.masks(0.1, fresh=True))
    measure = NeighbourInversion(config, "difference", InversionSearch(), 3)
    run = RecordedRun.record(config, 3 + AHEAD, 0, CONTEXT, since=3)
    found = measure.evidence(run, 0)
    error = found.values - (true_gradient(run, 0, 0, 4) - true_gradient(run, 0, 0, 3))
    # Two masks that are shared with the other neighbour, of variance 2β² each.
    assert found.deviation == pytest.approx(0.2, rel=1e-6)
    assert float(error.std()) == pytest.approx(found.deviation, rel=0.1)


def test_the_next_neighbour_receives_the_victims_messages():
    graph = RecordedRun.record(tiny({"name": "dsgt"}), 1, 0, CONTEXT).graph
    assert [next_neighbour(graph, victim) for victim in range(5)] == [1, 2, 3, 4, 0]


def test_differences_are_inverted_and_large_masks_hinder_noisy_evidence():
    search = InversionSearch("ours", 100, 1)
    start, fresh = tiny(start_masks.masks(0.5), samples=1), tiny(start_masks.masks(0.5, fresh=True))
    exact = NeighbourInversion(start, "difference", search, 0, 1)(0, CONTEXT)
    noisy = NeighbourInversion(fresh, "gradient", search, 0, 1)(0, CONTEXT)
    assert exact["exact"]
    assert exact["ssim"] > exact["ssim_of_class_mean"] + 0.3
    assert not noisy["exact"]
    assert noisy["noise"] == pytest.approx(1.0, rel=1e-6)
    assert noisy["ssim"] < noisy["ssim_of_class_mean"]


def test_what_all_neighbours_know_on_a_complete_graph():
    rules = {"name": "dsgt"}, start_masks.masks(0.1), start_masks.masks(0.1, fresh=True)
    configs = [with_keys(tiny(rule), "graph", kind="complete", clients=5) for rule in rules]
    plain, start, fresh = (NeighbourKnowledge(config, 4)(0, CONTEXT) for config in configs)
    assert plain["pairs"] == 20
    assert [one["gradient_exact"] for one in (plain, start, fresh)] == [1, 0, 0]
    assert [one["difference_exact"] for one in (plain, start, fresh)] == [1, 1, 0]
    assert [one["sum_exact"] for one in (plain, start, fresh)] == [1, 1, 1]
    # Three honest neighbours, two masks with each, of variance 2β².
    first = pytest.approx(math.sqrt(12) * 0.1, rel=1e-5)
    assert start["gradient_noise"] == start["gradient_noise_later"] == first
    assert fresh["gradient_noise"] == first
    assert fresh["gradient_noise_later"] == pytest.approx(2 * math.sqrt(12) * 0.1, rel=1e-5)


def leak(masked):
    def values(key):
        noisy = key[2] in start_masks.NOISY
        ssim = masked if noisy else 1 - 0.15 * int(key[1]) * (key[0] != start_masks.LATER)
        picture = packed(torch.eye(2)[None])
        return {
            "ssim": ssim,
            "ssim_of_class_mean": 0.3,
            "exact": not noisy,
            "noise": 0.05 if noisy else 0.0,
            "pictures": {"truth": picture, "guess": picture},
        }

    return values


def test_claims_about_inversion_are_judged_both_ways(tmp_path):
    artifact, result = fill("findings/start-masks", leak(masked=0.1), QUICK)
    right = list(grades(artifact, result).values())
    assert set(right) <= {"reproduced", "not measured"}
    assert right.count("reproduced") >= 12
    wrong = grades(*fill("findings/start-masks", leak(masked=0.9), QUICK))
    assert wrong["masks of β = 0.5 hide it"] == "not reproduced"
    assert wrong["IID: larger batches, less from differences"] == "reproduced"

    def nothing(key):
        return leak(0.1)(key) | {"ssim": 0.3, "exact": False}

    none = grades(*fill("findings/start-masks", nothing, QUICK))
    assert none["IID: larger batches, less from differences"] == "not reproduced"
    assert none["they do so in every round (class mean + 0.3)"] == "not reproduced"
    assert write_figure(artifact.draw(result), tmp_path)[0].stat().st_size > 1000


def cost(lost):
    def values(key):
        fresh, none = key[1] == fresh_masks.FRESH, key[1] == fresh_masks.NONE
        growth = math.sqrt(fresh_masks.AUDITED) if fresh else 1.0
        return {
            "accuracy": 90.0 - lost * fresh,
            "consensus_distance": 1.0 if fresh else 0.1,
            "gradient_exact": float(none),
            "difference_exact": float(not fresh),
            "sum_exact": 0.7,
            "gradient_noise": None if none else 0.05,
            "gradient_noise_later": None if none else 0.05 * growth,
        }

    return values


def test_claims_about_cost_are_judged_both_ways(tmp_path):
    artifact, result = fill("findings/fresh-masks", cost(0.0), QUICK)
    assert set(grades(artifact, result).values()) == {"reproduced"}
    words = grades(*fill("findings/fresh-masks", cost(10.0), QUICK))
    lost = [word for text, word in words.items() if text.startswith("fresh masks, β")]
    assert lost == ["not reproduced"] * 3
    assert write_figure(artifact.draw(result), tmp_path)[0].stat().st_size > 1000
    part = replace(result, cells=[cell for cell in result.cells if cell.key == fresh_masks.PLAIN])
    assert write_figure(artifact.draw(part), tmp_path)


def test_the_protocol_of_the_paper_is_kept_at_full_size():
    config = fresh_masks.config("0.1", fresh_masks.FRESH, FULL)
    assert (config.run.rounds, config.run.batch_size, config.data.name) == (50, 128, "mnist")
    assert config.algorithm.options["noise"] == {"law": "laplace", "scale": 0.1}
    assert config.algorithm.options["fresh"] is True
    assert fresh_masks.config("0", fresh_masks.NONE, FULL).algorithm.name == "dsgt"
