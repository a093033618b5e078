"""The batched L-BFGS takes the steps of torch's."""

import pytest
import torch

from tacit_papers.measures.torch_lbfgs import TorchLBFGS


def rosenbrock(x):
    """Chains of Rosenbrock's function [B]: curved valleys."""
    return (0.5 * (x[:, 1:] - x[:, :-1] ** 2).square() + 0.1 * (1 - x[:, :-1]).square()).sum(1)


def value_and_grad(scales):
    """The problems, each with a scale of its own."""

    def function(x, which):
        point = x.detach().requires_grad_(True)
        values = scales[which] * rosenbrock(point)
        (slopes,) = torch.autograd.grad(values.sum(), point)
        return values.detach(), slopes

    return function


def by_torch(start, function, number, iterations):
    """The best of the points that torch's optimiser evaluates, its value, and their number."""
    point, seen = start[number].clone().requires_grad_(True), []

    def closure():
        value, slope = function(point.detach()[None], torch.tensor([number]))
        seen.append((float(value), point.detach().clone()))
        point.grad = slope[0]
        return value[0]

    torch.optim.LBFGS([point], max_iter=iterations).step(closure)
    value, best = min(seen, key=lambda pair: pair[0])
    return best, value, len(seen)


@pytest.mark.parametrize("iterations", [1, 2, 40, 300])
def test_every_problem_takes_the_steps_of_torch(iterations):
    draw = torch.Generator().manual_seed(1)
    start = torch.rand(5, 12, generator=draw, dtype=torch.float64)
    # The second stops by its slope, the third at once.
    scales = torch.tensor([1.0, 1e-4, 1e-9, 0.3, 0.05], dtype=torch.float64)
    function = value_and_grad(scales)
    found = TorchLBFGS(iterations).minimise(start, function)
    for number in range(len(start)):
        x, value, evaluations = by_torch(start, function, number, iterations)
        assert float(found.values[number]) == pytest.approx(value, rel=1e-3, abs=1e-15)
        torch.testing.assert_close(found.x[number], x, atol=1e-5, rtol=1e-5)
        assert abs(int(found.evaluations[number]) - evaluations) <= 1
    if iterations == 300:
        assert len(set(found.evaluations.tolist())) > 2


def test_a_point_without_a_value_ends_a_problem_and_only_that():
    def function(x, which):
        values = (x - 3).square().sum(1)
        slopes = 2 * (x - 3)
        broken = (which == 1) & (x[:, 0] > 1)
        return torch.where(broken, torch.nan, values), slopes

    start = torch.zeros(2, 3, dtype=torch.float64)
    found = TorchLBFGS(50).minimise(start, function)
    assert float(found.values[0]) < 1e-6
    assert float(found.x[1, 0]) <= 1
    assert found.values.isfinite().all()
    assert (
        float(TorchLBFGS(50).minimise(start, function, project=lambda x: x.clamp(0, 1)).x.max())
        == 1
    )
