"""Gradients of regressions: inputs and targets are found together, and audits measure that."""

import torch
from torch import nn

import tacit
from tacit.auditing.attacks.data_spec import DataSpec, NumberTargets
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.options import AttackOptions

X = torch.rand(60, 6, generator=torch.Generator().manual_seed(1))
Y = (X @ torch.arange(6.0) - 7)[:, None]
PARTS = [(X[i : i + 1], Y[i : i + 1]) for i in range(5)]


def task_of(bias):
    torch.manual_seed(0)
    layers = nn.Linear(6, 12, bias=bias), nn.Sigmoid(), nn.Linear(12, 1)
    test = X[30:], Y[30:]
    return tacit.Task(nn.Sequential(*layers), PARTS, loss=nn.functional.mse_loss, test=test)


def test_inputs_and_targets_are_found_together():
    task = task_of(bias=False)
    theta = task.initial(0, [0])[0]
    gradient = torch.func.grad(task.loss)(theta, *PARTS[0])
    seen = Observation.single(theta[None, None], torch.ones(1), gradient[None], same_data=True)
    spec = DataSpec((6,), numbers=NumberTargets.like(Y[30:]))
    found = invert(task.loss, seen, spec, restarts=4)
    assert "targets optimised along with the inputs, as numbers" in found.assumptions
    torch.testing.assert_close(found.inputs[0], PARTS[0][0], rtol=0, atol=1e-2)
    torch.testing.assert_close(found.labels[0], PARTS[0][1], rtol=0, atol=1e-2)


def test_an_audit_inverts_gradients_of_the_squared_error():
    graph = tacit.Topology.ring(5).mixing("metropolis")
    run = tacit.run(task_of(bias=True), tacit.DSGT(lr=0.1), graph, steps=2)
    effort = AttackOptions(restarts=1, seconds=1.0, canary_trials=0)
    found = tacit.audit(run, "curious(1)", victim=0, iterations=1, attacks=effort)
    gradient = next(one for one in found.results[0].reconstructions if one.kind == "gradient")
    assert gradient.score.reading == "recovered"
    assert gradient.score.label_accuracy is None
    assert found.results[0].memberships == []
    assert found.notes == [
        "membership inference: it needs a model that classifies inputs; the targets here are "
        "numbers"
    ]
