from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.tasks import Task, evaluation
from tacit.tasks.evaluation import LocalLoss, TestSet
from tacit.tasks.flat import FlatModule
from tacit.tasks.parts import Parts


def points(count, width=3, seed=0):
    return torch.randn(
        count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def classifier():
    return FlatModule(nn.Linear(3, 4).double())


@pytest.mark.parametrize("batch", [7, 1000])
def test_accuracy_and_loss_are_those_of_the_whole_test_set(batch, monkeypatch):
    monkeypatch.setitem(evaluation.TEST_BATCH, "cpu", batch)
    flat, x, y = classifier(), points(25), torch.arange(25) % 4
    theta = points(2, flat.width, seed=1)
    scores = TestSet(flat, functional.cross_entropy, x, y).models(theta, [0, 1])
    for row in range(2):
        output = x @ theta[row, :12].view(4, 3).T + theta[row, 12:]
        assert float(scores.loss[row]) == pytest.approx(float(functional.cross_entropy(output, y)))
        right = sum(int(o.argmax()) == int(label) for o, label in zip(output, y, strict=True))
        assert float(scores.accuracy[row]) == pytest.approx(100 * right / 25)


def test_a_perfect_and_a_useless_model():
    flat, x = (
        FlatModule(nn.Linear(2, 2, bias=False)),
        torch.tensor([[1.0, 0], [0, 1], [2, 1], [1, 3]]),
    )
    test_set = TestSet(flat, functional.cross_entropy, x, x.argmax(1))
    identity = torch.tensor([1.0, 0, 0, 1])
    assert test_set.models(torch.stack([identity, -identity]), [0, 1]).accuracy.tolist() == [
        100.0,
        0.0,
    ]


def test_the_average_model_is_evaluated_like_any_model():
    flat, x, y = classifier(), points(9), torch.arange(9) % 4
    test_set = TestSet(flat, functional.cross_entropy, x, y)
    theta = points(1, flat.width)
    assert torch.equal(test_set.average(theta[0]).loss, test_set.models(theta, [0]).loss)
    assert torch.equal(test_set.average(theta[0]).accuracy, test_set.models(theta, [0]).accuracy)


def test_a_regression_has_a_loss_and_no_accuracy():
    flat, x = FlatModule(nn.Linear(3, 1).double()), points(8)
    y = points(8, 1, seed=2)
    scores = TestSet(flat, functional.mse_loss, x, y).models(flat.weights()[None], [0])
    assert scores.accuracy is None
    assert float(scores.loss[0]) == pytest.approx(
        float((flat(flat.weights(), x) - y).square().mean())
    )


@pytest.mark.parametrize("concatenate", [True, False])
def test_each_model_is_evaluated_on_its_own_clients_data(concatenate):
    parts = [(points(size, seed=size),) for size in (2, 5, 3)]
    local_loss = LocalLoss(
        lambda theta, x: (x @ theta).square().mean(),
        Parts.concatenate(parts) if concatenate else parts,
    )
    theta = points(2)
    scores = local_loss.models(theta, [2, 0])
    assert scores.accuracy is None
    expected = [
        float((parts[c][0] @ row).square().mean()) for row, c in zip(theta, (2, 0), strict=True)
    ]
    assert scores.loss.tolist() == pytest.approx(expected)
    mean = sum(float((x @ theta[0]).square().mean()) for (x,) in parts) / 3
    assert local_loss.average(theta[0]).loss.tolist() == pytest.approx([mean])


def counted_calls(function):
    calls = []

    def counting(*arguments):
        calls.append(None)
        return function(*arguments)

    return counting, calls


def of_two_inputs(theta, x, y):
    return (x @ theta - y).square().sum()


def reading_a_value(theta, x, y):
    # Neither a rule nor torch.func can compute this for all clients at once.
    return (x @ theta - y).square().sum() if x.sum().item() else theta.sum()


@pytest.mark.parametrize("loss", [of_two_inputs, reading_a_value])
@pytest.mark.parametrize("concatenate", [True, False])
def test_losses_of_many_clients_are_those_of_each_alone(concatenate, loss, monkeypatch):
    parts = [(points(1 + k % 3, seed=k), points(1 + k % 3, 1, seed=-k)[:, 0]) for k in range(60)]
    local_loss = LocalLoss(loss, Parts.concatenate(parts) if concatenate else parts)
    theta, clients = points(60), list(range(59, -1, -1))
    monkeypatch.setitem(evaluation.WORKSPACE, "cpu", 200)
    scores = local_loss.models(theta, clients)
    expected = [
        float(loss(row, *parts[client])) for row, client in zip(theta, clients, strict=True)
    ]
    assert scores.loss.tolist() == pytest.approx(expected)
    mean = sum(float(loss(theta[0], *part)) for part in parts) / 60
    assert local_loss.average(theta[0]).loss.tolist() == pytest.approx([mean])


def test_a_record_without_a_test_set_takes_a_few_passes_for_many_clients():
    parts = [(torch.rand(5 + k % 3, 4), torch.arange(5 + k % 3) % 2) for k in range(900)]
    task = Task(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), parts)
    local = task.evaluation
    loss, calls = counted_calls(local.loss.criterion)
    counting = replace(local, loss=replace(local.loss, criterion=loss))
    theta = task.initial(0, [0])[0]
    expected = sum(float(local.loss(theta, *part)) for part in parts) / len(parts)
    assert counting.average(theta).loss.tolist() == pytest.approx([expected], rel=1e-5)
    # For each of the three sizes: its memory, all clients, and one of them as a check.
    assert len(calls) <= 9


@pytest.mark.parametrize(
    ("module", "loss"),
    [
        (
            nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, track_running_stats=False)),
            functional.cross_entropy,
        ),
        (
            nn.Linear(6, 4),
            lambda output, target: functional.cross_entropy(output.view(-1, 4), target.view(-1)),
        ),
    ],
    ids=["batch statistics", "views"],
)
def test_models_are_evaluated_on_whole_batches(module, loss):
    x, y = torch.rand(3, 8, 6), torch.arange(24).view(3, 8) % 4
    task = Task(
        module,
        list(zip(x, y, strict=True)),
        loss=loss,
        batch_size=4,
        test=(torch.rand(10, 6), torch.arange(10) % 4),
    )
    scores = task.evaluation.models(task.initial(0, range(3)), range(3))
    assert scores.accuracy is not None
    assert bool(torch.isfinite(scores.loss).all())


def test_large_activations_are_evaluated_in_small_batches(monkeypatch):
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    data = (torch.rand(40, 1, 8, 8), torch.arange(40) % 3)
    task = Task(module, [data, data], batch_size=4, test=data)
    whole = task.evaluation.models(task.initial(0, range(2)), range(2))
    monkeypatch.setitem(evaluation.WORKSPACE, "cpu", 10_000)
    small = task.to("cpu").evaluation
    assert 1 <= small._pass_size[1] < 40
    few = small.models(task.initial(0, range(2)), range(2))
    torch.testing.assert_close(few.loss, whole.loss, rtol=1e-6, atol=1e-6)
    assert torch.equal(few.accuracy, whole.accuracy)


def test_a_pass_over_a_test_set_does_not_count_what_it_leaves_out():
    """A batch of a large test set is a view of it, and not as large."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    data = (torch.rand(3000, 1, 28, 28), torch.arange(3000) % 10)
    task = Task(module, [data, data], batch_size=4, test=data)
    assert task.evaluation._pass_size == (1, evaluation.TEST_BATCH["cpu"])
