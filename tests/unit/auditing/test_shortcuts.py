"""Inputs from a fully connected first layer: exact for one sample, and detected otherwise."""

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional

from support.observations import difference, total
from tacit import data
from tacit.auditing.attacks.closed_forms import read_inputs
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.observation import Observation
from tacit.models.networks import sigmoid_cnn
from tacit.tasks.flat import FlatModule, ModuleLoss

SHAPE = (1, 28, 28)
PERCEPTRON = nn.Sequential(nn.Flatten(), nn.Linear(784, 20), nn.ReLU(), nn.Linear(20, 10))
LOGISTIC = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
VICTIMS = 5


class Called(nn.Module):
    """A first layer that is registered last, and one that is registered first and called last."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(20, 10)
        self.into = nn.Linear(784, 20)

    def forward(self, x):
        return self.out(torch.sigmoid(self.into(x.flatten(1))))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(784, 10)

    def forward(self, x):
        return self.into(2 * x.flatten(1) - 1)


def gradients(module, batch=1, key=0):
    """Weights [V, P], gradients [V, P] and inputs [V, batch, 1, 28, 28] of real digits."""
    flat = FlatModule(module)
    weights = torch.stack([flat.random_weights(key, victim) for victim in range(VICTIMS)])
    digits = data.load("mnist-mini", limit_train=VICTIMS * batch).train
    x, y = digits.x.unflatten(0, (VICTIMS, batch)), digits.y.unflatten(0, (VICTIMS, batch))
    loss = ModuleLoss(flat, functional.cross_entropy)
    return flat, weights, vmap(grad(loss))(weights, x, y), x


@pytest.mark.parametrize(
    "module", [PERCEPTRON, LOGISTIC, Called()], ids=["mlp", "logistic", "called"]
)
def test_one_samples_gradient_gives_its_input(module):
    flat, weights, values, x = gradients(module)
    found = read_inputs(flat, Observation.gradient(weights, values), DataSpec(SHAPE))
    assert bool(found.exact().all())
    torch.testing.assert_close(found.inputs, x, atol=1e-5, rtol=0)


@pytest.mark.parametrize("module", [PERCEPTRON, LOGISTIC], ids=["mlp", "logistic"])
def test_one_samples_difference_gives_its_input(module):
    flat, later, one, x = gradients(module, key=1)
    _, earlier, other, _ = gradients(module, key=2)
    found = read_inputs(flat, difference(later, earlier, one - other), DataSpec(SHAPE))
    assert bool(found.exact().all())
    torch.testing.assert_close(found.inputs, x, atol=1e-4, rtol=0)


def test_a_hidden_second_sample_is_noticed():
    flat, weights, values, _ = gradients(PERCEPTRON, batch=2)
    found = read_inputs(flat, Observation.gradient(weights, values), DataSpec(SHAPE))
    assert not bool(found.exact().any())
    assert found.residual.min() > 0.05


def test_different_samples_behind_a_difference_are_noticed():
    flat, weights, values, _ = gradients(PERCEPTRON)
    rotated = values.roll(1, 0)
    seen = difference(weights, weights.roll(1, 0), values - rotated)
    assert not bool(read_inputs(flat, seen, DataSpec(SHAPE)).exact().any())


def test_a_known_second_sample_or_client_leaves_nothing_to_read():
    flat, weights, values, _ = gradients(PERCEPTRON, batch=2)
    for seen, batch in (
        (Observation.gradient(weights, values), 2),
        (total(weights[:, None].expand(-1, 3, -1), values), 1),
    ):
        assert read_inputs(flat, seen, DataSpec(SHAPE, batch)) is None


@pytest.mark.parametrize(
    "module",
    [
        sigmoid_cnn(SHAPE, 10),
        nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False)),
        nn.Sequential(nn.Flatten(), nn.LayerNorm(784), nn.Linear(784, 10)),
        nn.Sequential(
            nn.Linear(28, 4), nn.Flatten(), nn.Linear(112, 10)
        ),  # row by row: a sum of 28 products
        Scaled(),
    ],
    ids=["convolution", "no bias", "norm first", "rows", "scaled"],
)
def test_other_architectures_have_no_shortcut(module):
    flat, weights, values, _ = gradients(module)
    assert read_inputs(flat, Observation.gradient(weights, values), DataSpec(SHAPE)) is None


def test_a_victim_without_gradient_is_not_exact_but_the_others_are():
    flat, weights, values, x = gradients(PERCEPTRON)
    values[2] = 0
    found = read_inputs(flat, Observation.gradient(weights, values), DataSpec(SHAPE))
    assert found.exact().tolist() == [True, True, False, True, True]
    assert bool(found.inputs.isfinite().all())
    torch.testing.assert_close(found.inputs[3], x[3], atol=1e-5, rtol=0)


def test_units_with_a_large_gradient_decide():
    """Noise on all of it: the weighted mean is much better than the mean of the quotients."""
    flat, weights, values, x = gradients(PERCEPTRON)
    noisy = values + 1e-5 * torch.randn(values.shape, generator=torch.Generator().manual_seed(0))
    found = read_inputs(flat, Observation.gradient(weights, noisy), DataSpec(SHAPE))
    weight, bias = noisy[:, : 784 * 20].view(-1, 20, 784), noisy[:, 784 * 20 : 784 * 20 + 20]
    plain = (weight / bias[:, :, None]).mean(1).view_as(x)
    assert (found.inputs - x).square().mean() < 0.1 * (plain - x).square().mean()
    assert bool(((found.residual > 0) & (found.residual < 0.1)).all())
