import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tacit.engines.group import Hosted, ProcessGroup
from tacit.engines.observation import (
    MAX_EVALUATED_CLIENTS,
    consensus_distance,
    evaluated_clients,
    mean_row,
    mean_square_deviation,
    observe,
)
from tacit.engines.partition import ClientPartition
from tacit.record.history import Spread
from tacit.tasks.evaluation import Evaluation, ModelScores


def alone(theta):
    """One process that hosts the client of each row."""
    rank_of, no_edges = np.zeros(len(theta), dtype=int), np.empty((0, 2), dtype=int)
    return Hosted(ProcessGroup(), ClientPartition(rank_of, 1, no_edges))


def consensus_distance_of(theta):
    return consensus_distance(theta, mean_row(theta, alone(theta)), alone(theta))


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_consensus_distance_is_the_root_mean_square_from_the_mean(clients, width, seed):
    theta = torch.randn(
        clients, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    centre = sum(theta) / clients
    expected = math.sqrt(sum(float(torch.dist(row, centre)) ** 2 for row in theta) / clients)
    assert consensus_distance_of(theta) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_consensus_distance_of_equal_rows_is_zero():
    theta = torch.full((5, 3), 0.3)
    assert consensus_distance_of(theta) == 0


def test_consensus_distance_of_a_diverged_run_is_nan():
    theta = torch.ones(3, 2)
    theta[1, 0] = math.inf
    assert math.isnan(consensus_distance_of(theta))


def test_mean_row_sums_in_double_precision():
    theta = torch.full((100_000, 1), 0.1)
    assert mean_row(theta, alone(theta)).dtype == torch.float32
    assert float(mean_row(theta, alone(theta))) == float(torch.tensor(0.1))


def test_few_clients_are_all_evaluated():
    assert evaluated_clients(1) == [0]
    assert evaluated_clients(MAX_EVALUATED_CLIENTS) == list(range(MAX_EVALUATED_CLIENTS))


@settings(max_examples=40)
@given(st.integers(MAX_EVALUATED_CLIENTS + 1, 100_000))
def test_of_many_clients_evenly_spaced_ones_are_evaluated(count):
    chosen = evaluated_clients(count)
    assert len(chosen) == MAX_EVALUATED_CLIENTS
    assert chosen[0] == 0
    assert chosen[-1] < count
    gaps = {b - a for a, b in zip(chosen, [*chosen[1:], count], strict=True)}
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1


class FirstNumber(Evaluation):
    """Scores a model by its first number."""

    def __init__(self, accuracy):
        self.accuracy = accuracy

    def models(self, theta, clients):
        return ModelScores(
            theta[:, 0].double(), 10 * theta[:, 0].double() if self.accuracy else None
        )


@pytest.mark.parametrize("accuracy", [True, False])
def test_observe(accuracy):
    theta = torch.tensor([[1.0, 0], [2, 0], [6, 0]])
    record = observe(
        theta, FirstNumber(accuracy), alone(theta), round=2, step=9, bytes_sent=77, wall_seconds=0.5
    )
    assert record.loss == Spread(3, 1, 6, 3)
    assert record.accuracy == (Spread(30, 10, 60, 30) if accuracy else None)
    assert record.consensus_distance == pytest.approx(math.sqrt((4 + 1 + 9) / 3))
    assert (record.round, record.step, record.bytes_sent, record.wall_seconds) == (2, 9, 77, 0.5)


def test_the_average_model_includes_clients_that_are_not_evaluated():
    theta = torch.arange(100.0)[:, None]
    record = observe(
        theta, FirstNumber(False), alone(theta), round=0, step=0, bytes_sent=0, wall_seconds=0.0
    )
    chosen = evaluated_clients(100)
    assert record.loss.max == chosen[-1]
    assert record.loss.mean == pytest.approx(sum(chosen) / len(chosen))
    assert record.loss.average_model == pytest.approx(49.5)


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_mean_square_deviation(clients, width, seed):
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(clients, width, dtype=torch.float64, generator=generator)
    optimum = torch.randn(width, dtype=torch.float64, generator=generator)
    expected = sum(float(torch.dist(row, optimum)) ** 2 for row in theta) / clients
    assert mean_square_deviation(theta, optimum, alone(theta)) == pytest.approx(expected, rel=1e-12)


def test_msd_is_recorded_if_the_optimum_is_known():
    theta = torch.arange(100.0)[:, None]
    other = {"round": 0, "step": 0, "bytes_sent": 0, "wall_seconds": 0.0}
    record = observe(
        theta,
        FirstNumber(False),
        alone(theta),
        optimum=torch.tensor([2.0], dtype=torch.float64),
        **other,
    )
    assert record.msd == pytest.approx(sum((k - 2) ** 2 for k in range(100)) / 100)
    assert observe(theta, FirstNumber(False), alone(theta), **other).msd is None
    theta[3] = math.inf
    assert math.isnan(
        observe(theta, FirstNumber(False), alone(theta), optimum=torch.zeros(1), **other).msd
    )
