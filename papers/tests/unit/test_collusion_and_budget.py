"""Findings of our own: budgets of sums of Laplace variables, and what neighbours learn together."""

import math

import pytest

from tacit.algorithms import ALGORITHMS
from tacit_papers.findings.collusion import RULES, Colluding
from tacit_papers.framework.artifact import MeasureContext, Scale
from tacit_papers.framework.drawing import write_figure
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.framework.registry import artifact_named
from tacit_papers.lppa.budget import Budget


def measured(name, scale):
    artifact = artifact_named(name)
    cells = artifact.cells(scale)
    outcome = ArtifactResult.empty(artifact, scale, cells)
    for cell in cells:
        outcome[cell.key].values[0] = cell.measure(0, MeasureContext())
    return artifact, outcome


def test_more_terms_help_with_delta_only(tmp_path):
    artifact, outcome = measured("lppa/theorem2", Scale())
    words = {claim.text: claim.verdict(outcome).word for claim in artifact.claims}
    assert (
        words["the budget of a noise difference is √2 times smaller (pure ε)"] == "not reproduced"
    )
    assert write_figure(artifact.draw(outcome), tmp_path)


def test_one_laplace_term_has_its_textbook_budget():
    """δ(ε) = 1 − e^((ε − r)/2) for one Laplace term (Balle and Wang 2018): ε = r + 2 ln(1 − δ)."""
    values = Budget(1.0, 1)(0, MeasureContext())
    assert values["epsilon"] == 1.0
    assert values["epsilon_at_0.1"] == pytest.approx(1 + 2 * math.log(0.9), abs=1e-3)


@pytest.mark.parametrize(
    ("rule", "corrupt", "gradients", "differences"),
    [
        ("dsgt", 1, True, True),
        ("lppa", 1, False, True),
        ("lppa, fresh masks", 3, False, False),
        ("lppa, fresh masks", 4, True, True),
        ("defl-vp", 1, True, True),
        ("defl-vp, private variates", 4, False, False),
        ("pdmm", 3, False, False),
        ("pdmm", 4, True, True),
    ],
)
def test_what_neighbours_learn_together(rule, corrupt, gradients, differences):
    found = Colluding(RULES[rule], corrupt, 5)(0, MeasureContext())
    assert (found["gradient"] > 0, found["difference"] > 0) == (gradients, differences)


def test_all_algorithms_that_need_no_server_are_compared():
    assert {rule["name"] for rule in RULES.values()} == set(ALGORITHMS) - {"fedavg"}
