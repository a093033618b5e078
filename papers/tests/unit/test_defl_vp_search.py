"""Other readings of DeFL-VP, the search of its settings, and attacks on models that overfit."""

from dataclasses import replace

import pytest
import torch
from filled_results import FULL, fill, grades
from matplotlib.figure import Figure

import tacit
from tacit.config.loading import make_config
from tacit_papers.defl_vp import membership, settings
from tacit_papers.defl_vp.readings import GradientMomentum, LocalEpoch
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.measures.ablation_search import AblationSearch, PublishedAblation
from tacit_papers.measures.membership_suite import MembershipSuite, Signs

PLAIN = {"variance_reduction": False, "randomized_response": False, "codec": tacit.Identity()}
PAPER = PublishedAblation(
    {"whole": 90.0, "ablated": 80.0, "rounds": 2.0},
    {"whole": 5.0, "ablated": 10.0, "rounds": 1.0},
    50.0,
)


def quadratic():
    draw = torch.Generator().manual_seed(0)
    curvature = torch.diag_embed(1 + torch.rand(4, 3, generator=draw))
    return tacit.quadratic(curvature, torch.randn(4, 3, generator=draw))


def models(algorithm, steps=3):
    graph = tacit.Topology.ring(4).mixing("metropolis")
    return tacit.run(quadratic(), algorithm, graph, steps=steps).theta


def test_a_local_epoch_is_descent_by_each_client_before_the_models_are_averaged():
    task, graph = quadratic(), tacit.Topology.ring(4).mixing("metropolis")
    weights = torch.from_numpy(graph.weights.toarray())
    x = task.initial(0, torch.arange(4))
    for _ in range(3):
        for _ in range(5):
            x = x - 0.1 * torch.stack(
                [
                    torch.func.grad(task.loss)(row, *part)
                    for row, part in zip(x, task.parts, strict=True)
                ]
            )
        x = weights.to(x) @ x
    found = models(LocalEpoch(lr=0.1, local_steps=5, **PLAIN))
    torch.testing.assert_close(found, x)


def test_momentum_of_gradients_and_of_what_is_received_agree_for_linear_messages():
    received = models(tacit.DeFLVP(lr=0.1, momentum=0.9, **PLAIN), steps=6)
    torch.testing.assert_close(models(GradientMomentum(lr=0.1, momentum=0.9, **PLAIN), 6), received)
    signs = {**PLAIN, "randomized_response": True}
    one, other = (
        models(kind(lr=0.1, momentum=0.9, **signs), steps=6)
        for kind in (GradientMomentum, tacit.DeFLVP)
    )
    assert not torch.allclose(one, other)


def test_the_distance_is_that_of_the_worst_number():
    assert PAPER.off({"whole": 85.0, "ablated": 85.0, "rounds": 5.0}) == 3.0
    assert PAPER.off({"whole": 60.0, "ablated": 85.0, "rounds": 2.0}) == 6.0
    assert PAPER.off({"whole": 60.0, "ablated": None, "rounds": 2.0}) is None


def small(**algorithm):
    return make_config(
        {
            "data": {"name": "mnist-mini", "limit_train": 240, "limit_test": 200},
            "model": {"name": "mlp", "hidden": [8]},
            "graph": {"clients": 4},
            "algorithm": {"name": "defl-vp", "lr": 0.01, **algorithm},
            "run": {"rounds": 2, "iterations_per_round": 3, "batch_size": 8},
        }
    )


def test_only_settings_that_come_near_have_several_seeds():
    both = small(), small(variance_reduction=False)
    far = AblationSearch(*both, PAPER)(0, MeasureContext())
    assert (far["seeds"], len(far["each"]), far["rounds"]) == (1, 1, 3)
    loose = replace(PAPER, tolerances=dict.fromkeys(PAPER.numbers, 1000.0))
    near = AblationSearch(*both, loose)(0, MeasureContext())
    assert near["seeds"] == 3
    assert near["each"][0] == far["each"][0]
    assert near["whole"] == pytest.approx(sum(one["whole"] for one in near["each"]) / 3, rel=1e-4)


