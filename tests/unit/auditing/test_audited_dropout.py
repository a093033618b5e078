"""Dropout protects nothing: its masks follow from the seed, and attacks use them."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import tacit
from tacit import data
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.linear_layers import first_linear
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.audit import run_audit
from tacit.auditing.options import AttackOptions, AuditOptions
from tacit.auditing.scoring.truth import Truth
from tacit.engines.setting import Setting

RING = tacit.Topology.ring(3).mixing("metropolis", lazy=True)
DIGITS = data.load("mnist-mini", limit_train=60, limit_test=60)


def training(module):
    parts = [(DIGITS.train.x[k::3], DIGITS.train.y[k::3]) for k in range(3)]
    test = (DIGITS.test.x, DIGITS.test.y)
    return tacit.Task(module, parts, batch_size=1, test=test)


def test_an_audit_recovers_inputs_in_spite_of_dropout():
    torch.manual_seed(0)
    task = training(
        nn.Sequential(
            nn.Flatten(), nn.Linear(784, 16), nn.Sigmoid(), nn.Dropout(0.5), nn.Linear(16, 10)
        )
    )
    options = AuditOptions(
        iterations=2, heat_map=False, attacks=AttackOptions(restarts=1, seconds=0.3)
    )
    audit = run_audit(Setting(tacit.DSG(lr=0.1), task, RING, 3), ["curious(1)"], options)
    (found,) = [one for one in audit.results[0].reconstructions if one.kind == "gradient"]
    assert found.score.as_dict()["reading"] == "recovered"
    assert any("masks follow from the seed" in note for note in audit.notes)


@pytest.mark.parametrize("known", [True, False])
def test_the_search_needs_the_masks_and_has_them(known):
    """At the true input and label the matching loss is zero with the masks, and else it is not."""
    torch.manual_seed(1)
    task = training(
        nn.Sequential(
            nn.Conv2d(1, 2, 5, stride=3), nn.Sigmoid(), nn.Flatten(), nn.Dropout(0.5),
            nn.Linear(128, 10),
        )
    )  # fmt: skip
    truth = Truth(task, 3)
    x, y, keys = truth.batch(0, 4)
    assert torch.equal(truth.keys(0, 4), keys)
    theta = task.initial(3, [0])[0].requires_grad_()
    (gradient,) = torch.autograd.grad(task.loss(theta, x, y, keys), theta)
    observation = Observation.gradient(theta.detach()[None], gradient[None])
    given = keys if known else torch.zeros_like(keys)
    observation = replace(observation, keys=given[None, None])
    result = invert(
        task.loss, observation, DataSpec((1, 28, 28), classes=10), labels=y[None],
        optimiser=LBFGS(iterations=60), restarts=1,
    )  # fmt: skip
    relative = float(result.losses.min()) / float(gradient.square().sum())
    assert (relative < 1e-3) == known
    assert any("masks of dropout known" in one for one in result.assumptions)


def test_a_layer_behind_dropout_of_the_input_is_not_read_as_the_input():
    behind = training(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(784, 10)))
    plain = training(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))
    assert first_linear(behind.loss.flat, (1, 28, 28)) is None
    assert first_linear(plain.loss.flat, (1, 28, 28)) is not None
