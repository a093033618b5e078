"""Measures of the DeFL-VP paper against independent computations; its claims judged both ways."""

import math

import numpy as np
import pytest
import torch
from filled_results import FULL, QUICK, fill, grades
from matplotlib.figure import Figure
from torch import nn

import tacit
from tacit.config.loading import make_config
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.framework.registry import ARTIFACTS
from tacit_papers.measures.membership import LossMembership, first_round, loss_membership
from tacit_papers.measures.training import CommunicationCost


def filled(name, values, scale=FULL):
    """The artifact's cells have these repeats, by the last part of their keys."""
    return fill(name, lambda key: values.get(key[-1]), scale)


def small(**algorithm):
    return make_config(
        {
            "data": {"name": "mnist-mini", "limit_train": 240, "limit_test": 100},
            "model": {"name": "mlp", "hidden": [8]},
            "graph": {"clients": 4},
            "algorithm": {"name": "defl-vp", "lr": 0.05, **algorithm},
            "run": {"rounds": 2, "iterations_per_round": 3, "batch_size": 8},
        }
    )


def test_the_first_round_with_an_accuracy_is_found_or_is_none():
    curve = {"round": [0, 2, 4], "accuracy": [10.0, None, 85.0]}
    assert first_round(curve, 85.0) == 4
    assert first_round(curve, 85.1) is None


def test_membership_is_the_share_of_pairs_in_which_the_member_has_the_smaller_loss():
    draw = torch.Generator().manual_seed(0)
    # All have equally many samples of each class, so that all are candidates.
    *parts, test = [(torch.randn(30, 5, generator=draw), torch.arange(30) % 2) for _ in range(4)]
    task = tacit.Task(nn.Linear(5, 2), parts, batch_size=5, test=test)
    models = torch.randn(3, task.parameters, generator=draw)
    found = loss_membership(task, models, 0, MeasureContext())

    expected = []
    for (x, y), theta in zip(parts, models, strict=True):
        weight, bias = theta[:10].view(2, 5), theta[10:]
        inside, outside = (
            nn.functional.cross_entropy(a @ weight.T + bias, b, reduction="none").numpy()
            for a, b in ((x, y), test)
        )
        expected.append(np.mean(inside[:, None] < outside[None, :]))
    assert found["auc"] == pytest.approx(np.mean(found["auc_of_clients"]))
    assert found["auc_of_clients"] == pytest.approx(expected, abs=1e-6)
    false, true = found["roc"]["false"], found["roc"]["true"]
    assert np.trapezoid(true, false) == pytest.approx(found["auc"], abs=0.03)


def test_an_attacked_run_has_accuracy_rounds_and_area(tmp_path):
    measure = LossMembership(small(), 0.0)
    values = measure(3, MeasureContext(scratch=tmp_path / "run"))
    assert values["rounds"] == 0
    assert len(values["auc_of_clients"]) == 4
    assert 0 <= values["auc"] <= 1
    again = measure(3, MeasureContext(scratch=tmp_path / "again"))
    assert (again["auc"], again["accuracy"]) == (values["auc"], values["accuracy"])


@pytest.mark.parametrize(
    ("options", "of_update", "others"),
    [
        ({"codec": {"codec": "identity"}, "randomized_response": False}, 8 + 4 * 6370, 2),
        ({"codec": {"codec": "identity"}}, 8 + 4 + math.ceil(6370 / 8), 2),
        ({"variance_reduction": False}, 8 + 8 + 8 + 4 + math.ceil(2548 / 8), 1),
    ],
)
def test_bytes_of_updates_and_of_all_messages_are_counted(tmp_path, options, of_update, others):
    values = CommunicationCost(small(**options))(0, MeasureContext(scratch=tmp_path / "run"))
    messages = 6 * 8  # iterations, directed edges of a ring of four
    parameters = 784 * 8 + 8 + 8 * 10 + 10
    assert parameters == 6370
    assert values["update_megabytes"] == pytest.approx(messages * of_update / 4e6)
    total = messages * (of_update + others * 4 * parameters) / 4e6
    assert values["megabytes"] == pytest.approx(total, rel=2e-3)


