"""Labels from the last layer: exact for one sample, likely for batches."""

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional

from support.observations import total
from tacit import data
from tacit.auditing.attacks.closed_forms import label_counts, labels_by_rows, recover_labels
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.linear_layers import activations, last_linear
from tacit.auditing.attacks.observation import Observation
from tacit.models.networks import sigmoid_cnn
from tacit.tasks.flat import FlatModule, ModuleLoss

SHAPE = (1, 28, 28)


@pytest.fixture(scope="module")
def digits():
    return data.load("mnist-mini", limit_train=1000).train


def per_sample(flat, weights, x, y):
    """Gradients [V, P] of batches [V, b, ...] at weights [V, P]."""
    return vmap(grad(ModuleLoss(flat, functional.cross_entropy)), chunk_size=200)(weights, x, y)


@pytest.mark.parametrize("uniform", [0.5, None])
def test_every_one_of_a_thousand_single_samples(digits, uniform):
    flat = FlatModule(sigmoid_cnn(SHAPE, 10, uniform=uniform))
    weights = torch.stack([flat.random_weights(0, init) for init in range(20)]).repeat(50, 1)
    values = per_sample(flat, weights, digits.x[:, None], digits.y[:, None])
    labels, assumption = recover_labels(
        flat, Observation.gradient(weights, values), DataSpec(SHAPE)
    )
    assert torch.equal(labels, digits.y[:, None])
    assert "one sample" in assumption


@pytest.mark.parametrize("classes", [10, 2])
@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Sigmoid()])
def test_without_a_bias_by_the_longest_row(digits, classes, activation):
    """Features may have any sign, except with two classes, where both rows have one length."""
    flat = FlatModule(
        nn.Sequential(
            nn.Flatten(), nn.Linear(784, 16), activation, nn.Linear(16, classes, bias=False)
        )
    )
    x, y = digits.x[:200, None], digits.y[:200, None] % classes
    weights = torch.stack([flat.random_weights(0, victim) for victim in range(200)])
    seen = Observation.gradient(weights, per_sample(flat, weights, x, y))
    right = (recover_labels(flat, seen, DataSpec(SHAPE))[0] == y).double().mean()
    if classes == 10 or isinstance(activation, nn.Sigmoid):
        assert right == 1
    else:
        assert right < 0.9


@pytest.mark.parametrize("batch", [4, 16])
def test_counts_of_batches_near_the_initialisation(digits, batch):
    """Most labels of a batch, far more than chance; those with negative gradients always."""
    flat = FlatModule(sigmoid_cnn(SHAPE, 10, uniform=0.5))
    count = 40
    weights = torch.stack([flat.random_weights(1, victim) for victim in range(count)])
    x, y = (part[: count * batch].unflatten(0, (count, batch)) for part in (digits.x, digits.y))
    seen = Observation.gradient(weights, per_sample(flat, weights, x, y))
    labels, assumption = recover_labels(flat, seen, DataSpec(SHAPE, batch))
    assert labels.shape == (count, batch)
    true, guessed = (functional.one_hot(some, 10).sum(1) for some in (y, labels))
    overlap = torch.minimum(true, guessed).sum(1).double() / batch
    assert overlap.mean() > 0.9
    assert bool((guessed[seen.values[:, 0, -10:] < 0] >= 1).all())
    assert "random inputs" in assumption


def test_counts_of_a_sum_over_clients(digits):
    flat = FlatModule(sigmoid_cnn(SHAPE, 10, uniform=0.5))
    weights = torch.stack([flat.random_weights(2, client) for client in range(30)])
    x, y = digits.x[:60].unflatten(0, (30, 2)), digits.y[:60].unflatten(0, (30, 2))
    sums = per_sample(flat, weights, x, y).unflatten(0, (10, 3)).sum(1)
    seen = total(weights.unflatten(0, (10, 3)), sums)
    labels, _ = recover_labels(flat, seen, DataSpec(SHAPE, 2))
    assert labels.shape == (10, 3, 2)
    true, guessed = (functional.one_hot(part.reshape(10, 6), 10).sum(1) for part in (y, labels))
    assert torch.minimum(true, guessed).sum(1).double().mean() / 6 > 0.85


