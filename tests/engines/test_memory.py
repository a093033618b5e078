"""A run of N clients with P parameters holds four tensors [N, P] and a workspace of fixed size.

All allocations and releases are counted for two sizes of models; the workspace cancels in the
difference.
"""

import gc

import pytest
import torch
from torch.autograd.profiler import profile

from support.suited import suited
from tacit import DSGT, LPPA, Decor, PrivateSGD, Setting, Simulation, Task, Topology, models
from tacit.core import fixed_point, neighbourhood, randomness
from tacit.core.workers import WorkerPool
from tacit.engines import lazy_rows
from tacit.engines.gradients import clipped
from tacit.gradients.workspace import WORKSPACE

# Too many for a dense W.
CLIENTS = 80


@pytest.fixture(autouse=True)
def small_workspaces(monkeypatch):
    """Workspaces so small that small models fill them."""
    monkeypatch.setattr(neighbourhood, "WORKSPACE", 1 << 13)
    monkeypatch.setattr(randomness, "TILE", 1 << 10)
    monkeypatch.setattr(fixed_point, "TILE", 1 << 10)
    monkeypatch.setitem(WORKSPACE, "cpu", 1 << 15)
    monkeypatch.setattr(WorkerPool, "for_device", lambda device: WorkerPool(1))


def peak_bytes(algorithm, width, strategy):
    """Peak memory of a run with a model of this width, without its task and graph."""
    parts = [torch.full((1,), float(client)) for client in range(CLIENTS)]
    task = Task(torch.zeros(width), parts, loss=lambda theta, x: (theta - x).square().mean())
    return peak_of(algorithm, task, strategy)


def peak_of(algorithm, task, strategy):
    graph = Topology.ring(CLIENTS).mixing()
    algorithm, task = suited(algorithm, task, graph)
    run = Simulation(Setting(algorithm, task, graph, gradients=strategy))
    gc.collect()
    with profile(profile_memory=True) as profiled:
        run.start()
        for _ in range(2):
            run.step()
    events = [event for event in profiled.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def tensors_held(algorithm, strategy="looped"):
    """Peak memory in float32 tensors [N, P]."""
    small, large = 1000, 2000
    grown = peak_bytes(algorithm, large, strategy) - peak_bytes(algorithm, small, strategy)
    return grown / (4 * CLIENTS * (large - small))


@pytest.mark.parametrize(("strategy", "local_steps"), [("looped", 1), ("stacked", 3)])
def test_gradient_tracking_holds_four_tensors(strategy, local_steps):
    assert 3.9 < tensors_held(DSGT(lr=0.01, local_steps=local_steps), strategy) < 4.1


@pytest.mark.parametrize(("fresh", "local_steps"), [(False, 3), (True, 1)])
def test_lossless_aggregation_holds_four_tensors(fresh, local_steps):
    assert 3.9 < tensors_held(LPPA(lr=0.01, fresh=fresh, local_steps=local_steps)) < 4.1


@pytest.fixture
def samples_one_by_one(monkeypatch):
    """A workspace so small that gradients of several samples never fit."""
    monkeypatch.setitem(WORKSPACE, "cpu", 1)
    monkeypatch.setattr(clipped, "PASSES_AT_ONCE", 1)


@pytest.mark.filterwarnings("ignore:Gradients of samples are computed one by one")
@pytest.mark.usefixtures("samples_one_by_one")
@pytest.mark.parametrize("options", [{"momentum": 0.5}, {"optimizer": "adam"}], ids=str)
def test_a_sum_over_clients_holds_less_because_models_are_one_row(options):
    """The clipped sums, their integers, and the first models or parts of sums."""
    assert 2.0 < tensors_held(PrivateSGD(lr=0.01, **options)) < 3.5


@pytest.mark.filterwarnings("ignore:Gradients of samples are computed one by one")
@pytest.mark.usefixtures("samples_one_by_one")
def test_noise_that_cancels_holds_four_tensors():
    assert 3.7 < tensors_held(Decor(lr=0.01)) < 4.1


def test_the_count_sees_another_tensor(monkeypatch):
    monkeypatch.setattr(lazy_rows, "is_only_reference", lambda *parts: False)
    assert tensors_held(DSGT(lr=0.01)) > 4.9


# Numbers of a pass, fewer than all clients' parameters.
PASS = 1 << 17


def module_task(name):
    """A task with a small ResNet or transformer of about 3,000 parameters."""
    shape = {"resnet18-gn": (1, 8, 8), "transformer": (4,)}[name]
    options = {"width": 1, "groups": 1}
    if name == "transformer":
        options = {"vocabulary": 400, "dim": 8, "heads": 2, "feedforward": 8, "layers": 1}
    module = models.build(name, shape, 3, **options)
    inputs = torch.rand(CLIENTS, 4, *shape)
    inputs = inputs.mul(400).long() if name == "transformer" else inputs
    labels = torch.randint(3, (CLIENTS, 4))
    return Task(module, list(zip(inputs, labels, strict=True)), batch_size=2)


def numbers_held(monkeypatch, algorithm, name):
    """Peak memory in numbers of four bytes, and the number of all clients' parameters."""
    monkeypatch.setitem(WORKSPACE, "cpu", PASS)
    task = module_task(name)
    assert CLIENTS * task.parameters > 1.5 * PASS
    return peak_of(algorithm, task, "stacked") / 4, CLIENTS * task.parameters


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        (DSGT(lr=0.01), "transformer"),
        (LPPA(lr=0.01), "transformer"),
        pytest.param(LPPA(lr=0.01), "resnet18-gn", marks=pytest.mark.slow),
    ],
)
def test_modules_hold_four_tensors_and_the_workspace_of_a_pass(monkeypatch, algorithm, name):
    held, rows = numbers_held(monkeypatch, algorithm, name)
    assert 3.9 * rows < held < 4 * rows + PASS


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_the_count_sees_another_tensor_beside_modules(monkeypatch):
    monkeypatch.setattr(lazy_rows, "is_only_reference", lambda *parts: False)
    held, rows = numbers_held(monkeypatch, DSGT(lr=0.01), "transformer")
    assert held > 4.9 * rows