def setting(whole, ablated, rounds):
    found = {"whole": whole, "ablated": ablated, "rounds": rounds}
    off = PublishedAblation(settings.PAPER, settings.TOLERANCES, 85.0).off(found)
    return {**found, "off": off, "seeds": 1}


def test_claims_name_the_nearest_setting():
    numbers = dict.fromkeys(settings.settings(), setting(80.0, 60.0, 11))
    key = list(numbers)[5]
    artifact, result = fill("defl-vp/settings", (numbers | {key: setting(88, 85, 140)}).get)
    assert set(grades(artifact, result).values()) == {"reproduced"}
    verdict = artifact.claims[2].judge(result)
    per_round = "one mini-batch of 128 and one exchange per round"
    assert key[0] == "1 of batch 128"
    assert verdict.ours.startswith(
        f"{per_round}, {key[1]}, {key[2]}: DeFL-VP 88.0 % (paper 88.7 %)"
    )
    assert f"of {len(numbers)} settings" in verdict.reason
    assert isinstance(artifact.draw(result), Figure)
    far = grades(*fill("defl-vp/settings", numbers.get))
    assert set(far.values()) == {"not reproduced", "partly"}


def test_signs_are_kept_as_often_as_their_budget_says():
    rows = torch.randn(2, 50_000, generator=torch.Generator().manual_seed(0))
    seen = Signs(1.0, 0.4).seen(rows, 0)
    sent = seen != 0
    assert sent.double().mean().item() == pytest.approx(0.4, abs=0.01)
    kept = (seen[sent] == rows[sent].sign()).double().mean().item()
    assert kept == pytest.approx(1 / (1 + torch.e**-1), abs=0.01)


def test_the_suite_attacks_models_and_gradients():
    measure = MembershipSuite(small(), observations=6, cosine_victims=2, shadows=False)
    values = measure(1, MeasureContext())
    assert values["curve"]["round"] == [0, 1, 2]
    assert values["auc"] == values["aucs"]["loss"] == values["curve"]["auc"][-1]
    # Batches of 8 of 60 samples: what a gradient reveals of its members is above chance.
    hidden = replace(measure, signs=Signs(0.01, 0.1))(1, MeasureContext())
    assert values["aucs"]["gradient cosine"] > hidden["aucs"]["gradient cosine"] + 0.02
    assert hidden["accuracy"] == values["accuracy"]


def attacked(cosine, loss, accuracy):
    curve = {"round": [0, 1, 2], "accuracy": [10.0, 50.0, accuracy], "auc": [0.5, 0.52, loss]}
    return {"auc": loss, "aucs": {"loss": loss, "gradient cosine": cosine}, "curve": curve}


def test_claims_about_members_use_the_strongest_attack_and_equal_accuracy():
    def numbers(key):
        protected = key[1] not in ("D-PSGD", "w/o DP")
        return attacked(0.5, 0.51, 80.0) if protected else attacked(0.7, 0.81, 80.0)

    artifact, result = fill("defl-vp/membership", numbers)
    found = grades(artifact, result)
    assert found["w/o DP: some attack finds as many members"] == "reproduced"
    assert found["w/o VR: some attack finds as many members"] == "partly"
    assert found["DeFL-VP hides members from all attacks"] == "reproduced"
    assert found["at equal accuracy the loss tells less with DP than without"] == "reproduced"
    assert isinstance(artifact.draw(result), Figure)
    # The unprotected run passes the accuracy of the protected one before it overfits.
    early = fill(
        "defl-vp/membership",
        lambda key: attacked(0.9, 0.81, 80.0) if key[1] == "w/o DP" else attacked(0.9, 0.52, 45.0),
    )
    found = grades(*early)
    assert found["DeFL-VP hides members from all attacks"] == "not reproduced"
    assert found["at equal accuracy the loss tells less with DP than without"] == "partly"


def test_few_samples_give_three_batches_per_epoch():
    for size in membership.SIZES:
        run = membership.config("DeFL-VP", size, FULL).run
        assert run.iterations_per_round == 3
        assert size / 10 - 3 < 3 * run.batch_size <= size / 10