def test_counts_by_hand():
    """Four samples: n = 4·(p̄ − G_b); the second class occurs for any expectation."""
    predicted = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    true = torch.tensor([[1, 3, 0, 0]])
    assert torch.equal(label_counts(predicted - true / 4, predicted, batch=4), true)
    wrong = torch.tensor([[0.1, 0.0, 0.1, 0.8]])  # what the attacker expects
    counts = label_counts(predicted - true / 4, wrong, batch=4)
    assert counts.sum() == 4
    assert counts[0, 1] >= 2  # ⌈−4·(0.3 − 0.75)⌉
    assert (
        label_counts(torch.full((1, 4), -1.0), predicted, batch=4).sum() == 4
    )  # no gradient at all


@pytest.mark.parametrize(
    ("estimate", "module", "batch", "reason"),
    [
        (recover_labels, nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.ReLU()), 1,
         "does not end in a linear"),
        (recover_labels, nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False)), 2, "bias"),
        (labels_by_rows, nn.Sequential(nn.Conv2d(1, 10, 28), nn.Flatten()), 1,
         "does not end in a linear"),
    ],
)  # fmt: skip
def test_labels_that_are_not_recovered_have_a_reason(estimate, module, batch, reason):
    flat = FlatModule(module)
    theta = flat.weights()[None]
    seen = Observation.gradient(theta, torch.zeros_like(theta))
    labels, assumption = estimate(flat, seen, DataSpec(SHAPE, batch))
    assert labels is None
    assert assumption.startswith("labels not recovered: ")
    assert reason in assumption


class Backwards(nn.Module):
    """Layers registered in the opposite order of their calls, and a tied pair."""

    def __init__(self, tied):
        super().__init__()
        self.out = nn.Linear(6, 6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.into = nn.Linear(6, 6)
        if tied:
            self.into.weight = self.out.weight

    def forward(self, x):
        return self.out(torch.tanh(self.frozen(self.into(x))))


def test_the_last_layer_is_the_one_called_last():
    flat = FlatModule(Backwards(tied=False))
    layer = last_linear(flat, (6,))
    assert layer.name == "out"
    rows = torch.arange(2 * flat.width).view(2, -1)
    named = flat.unflatten(rows[1])
    assert torch.equal(layer.weight_of(rows)[1], named["out.weight"])
    assert torch.equal(layer.bias_of(rows)[1], named["out.bias"])
    assert last_linear(FlatModule(Backwards(tied=True)), (6,)) is None


def test_activations_are_named():
    assert activations(sigmoid_cnn(SHAPE, 10)) == ["Sigmoid"]
    assert activations(nn.Sequential(nn.ReLU(), nn.Linear(2, 2), nn.Tanh(), nn.ReLU())) == [
        "ReLU",
        "Tanh",
    ]


def test_rows_give_labels_although_every_coordinate_is_noisy(digits):
    """Of 100 batches, multiplied by a matrix of variance 1, which leaves little of the bias."""
    flat = FlatModule(sigmoid_cnn(SHAPE, 10))
    weights = torch.stack([flat.random_weights(0, victim) for victim in range(100)])
    x, y = digits.x[:200].view(100, 2, *SHAPE), digits.y[:200].view(100, 2)
    values = per_sample(flat, weights, x, y)
    noise = torch.randn(2, *values.shape, generator=torch.Generator().manual_seed(0))
    values = (1 + noise[0]) * values + noise[1] * values.roll(-1, 1)
    observation = Observation.gradient(weights, values)
    spec = DataSpec(SHAPE, 2)
    found = labels_by_rows(flat, observation, spec)[0]
    assert int((found == y.sort(1).values).all(1).sum()) >= 90
    by_bias = recover_labels(flat, observation, spec)[0]
    assert int((by_bias == y.sort(1).values).all(1).sum()) <= 50


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("estimate", [recover_labels, labels_by_rows])
def test_labels_of_a_frozen_model_on_a_gpu(digits, estimate):
    """The layers that are not trained are there with the model."""
    module = sigmoid_cnn(SHAPE, 10)
    module[0].requires_grad_(False)
    flat = FlatModule(module)
    weights = torch.stack([flat.random_weights(0, victim) for victim in range(8)])
    x, y = digits.x[:16].view(8, 2, *SHAPE), digits.y[:16].view(8, 2)
    found = {}
    for device in ("cpu", "cuda"):
        moved, rows = flat.to(device), weights.to(device)
        values = per_sample(moved, rows, x.to(device), y.to(device))
        observation = Observation.gradient(rows, values)
        found[device] = estimate(moved, observation, DataSpec(SHAPE, 2))[0]
    assert torch.equal(found["cuda"].cpu(), found["cpu"])
