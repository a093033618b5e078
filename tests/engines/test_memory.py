"""A run of N clients with P parameters holds four tensors [N, P], and a workspace that does not grow with them.

Every allocation and release of a run is counted, for two sizes of models; the workspace cancels in the difference.
"""

import pytest
import torch
from torch.autograd.profiler import profile

from tacit import DSGT, LPPA, Setting, Simulation, Task, Topology, simulation
from tacit.core import neighbourhood, randomness
from tacit.core.workers import WorkerPool
from tacit.engines import lazy
from tacit.engines.gradients import objective as gradients

CLIENTS = 80  # more than have a dense W


@pytest.fixture(autouse=True)
def small_workspaces(monkeypatch):
    """Bounds of the workspaces, so small that they are reached by small models."""
    monkeypatch.setattr(neighbourhood, "WORKSPACE", 1 << 13)
    monkeypatch.setattr(randomness, "TILE", 1 << 10)
    monkeypatch.setitem(gradients.WORKSPACE, "cpu", 1 << 15)
    monkeypatch.setattr(simulation.WorkerPool, "for_device", lambda device: WorkerPool(1))


def most_bytes(algorithm, width, strategy):
    """What a run held at most, above what its task and graph take."""
    parts = [torch.full((1,), float(client)) for client in range(CLIENTS)]
    task = Task.from_loss(lambda theta, x: (theta - x).square().mean(), parts, torch.zeros(width))
    run = Simulation(Setting(algorithm, task, Topology.ring(CLIENTS).mixing(), gradients=strategy))
    with profile(profile_memory=True) as told:
        run.start()
        for _ in range(2):
            run.step()
    events = [event for event in told.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def tensors_held(algorithm, strategy="looped"):
    """How many tensors [N, P] of float32 that is."""
    small, large = 1000, 2000
    grown = most_bytes(algorithm, large, strategy) - most_bytes(algorithm, small, strategy)
    return grown / (4 * CLIENTS * (large - small))


@pytest.mark.parametrize("strategy", ["looped", "batched"])
@pytest.mark.parametrize("local_steps", [1, 3])
def test_gradient_tracking_holds_four_tensors(strategy, local_steps):
    assert 3.9 < tensors_held(DSGT(lr=0.01, local_steps=local_steps), strategy) < 4.1


@pytest.mark.parametrize(("fresh", "local_steps"), [(False, 1), (False, 3), (True, 1)])
def test_lossless_aggregation_holds_four_tensors(fresh, local_steps):
    assert 3.9 < tensors_held(LPPA(lr=0.01, fresh=fresh, local_steps=local_steps)) < 4.1


def test_the_count_sees_another_tensor(monkeypatch):
    monkeypatch.setattr(lazy, "is_only_reference", lambda tensor: False)
    assert tensors_held(DSGT(lr=0.01)) > 4.9
