"""Rounding errors of long sums in float32, compared to float64."""

import numpy as np
import pytest
import torch

from tacit import LPPA, Setting, Simulation, Topology, quadratic
from tacit.engines.group import Hosted, ProcessGroup
from tacit.engines.observation import consensus_distance, mean_row
from tacit.engines.stacked import StackedNetwork

EPS = torch.finfo(torch.float32).eps
# Algorithms and their iterations.
RUNS = {
    "lppa": (LPPA(lr=0.02), 2000),
    "lppa, fresh": (LPPA(lr=0.02, fresh=True), 400),
}


def long_run(algorithm, steps, dtype, clients=20, width=30):
    rng = np.random.default_rng(3)
    root = rng.normal(size=(clients, width, width))
    A = torch.tensor(root @ root.transpose(0, 2, 1) / width + np.eye(width), dtype=dtype)
    task = quadratic(A, torch.tensor(5 * rng.normal(size=(clients, width)), dtype=dtype))
    run = Simulation(
        Setting(algorithm, task, Topology.ring(clients).mixing(), seed=2, gradients="stacked")
    )
    run.start()
    size = float(run.state.gamma.double().abs().sum(0).max())  # Σᵢ|γᵢ⁰| of the largest coordinate
    for _ in range(steps):
        run.step()
    return run.state, size


def drift(state):
    """How far Σγ is from Σ∇L, which it equals in exact arithmetic."""
    return float((state.gamma.double().sum(0) - state.grad.double().sum(0)).abs().max())


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_trackers_still_track_after_thousands_of_iterations(name):
    """Rounding errors grow as √iterations or slower."""
    algorithm, steps = RUNS[name]
    single, size = long_run(algorithm, steps, torch.float32)
    double, _ = long_run(algorithm, steps, torch.float64)
    assert 0 < drift(single) < np.sqrt(steps) * EPS * size
    assert drift(double) < np.sqrt(steps) * torch.finfo(torch.float64).eps * size
    error = float((single.theta - double.theta).abs().max())
    assert error < 10 * np.sqrt(steps) * EPS * float(double.theta.abs().max())


@pytest.fixture(scope="module")
def many():
    """Models of 10,000 clients that have a large mean and differ little."""
    generator = torch.Generator().manual_seed(4)
    return 100 + torch.randn(10_000, 17, generator=generator)


def test_mixing_ten_thousand_rows(many):
    graph = Topology.ring(len(many)).mixing()
    single = StackedNetwork(graph, torch.float32, "cpu")
    double = StackedNetwork(graph, torch.float64, "cpu")
    x, exact = many, many.double()
    for _ in range(100):
        (x,), (exact,) = single.mix(x=x), double.mix(x=exact)
    torch.testing.assert_close(exact.mean(0), many.double().mean(0), rtol=1e-13, atol=0)
    # 1/3 is not a float32, so each mixing can scale all rows by 1 ± EPS.
    torch.testing.assert_close(x.double(), exact, rtol=100 * EPS, atol=0)
    torch.testing.assert_close(x.double().mean(0), exact.mean(0), rtol=100 * EPS, atol=0)


def test_means_and_consensus_of_ten_thousand_rows(many):
    exact = many.double()
    hosted = Hosted.of(ProcessGroup(), Topology.ring(len(many)).mixing())
    average = mean_row(many, hosted)
    torch.testing.assert_close(average.double(), exact.mean(0), rtol=2 * EPS, atol=0)
    expected = float((exact - exact.mean(0)).square().sum(1).mean().sqrt())
    # Differences of numbers near 100 are known to 100 · EPS only.
    assert consensus_distance(many, average, hosted) == pytest.approx(expected, rel=100 * EPS)


def test_consensus_distance_of_models_that_hardly_differ(many):
    close = 100 + (many - 100) * 1e-3
    exact = close.double()
    expected = float((exact - exact.mean(0)).square().sum(1).mean().sqrt())
    hosted = Hosted.of(ProcessGroup(), Topology.ring(len(many)).mixing())
    found = consensus_distance(close, mean_row(close, hosted), hosted)
    assert found == pytest.approx(expected, rel=1e-3)
