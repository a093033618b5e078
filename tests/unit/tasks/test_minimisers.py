"""Exact solutions of local problems, for PDMM and ADMM."""

import pytest
import torch

import tacit
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def objective(task):
    graph = tacit.Topology.ring(task.clients).mixing("metropolis")
    return Simulation(Setting(tacit.PDMM(), task, graph, gradients="looped")).here.objective


@pytest.mark.parametrize(
    "task",
    [
        tacit.quadratic(
            torch.eye(3).double().repeat(4, 1, 1) * torch.arange(1, 5)[:, None, None], draw(4, 3)
        ),
        tacit.least_squares(
            [draw(n, 3, seed=n) for n in (5, 6, 5, 7)], [draw(n, seed=n + 9) for n in (5, 6, 5, 7)]
        ),
    ],
    ids=["quadratic", "least squares of unequal parts"],
)
def test_the_gradient_of_the_local_problem_vanishes_at_its_minimiser(task):
    held = objective(task)
    linear, curvature = (
        draw(4, 3, seed=3),
        torch.tensor([[0.3], [1.0], [2.0], [0.1]], dtype=torch.float64),
    )
    w = held.minimise(linear, curvature, 0)
    residual = held.grad(w, 0) + linear + curvature * w
    torch.testing.assert_close(residual, torch.zeros_like(residual), rtol=0, atol=1e-12)


def test_a_task_without_known_minimisers_fails_before_the_run():
    task = tacit.Task(draw(3), list(draw(4, 3)), loss=lambda theta, x: (theta - x).abs().sum())
    graph = tacit.Topology.ring(4).mixing("metropolis")
    with pytest.raises(Misuse, match="known minimisers") as refusal:
        tacit.run(task, tacit.ADMM(solver=tacit.ExactSolver()), graph, steps=1)
    assert "quadratic" in refusal.value.remedy
    tacit.run(task, tacit.ADMM(), graph, steps=1)


def test_expected_losses_of_filters_have_known_minimisers():
    task = tacit.adaptive_filtering(4, 3, exact=True)
    held = objective(task)
    b, c = draw(4, 3, seed=3), torch.full((4, 1), 0.7, dtype=torch.float64)
    w = held.minimise(b, c, 0)
    torch.testing.assert_close(held.grad(w, 0) + b + c * w, torch.zeros_like(w), rtol=0, atol=1e-12)
