"""What attacks of one's own start from: numbers that an adversary computes, without the truth."""

import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message


@pytest.fixture(scope="module")
def run():
    secrets = torch.arange(10.0, dtype=torch.float64).reshape(5, 2)
    task = tacit.Task(secrets[0] * 0, list(secrets), loss=lambda t, x: (t - x).square().sum())
    return tacit.run(task, "dsgt", steps=12, lr=0.1)


def test_exact_evidence_is_the_gradient_at_its_point(run):
    found = {one.kind: one for one in tacit.evidence(run, "curious(1)", victim=0)}
    gradient = found["gradient"]
    assert gradient.is_exact
    client = gradient.terms[0].client
    data = torch.arange(10.0, dtype=torch.float64).reshape(5, 2)[client]
    torch.testing.assert_close(gradient.values, 2 * (gradient.points[0] - data))


def test_masks_hide_it():
    task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.ones(5, 2))
    run = tacit.run(task, "lppa", steps=4, lr=0.1, fresh=True)
    kinds = {one.kind for one in tacit.evidence(run, tacit.Adversary.curious(1))}
    assert "gradient" not in kinds


@pytest.mark.parametrize(
    ("adversary", "victim", "words"),
    [("curios(1)", 0, ["curios"]), ("curious(9)", 0, ["9"]), ("curious(1)", 7, ["7"])],
)
def test_what_does_not_exist_is_said(run, adversary, victim, words):
    assert_mentions(misuse_message(tacit.evidence, run, adversary, victim), *words)