def table1(*numbers):
    names = ("D-PSGD", "D-PSGD+RR", "DFL+Compression", "DFL+VR", "DeFL-VP")
    return {
        name: [{"accuracy": accuracy, "rounds": rounds, "auc": 0.5}]
        for name, (accuracy, rounds) in zip(names, numbers, strict=True)
    }


def test_table1_is_judged_by_both_columns():
    paper = table1((85.2, 180), (82.6, 200), (83.7, 192), (86.9, 166), (88.7, 150))
    assert set(grades(*filled("defl-vp/table1", paper)).values()) == {"reproduced"}
    quick = grades(*filled("defl-vp/table1", paper, QUICK))
    assert quick["DeFL-VP reaches the target first"] == "reproduced"
    assert quick["DeFL-VP: rounds to 85 %"] == "not measured"
    numbers = table1((95, 20), (80, None), (88, 30), (91, 20), (79, None))
    other = grades(*filled("defl-vp/table1", numbers))
    assert other["DeFL-VP reaches the target first"] == "not reproduced"
    assert other["DeFL-VP: rounds to 85 %"] == "not reproduced"
    assert other["DeFL-VP: accuracy (%)"] == "not reproduced"
    assert other["D-PSGD: accuracy (%)"] == "not reproduced"
    assert other["DFL+Compression: accuracy (%)"] == "partly"


def test_a_dash_of_the_paper_is_a_target_never_reached():
    def ours(*repeats):
        cell = {"0.5": [{"accuracy": 78.0, "auc": 0.5, "rounds": rounds} for rounds in repeats]}
        return grades(*filled("defl-vp/table3", cell))["0.5: rounds to 85 %"]

    assert ours(None, None) == "reproduced"
    assert ours(100, None) == "partly"
    assert ours(100, 90) == "not reproduced"


@pytest.mark.parametrize(("accuracy", "word"), [(88.204, "reproduced"), (88.206, "partly")])
def test_a_number_is_judged_as_it_is_printed(accuracy, word):
    """The paper has 85.2, and the tolerance is 3."""
    cell = {"D-PSGD": [{"accuracy": accuracy, "rounds": 180}]}
    artifact, result = filled("defl-vp/table1", cell)
    (claim,) = [claim for claim in artifact.claims if claim.text == "D-PSGD: accuracy (%)"]
    verdict = claim.judge(result)
    assert verdict.grade == word
    assert verdict.reason.startswith("off by 3.00," if word == "reproduced" else "off by 3.01,")


def test_a_target_reached_in_some_repeats_only_is_partly_reached():
    cell = {"2": [{"accuracy": 85.0, "auc": 0.5, "rounds": rounds} for rounds in (190, None)]}
    artifact, result = filled("defl-vp/table3", cell)
    (claim,) = [claim for claim in artifact.claims if claim.text == "2: rounds to 85 %"]
    assert claim.judge(result).grade == "partly"
    assert claim.judge(result).ours == "190 (1 of 2 repeats)"


def test_table5_compares_what_compression_leaves():
    def ours(total, updates):
        sizes = dict.fromkeys(("DFL", "w/o Comp."), (100.0, 50.0))
        sizes |= dict.fromkeys(("DFL+Compression", "DeFL-VP"), (total, updates))
        values = {
            name: [{"accuracy": 85.0, "megabytes": a, "update_megabytes": b}]
            for name, (a, b) in sizes.items()
        }
        return grades(*filled("defl-vp/table5", values))

    right = ours(40.0, 20.0)
    assert right["compression leaves less than half of DFL's communication"] == "reproduced"
    wrong = ours(99.0, 20.0)
    assert wrong["compression leaves less than half of DeFL-VP's communication"] == "not reproduced"
    assert wrong["the same, if only the updates of DeFL-VP are counted"] == "reproduced"


@pytest.mark.parametrize("name", [name for name in ARTIFACTS if name.startswith("defl-vp/table")])
def test_tables_are_drawn_whatever_is_missing(name):
    value = {"accuracy": 80.0, "auc": 0.5, "rounds": None, "megabytes": 2.0}
    value |= {"update_megabytes": 1.0, "roc": {"false": [0.0, 1.0], "true": [0.0, 1.0]}}
    _, *keys = (cell.key[-1] for cell in ARTIFACTS[name].cells(FULL))
    artifact, result = filled(name, {key: [value, value] for key in keys})
    assert isinstance(artifact.draw(result), Figure)
