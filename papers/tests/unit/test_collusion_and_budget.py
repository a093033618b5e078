"""Budgets of sums of Laplace variables, and what neighbours learn together."""

import math

import pytest
from filled_results import fill, grades

from tacit.algorithms import ALGORITHMS
from tacit_papers.findings.audited_algorithms import RULES
from tacit_papers.findings.collusion import POSITIONS, CoalitionKnowledge
from tacit_papers.findings.who_computes_what import (
    ALL,
    EAVESDROPPER,
    ONE,
    OTHERS,
    ProvenKnowledge,
)
from tacit_papers.framework.cells import MeasureContext, Scale
from tacit_papers.framework.drawing import write_figure
from tacit_papers.framework.registry import find_artifact
from tacit_papers.lppa.theorem2 import LaplaceBudget


def test_more_terms_help_with_delta_only(tmp_path):
    cells = find_artifact("lppa/theorem2").cells(Scale())
    measured = {cell.key: cell.measure(0, MeasureContext()) for cell in cells}
    artifact, result = fill("lppa/theorem2", measured.get)
    root_two = "the budget of a noise difference is √2 times smaller (pure ε)"
    assert grades(artifact, result)[root_two] == "not reproduced"
    assert write_figure(artifact.draw(result), tmp_path)


def test_one_laplace_term_has_its_textbook_budget():
    """δ(ε) = 1 − e^((ε − r)/2) for one Laplace term (Balle and Wang 2018): ε = r + 2 ln(1 − δ)."""
    values = LaplaceBudget(1.0, 1)(0, MeasureContext())
    assert values["epsilon"] == 1.0
    assert values["epsilon_at_0.1"] == pytest.approx(1 + 2 * math.log(0.9), abs=1e-3)


@pytest.mark.parametrize(
    ("rule", "adversary", "learns"),
    [
        ("dsgt", ONE, "gradients, 2 of 4"),
        ("lppa", ONE, "differences, 1 of 3"),
        ("lppa, fresh masks", "three", "sums with 4 others"),
        ("lppa, fresh masks", ALL, "gradients, 3 of 4"),
        ("defl-vp, private variates", OTHERS, "output of codec, response"),
        ("pdmm", ONE, "noisy gradients"),
        ("fedavg", EAVESDROPPER, "gradients, 3 of 3"),
        ("private-sgd", ONE, "noisy sums with 6 others, ε ≤ 3"),
        ("dp-dsgt, every iteration", EAVESDROPPER, "noisy gradients"),
    ],
)
def test_who_computes_what(rule, adversary, learns):
    assert ProvenKnowledge(RULES[rule], adversary, 3)(0, MeasureContext())["learns"] == learns


def test_a_coalition_that_isolates_a_client_breaks_the_planned_epsilon():
    one, all_four = (
        ProvenKnowledge(RULES["private-sgd"], adversary, 1)(0, MeasureContext())
        for adversary in (ONE, ALL)
    )
    assert one["epsilon"] == pytest.approx(3.0, abs=0.02)
    assert (one["summed"], all_four["summed"]) == (7, 1)
    assert all_four["epsilon"] > 10


@pytest.mark.parametrize("rule", ["lppa, fresh masks", "pdmm"])
def test_gradients_are_computed_if_and_only_if_all_neighbours_collude(rule):
    found = CoalitionKnowledge(RULES[rule], "ring", 2)(0, MeasureContext())
    assert found["pairs"] == 186
    assert [found[f"gradient_{position}"] for position in ("none", "some", "all")] == [0, 0, 1]
    # All pairs of coalition and victim with both neighbours, by size.
    assert found["gradient_by_size"] == pytest.approx([0, 0.1, 0.3, 0.6, 1])


def test_claims_about_coalitions_can_fail(tmp_path):
    def values(key):
        rule = key[1]
        share = {"dsgt": 1.0, "dsg": 1.0, "defl-vp": 0.5}.get(rule, 0.0)
        found = {f"{n}_{p}": share for n in ("gradient", "combination") for p in POSITIONS}
        sizes = {f"{n}_by_size": [share] * 5 for n in ("gradient", "combination")}
        return found | sizes | {"exposed": share, "only_sums": float(rule == "private-sgd")}

    artifact, result = fill("findings/collusion", values)
    found = grades(artifact, result)
    assert found["dsgt: one neighbour is enough"] == "reproduced"
    assert found["defl-vp: one neighbour is enough"] != "reproduced"
    assert (
        found["pdmm: gradients are computed if and only if all neighbours collude"] != "reproduced"
    )
    assert write_figure(artifact.draw(result), tmp_path)


def test_every_algorithm_is_in_the_table(tmp_path):
    assert {rule["name"] for rule in RULES.values()} == set(ALGORITHMS)
    numbers = {"learns": "noisy gradients", "gradients": 0.0, "combinations": 0.0}
    artifact, result = fill("findings/who-computes-what", lambda key: numbers)
    assert grades(artifact, result)["dsgt: exact gradients for one neighbour"] == "not reproduced"
    assert write_figure(artifact.draw(result), tmp_path)
