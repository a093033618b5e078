"""Differences and sums inverted together: the evidence is that of the true samples."""

from functools import cache

import pytest
import torch
from filled_results import QUICK, fill
from torch.func import grad

from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit_papers.dfl_opt.inversion_over_time import BOTH, DIFFERENCE, GRADIENT
from tacit_papers.dfl_opt.setting import SMALL_MLP, config
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.framework.claims import above_throughout, steady
from tacit_papers.measures.inversion_over_time import SumInversionOverTime
from tacit_papers.measures.inversion_search import InversionSearch
from tacit_papers.measures.model_snapshots import ModelSnapshots
from tacit_papers.measures.observations import joint_observation
from tacit_papers.measures.recorded_run import nearest_clients

CONTEXT = MeasureContext()


def tiny(batch):
    return config("MNIST", "DFL", QUICK, nodes=5, model=SMALL_MLP | {"hidden": [8]}, batch=batch)


@cache
def snapshots():
    return ModelSnapshots.record(tiny(2), (3,), 1, CONTEXT)


def evidence(victim):
    clients = nearest_clients(snapshots().graph, victim, 3)
    differences = [snapshots().evidence([client], "difference", 3) for client in clients]
    return differences, snapshots().evidence(clients, "sum", 3)


def test_evidence_together_is_what_the_true_samples_give():
    made = joint_observation(snapshots().task, [evidence(0), evidence(4)], CONTEXT)
    seen, truth, loss = made.observation, Truth(snapshots().task, 1), snapshots().task.loss
    assert seen.values.shape[:2] == (2, 4)
    for victim, of in enumerate(made.batches):
        taken = [
            grad(loss)(seen.weights[victim, k], *truth.batch(of[b].client, of[b].when))
            for k, b in enumerate(seen.data)
        ]
        off = (seen.coefficients @ torch.stack(taken) - seen.values[victim]).norm(dim=1)
        # The rounding of messages.
        assert float((off / seen.values[victim].norm(dim=1)).max()) < 1e-2
    assert made.rounding > 0


def test_differences_of_other_clients_raise():
    differences, total = evidence(0)
    with pytest.raises(Misuse, match="not of the gradients"):
        joint_observation(snapshots().task, [(differences[::-1], total)], CONTEXT)


def test_samples_of_two_nodes_are_found_from_both_repeatably():
    measure = SumInversionOverTime(tiny(1), 2, True, InversionSearch("ours", 60, 1), (0, 3), 1)
    values = measure(0, CONTEXT)
    assert values["curve"]["iteration"] == [0, 3]
    assert values["ssim"] > 0.9
    assert measure(0, CONTEXT) == values
    alone = SumInversionOverTime(tiny(1), 2, False, InversionSearch("ours", 2, 1), (0,), 1)
    assert alone(0, CONTEXT)["ssim"] < values["ssim"]
    assert alone.describe() != measure.describe()


def judged(ssim):
    def values(key):
        at = ssim(key[2])
        return {"ssim": at, "curve": {"iteration": [1, 150], "ssim": [at, at]}}

    artifact, result = fill("dfl-opt/fig11", values, QUICK)
    return {claim.text: claim.judge(result) for claim in artifact.claims}


def test_claims_are_judged_both_ways():
    as_published = judged(lambda name: {GRADIENT: 0.9, DIFFERENCE: 0.4}.get(name, 0.5))
    amplified = judged(lambda name: 0.95 if name == BOTH else 0.6)
    for size, words in (
        (2, ("reproduced", "not reproduced")),
        (8, ("not measured", "not measured")),
    ):
        for text in as_published:
            if f"{size} nodes" in text:
                assert (as_published[text].grade, amplified[text].grade) == words
    ceiling = judged(lambda name: 1.0)
    reasons = [verdict.reason for text, verdict in ceiling.items() if "DLG, 2 nodes: both" in text]
    assert reasons[0].endswith("nothing was left to gain")


HIGH, LOW = ("DLG", "1", GRADIENT), ("DLG", "1", DIFFERENCE)


def curves(high, low):
    rows = {HIGH: high, LOW: low}

    def values(key):
        return {"ssim": 0.0, "curve": {"ssim": rows[key]}} if key in rows else None

    return fill("dfl-opt/fig11", values, QUICK)[1]


@pytest.mark.parametrize(
    ("low", "word"),
    [
        ([0.5, 0.5, 0.5], "reproduced"),
        ([0.5, 0.5, 0.89], "partly"),
        ([0.5, 0.95, 0.95], "not reproduced"),
    ],
)
def test_curves_are_compared_point_by_point(low, word):
    result = curves([0.9, 0.9, 0.9], low)
    assert above_throughout("t", "p", (HIGH, LOW), 0.02).judge(result).grade == word
    elsewhere = above_throughout("t", "p", (HIGH, ("DLG", "9", BOTH)), 0.02)
    assert elsewhere.judge(result).grade == "not measured"


@pytest.mark.parametrize(
    ("end", "word"), [(0.85, "reproduced"), (0.7, "partly"), (0.1, "not reproduced")]
)
def test_a_curve_is_steady_or_not(end, word):
    result = curves([0.9, 0.9, end], [0.0, 0.0, 0.0])
    assert steady("t", "p", HIGH, 0.1).judge(result).grade == word
