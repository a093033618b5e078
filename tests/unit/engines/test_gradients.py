import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit import models
from tacit.engines.gradients.client_passes import GradientBackend
from tacit.engines.gradients.objective import HostedObjective
from tacit.gradients.workspace import WORKSPACE
from tacit.tasks import Task, adaptive_filtering, least_squares, localization, quadratic
from tacit.tasks.parts import Parts

CLIENTS = 3


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels(count, classes=4, seed=1):
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))


def module_task(name, shape, batch_size, sizes=(6, 6, 6), **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = models.build(name, shape, 4, **options).double()
    parts = [(draw(size, *shape, seed=k), labels(size, seed=k)) for k, size in enumerate(sizes)]
    return Task(module, parts, batch_size=batch_size)


def quadratic_task():
    A = draw(CLIENTS, 4, 4)
    return quadratic(A @ A.mT, draw(CLIENTS, 4, seed=1))


def unequal_squares():
    sizes = (3, 5, 3)
    xs = [draw(size, 4, seed=k) for k, size in enumerate(sizes)]
    return least_squares(xs, [draw(size, seed=9) for size in sizes])


TASKS = {
    "cnn2": lambda: module_task("cnn2", (1, 16, 16), 2, filters=(3, 4)),
    "lenet": lambda: module_task("lenet", (1, 16, 16), 2),
    "sigmoid-cnn3": lambda: module_task("sigmoid-cnn3", (2, 9, 8), 2, filters=4),
    "mlp": lambda: module_task("mlp", (2, 3), 3, hidden=(5, 6)),
    "mlp, whole unequal parts": lambda: module_task("mlp", (4,), None, sizes=(3, 5, 3)),
    "quadratic": quadratic_task,
    "least squares, unequal": unequal_squares,
    "adaptive filtering": lambda: adaptive_filtering(CLIENTS, 4, batch_size=2),
    "adaptive filtering, exact": lambda: adaptive_filtering(CLIENTS, 4, exact=True),
    "localization": lambda: localization([[0, 0], [1, 0], [1, 1]]),
}


@pytest.fixture(params=TASKS)
def task(request):
    return TASKS[request.param]()


def objective(task, strategy, seed=5):
    ids = torch.arange(task.clients)
    return HostedObjective(task, ids.tolist(), task.loader(ids, seed, "cpu"), strategy, seed, "cpu")


def scattered(task):
    """Models that differ between clients."""
    return task.initial(0, range(task.clients)) + 0.1 * draw(task.clients, task.parameters, seed=7)


def test_batched_equals_looped(task):
    theta = scattered(task)
    for number in (0, 4):
        one = objective(task, "stacked").grad(theta, number)
        other = objective(task, "looped").grad(theta, number)
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
        assert bool(other.abs().sum(1).gt(0).all())


@pytest.mark.parametrize("strategy", ["stacked", "looped"])
def test_the_workspace_bounds_a_pass_and_not_the_result(task, strategy, monkeypatch):
    theta = scattered(task)
    whole = objective(task, strategy).grad(theta, 2)
    monkeypatch.setitem(WORKSPACE, "cpu", 1)
    assert GradientBackend.of(task, strategy).clients_per_pass("cpu") >= 1
    pieces = objective(task, strategy).grad(theta, 2)
    torch.testing.assert_close(pieces, whole, rtol=1e-9, atol=1e-11)


def test_fewer_clients_go_together_where_models_are_large(monkeypatch):
    monkeypatch.setitem(WORKSPACE, "cpu", 10_000)
    small, large = (
        GradientBackend.of(
            least_squares([draw(2, width)] * 50, [draw(2)] * 50), "stacked"
        ).clients_per_pass("cpu")
        for width in (3, 300)
    )
    assert 1 <= large < small


@pytest.mark.parametrize("strategy", ["stacked", "looped"])
def test_gradients_are_those_of_an_ordinary_training_step(strategy):
    module = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 4, 4)
    ).double()
    x, y = draw(20, 1, 4, 4), labels(20)
    parts = Parts.split((x, y), [range(7), range(7, 20)])
    task = Task(module, parts, batch_size=5)
    hosted = objective(task, strategy)
    index = hosted.loader.indices(3)
    theta = scattered(task)
    got = hosted.grad(theta, 3)
    for client in range(2):
        ordinary = copy.deepcopy(module)
        nn.utils.vector_to_parameters(theta[client], ordinary.parameters())
        rows = index[client]
        functional.cross_entropy(ordinary(x[rows]), y[rows]).backward()
        expected = nn.utils.parameters_to_vector([p.grad for p in ordinary.parameters()])
        torch.testing.assert_close(got[client], expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("strategy", ["stacked", "looped"])
def test_hosting_some_clients_gives_their_gradients(task, strategy):
    ids = torch.tensor([0, 2])
    theta = scattered(task)
    expected = objective(task, strategy).grad(theta, 6)
    some = HostedObjective(task, ids.tolist(), task.loader(ids, 5, "cpu"), strategy, 5, "cpu")
    torch.testing.assert_close(some.grad(theta[ids], 6), expected[ids], rtol=1e-9, atol=1e-11)
    assert torch.equal(some.theta0(), objective(task, strategy).theta0()[ids])


@pytest.mark.parametrize("strategy", ["stacked", "looped"])
def test_gradients_neither_change_the_models_nor_share_their_memory(task, strategy):
    theta = scattered(task)
    before = theta.clone()
    hosted = objective(task, strategy)
    hosted.grad(theta, 0).zero_()
    assert torch.equal(theta, before)
    hosted.theta0().zero_()
    assert torch.equal(hosted.theta0(), task.initial(5, range(task.clients)))
