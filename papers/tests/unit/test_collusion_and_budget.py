"""Budgets of sums of Laplace variables, and what neighbours learn together."""

import math

import pytest
from filled_results import fill, grades

from tacit.algorithms import ALGORITHMS
from tacit.algorithms.private_algorithm import PrivateAlgorithm
from tacit_papers.findings.collusion import RULES, CollusionKnowledge
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
    ("rule", "corrupt", "gradients", "combinations"),
    [
        ("dsgt", 1, True, True),
        ("lppa", 1, False, True),
        ("lppa, fresh masks", 3, False, False),
        ("lppa, fresh masks", 4, True, True),
        ("defl-vp", 1, True, True),
        ("defl-vp, private variates", 4, False, False),
        ("dsg", 2, True, True),
        ("pdmm", 1, False, False),
        ("pdmm", 2, False, True),
        ("admm", 2, False, True),
        ("pdmm", 4, True, True),
    ],
)
def test_what_neighbours_learn_together(rule, corrupt, gradients, combinations):
    found = CollusionKnowledge(RULES[rule], corrupt, 5)(0, MeasureContext())
    assert (found["gradient"] > 0, found["combination"] > 0) == (gradients, combinations)


def test_all_algorithms_for_undirected_graphs_without_a_server_or_a_guarantee_are_compared():
    without = {n for n, kind in ALGORITHMS.items() if not issubclass(kind, PrivateAlgorithm)}
    assert {rule["name"] for rule in RULES.values()} == without - {"fedavg", "push-sum"}
