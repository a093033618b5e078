"""Imprint weights: single samples from gradients of batches and from sums over clients."""

import pytest
import torch
from torch import nn

import tacit
from tacit import data, models
from tacit.auditing.active.imprint import imprint_weights, imprinted, read_samples
from tacit.auditing.attacks.linear_layers import first_linear, first_two_linear
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting
from tacit.tasks.flat import FlatModule

RING = tacit.Topology.ring(3).mixing("metropolis", lazy=True)
DIGITS = data.load("mnist-mini", limit_train=200, limit_test=300)
SHAPE = tuple(DIGITS.train.x.shape[1:])
BATCH = DIGITS.train.x[:16], DIGITS.train.y[:16]


def perceptron(hidden=(64,)):
    torch.manual_seed(0)
    return FlatModule(models.build("mlp", SHAPE, 10, hidden=list(hidden)).double())


def gradient(flat, theta, x, y):
    theta = theta.clone().requires_grad_()
    loss = nn.functional.cross_entropy(flat(theta, x.double()), y)
    return torch.autograd.grad(loss, theta)[0]


def recovered(flat, values, x):
    candidates = read_samples(first_linear(flat, SHAPE), values)
    errors = torch.cdist(x.flatten(1).double(), candidates).square() / x[0].numel()
    return int((errors.min(1).values < 1e-6).sum())


def alone(theta, flat, x):
    """How many samples are the only ones between two thresholds."""
    layer = first_linear(flat, SHAPE)
    z = x.flatten(1).double() @ layer.weight_of(theta).T + theta[layer.bias]
    bins = (z > 0).sum(1)
    return int(sum((bins == one).sum() == 1 and one > 0 for one in bins))


@pytest.mark.parametrize("hidden", [(64,), (48, 16)])
def test_every_sample_that_is_alone_in_its_bin_is_recovered(hidden):
    flat = perceptron(hidden)
    theta = imprint_weights(flat, flat.weights(), DIGITS.test.x)
    found = recovered(flat, gradient(flat, theta, *BATCH), BATCH[0])
    assert found == alone(theta, flat, BATCH[0]) >= 8
    honest = recovered(flat, gradient(flat, flat.weights(), *BATCH), BATCH[0])
    assert honest < found / 2


def test_a_sum_over_clients_gives_samples_of_each():
    flat = perceptron()
    theta = imprint_weights(flat, flat.weights(), DIGITS.test.x)
    batches = [(DIGITS.train.x[k : k + 16], DIGITS.train.y[k : k + 16]) for k in (0, 16, 32)]
    total = sum(gradient(flat, theta, *batch) for batch in batches)
    x = torch.cat([batch[0] for batch in batches])
    assert recovered(flat, total, x) == alone(theta, flat, x) > 10
    honest = sum(gradient(flat, flat.weights(), *batch) for batch in batches)
    assert recovered(flat, honest, x) <= 2


def test_thresholds_are_quantiles_of_public_data():
    flat = perceptron()
    theta = imprint_weights(flat, flat.weights(), DIGITS.test.x)
    first, second = first_two_linear(flat, SHAPE)
    z = DIGITS.test.x.flatten(1).double() @ first.weight_of(theta).T + theta[first.bias]
    share = (z > 0).double().mean(0)
    torch.testing.assert_close(share, 1 - torch.arange(64).double() / 64, atol=0.02, rtol=0)
    columns = second.weight_of(theta)
    assert torch.equal(columns, columns[:, :1].expand_as(columns))


def task(module, init="same"):
    parts = [(DIGITS.train.x[k : k + 20], DIGITS.train.y[k : k + 20]) for k in (0, 20, 40)]
    test = DIGITS.test.x, DIGITS.test.y
    return tacit.Task(module, parts, batch_size=16, test=test, init=init)


def test_all_clients_start_from_the_imprint_model():
    setting = Setting(tacit.DSG(lr=0.1), task(models.build("mlp", SHAPE, 10, hidden=[32])), RING, 3)
    changed = imprinted(setting, 0)
    assert changed.start_alike
    rows = changed.task.initial(3, range(3))
    assert not torch.equal(rows[0], setting.task.initial(3, [0])[0])


@pytest.mark.parametrize(
    "module",
    [
        models.build("cnn2", SHAPE, 10),
        nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
        nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.Sigmoid(), nn.Linear(16, 10)),
        nn.Sequential(nn.Flatten(), nn.Linear(784, 16, bias=False), nn.ReLU(), nn.Linear(16, 10)),
    ],
)
def test_models_that_begin_in_another_way_are_refused(module):
    with pytest.raises(Misuse, match=r"linear layer with bias, a ReLU.*Choose such a model"):
        imprinted(Setting(tacit.DSG(lr=0.1), task(module), RING), 0)


def test_first_models_that_differ_cannot_be_imposed():
    module = models.build("mlp", SHAPE, 10, hidden=[32])
    with pytest.raises(Misuse, match="start from different models"):
        imprinted(Setting(tacit.DSG(lr=0.1), task(module, "independent"), RING), 0)


def test_a_task_without_a_model_is_refused():
    quadratic = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.zeros(3, 2))
    with pytest.raises(Misuse, match="imprint model cannot be made"):
        imprinted(Setting(tacit.DSG(lr=0.1), quadratic, RING), 0)
