"""Liars: what a lie changes, and claims that can fail."""

import pytest
import torch
from filled_results import fill_grades

from tacit.config.loading import make_config
from tacit_papers.findings.liars import CLIPPING, NO_LIAR, PLAIN, TRIMMING
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.measures.lying import LyingTraining, _with_flipped_labels

NAME = "findings/liars"
SMALL = make_config(
    {
        "data": {"limit_train": 120, "limit_test": 20},
        "model": {"name": "mlp", "hidden": [4]},
        "graph": {"kind": "complete", "clients": 5},
        "algorithm": {"name": "dsg", "lr": 0.1},
        "run": {"rounds": 1, "iterations_per_round": 2, "batch_size": 8},
    }
)


@pytest.mark.parametrize("lie", ["none", "sign-flip", "noise", "label-flip"])
def test_accuracy_is_measured_with_every_lie(lie):
    values = LyingTraining(SMALL, lie, 100.0)(0, MeasureContext())
    assert 0 <= values["worst"] <= values["accuracy"] <= 100


def test_only_labels_of_the_liar_are_flipped():
    experiment = MeasureContext().experiment(SMALL, 0)
    changed = _with_flipped_labels(experiment, 3)
    before, after = experiment.dataset.train.y, changed.dataset.train.y
    own = torch.as_tensor(experiment.partition.indices[3])
    assert torch.equal(after[own], 9 - before[own])
    others = torch.ones(len(before), dtype=torch.bool)
    others[own] = False
    assert torch.equal(after[others], before[others])
    assert [*changed.partition.indices[3]] == [*experiment.partition.indices[3]]


def test_claims_can_fail():
    found = {PLAIN: 20.0, CLIPPING: 87.0, TRIMMING: 87.0}

    def values(key):
        algorithm, lie, mixing = key
        if algorithm != "dsg":
            return {"accuracy": 10.0 if mixing == TRIMMING else 85.0}
        return {"accuracy": 88.0 if lie == NO_LIAR else found[mixing]}

    assert set(fill_grades(NAME, values)) == {"reproduced"}
    found |= {CLIPPING: 70.0, PLAIN: 85.0}
    assert fill_grades(NAME, values).count("not reproduced") == 5
