"""Differences and sums inverted together: the evidence is that of the true samples; claims judge both ways."""

from functools import cache

import pytest
import torch
from torch.func import grad

from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit_papers.dfl_opt.combining import BOTH, DIFFERENCE, GRADIENT
from tacit_papers.dfl_opt.setting import SMALL_MLP, config
from tacit_papers.framework.artifact import MeasureContext, Scale
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.framework.registry import ARTIFACTS
from tacit_papers.framework.trends import above_throughout, steady
from tacit_papers.measures.combining import CombiningOverTime
from tacit_papers.measures.later_evidence import LaterEvidence
from tacit_papers.measures.observed import changes_and_sum
from tacit_papers.measures.overheard import component
from tacit_papers.measures.search import Search

QUICK, HERE = Scale(quick=True), MeasureContext()
FIG11 = ARTIFACTS["dfl-opt/fig11"]


def tiny(batch):
    return config("MNIST", "DFL", QUICK, nodes=5, model=SMALL_MLP | {"hidden": [8]}, batch=batch)


@cache
def later():
    return LaterEvidence.of(tiny(2), (3,), 1, HERE)


def known(victim):
    clients = component(later().graph, victim, 3)
    return [later().held([c], "difference", 3) for c in clients], later().held(clients, "sum", 3)


def test_evidence_together_is_what_the_true_samples_give():
    made = changes_and_sum(later().task, [known(0), known(4)], HERE)
    seen, truth, loss = made.observation, Truth(later().task, 1), later().task.loss
    assert seen.values.shape[:2] == (2, 4)
    for victim, of in enumerate(made.batches):
        taken = [
            grad(loss)(seen.weights[victim, k], *truth.batch(of[b].client, of[b].when))
            for k, b in enumerate(seen.data)
        ]
        off = (seen.coefficients @ torch.stack(taken) - seen.values[victim]).norm(dim=1)
        assert (
            float((off / seen.values[victim].norm(dim=1)).max()) < 1e-2
        )  # the rounding of messages
    assert made.rounding > 0


def test_changes_of_other_clients_are_refused():
    changes, total = known(0)
    with pytest.raises(Misuse, match="not those of the gradients"):
        changes_and_sum(later().task, [(changes[::-1], total)], HERE)


def test_two_nodes_samples_are_found_from_both_and_the_same_again():
    measure = CombiningOverTime(tiny(1), 2, True, Search("ours", 60, 1), (0, 3), 1)
    values = measure(0, HERE)
    assert values["curve"]["iteration"] == [0, 3]
    assert values["ssim"] > 0.9
    assert measure(0, HERE) == values
    alone = CombiningOverTime(tiny(1), 2, False, Search("ours", 2, 1), (0,), 1)
    assert alone(0, HERE)["ssim"] < values["ssim"]
    assert alone.describe() != measure.describe()


def judged(ssim):
    outcome = ArtifactResult.empty(FIG11, QUICK, FIG11.cells(QUICK))
    for cell in outcome.cells:
        at = ssim(cell.key[2])
        cell.values[0] = {"ssim": at, "curve": {"iteration": [1, 150], "ssim": [at, at]}}
    return {claim.text: claim.verdict(outcome) for claim in FIG11.claims}


def test_claims_are_judged_both_ways():
    as_published = judged(lambda name: {GRADIENT: 0.9, DIFFERENCE: 0.4}.get(name, 0.5))
    amplified = judged(lambda name: 0.95 if name == BOTH else 0.6)
    for size, words in (
        (2, ("reproduced", "not reproduced")),
        (8, ("not measured", "not measured")),
    ):
        for text in as_published:
            if f"{size} nodes" in text:
                assert (as_published[text].word, amplified[text].word) == words
    ceiling = judged(lambda name: 1.0)
    notes = [verdict.why for text, verdict in ceiling.items() if "DLG, 2 nodes: both" in text]
    assert notes[0].endswith("nothing was left to gain")


def curves(**rows):
    cells = [cell for cell in FIG11.cells(QUICK) if cell.key[:2] == ("DLG", "1")]
    outcome = ArtifactResult.empty(FIG11, QUICK, cells)
    for cell, row in zip(outcome.cells, rows.values(), strict=True):
        cell.values[0] = {"ssim": 0.0, "curve": {"ssim": row}}
    return outcome, *(cell.key for cell in outcome.cells)


@pytest.mark.parametrize(
    ("low", "word"),
    [
        ([0.5, 0.5, 0.5], "reproduced"),
        ([0.5, 0.5, 0.89], "partly"),
        ([0.5, 0.95, 0.95], "not reproduced"),
    ],
)
def test_curves_are_compared_place_by_place(low, word):
    outcome, first, second = curves(high=[0.9, 0.9, 0.9], low=low)
    assert above_throughout(first, second, "t", "p", 0.02).verdict(outcome).word == word
    elsewhere = above_throughout(first, ("DLG", "9", BOTH), "t", "p", 0.02)
    assert elsewhere.verdict(outcome).word == "not measured"


@pytest.mark.parametrize(
    ("end", "word"), [(0.85, "reproduced"), (0.7, "partly"), (0.1, "not reproduced")]
)
def test_a_curve_is_steady_or_not(end, word):
    outcome, first, _ = curves(one=[0.9, 0.9, end], other=[0.0, 0.0, 0.0])
    assert steady(first, "t", "p", 0.1).verdict(outcome).word == word
