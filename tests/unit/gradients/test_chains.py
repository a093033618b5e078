"""Layers of many clients against autograd, client by client."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from support.gradient_ways import looped
from tacit import models
from tacit.engines.gradients.client_passes import choose_backend
from tacit.engines.gradients.objective import HostedObjective
from tacit.tasks import Task
from tacit.tasks.client_gradients import write_stacked

CLIENTS, CLASSES = 3, 4


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def whole_numbers(*shape, seed=0):
    """Few values, so that windows of a pool have their largest number several times."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).double()


def classes(count, seed=1):
    return torch.randint(CLASSES, (count,), generator=torch.Generator().manual_seed(seed))


def module_of(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()


def task_of(module, shape, *, samples=4, batch_size=3, inputs=draw, targets=classes, **options):
    parts = [(inputs(samples, *shape, seed=k), targets(samples, seed=k)) for k in range(CLIENTS)]
    return Task(module, parts, batch_size=batch_size, **options)


def both(task, theta=None, number=2):
    """Gradients of all clients at once, and client by client."""
    if theta is None:
        theta = task.initial(0, range(CLIENTS)) + 0.1 * draw(CLIENTS, task.parameters, seed=7)
    ids = torch.arange(CLIENTS)
    return tuple(
        HostedObjective(task, ids.tolist(), task.loader(ids, 5, "cpu"), strategy, 5, "cpu").grad(
            theta, number
        )
        for strategy in ("stacked", "looped")
    )


def assert_same(task, theta=None):
    ours, plain = both(task, theta)
    scale = float(plain.abs().max())
    assert scale > 0
    assert float((ours - plain).abs().max()) <= 1e-10 * scale


IMAGE = (2, 18, 17)
MODELS = {
    "cnn2": lambda: models.build("cnn2", IMAGE, CLASSES, filters=(3, 4)),
    "cnn2, padded": lambda: models.build("cnn2", IMAGE, CLASSES, filters=(3, 4), padding=2),
    "lenet, relu": lambda: models.build("lenet", IMAGE, CLASSES),
    "lenet, sigmoid": lambda: models.build("lenet", IMAGE, CLASSES, activation="sigmoid"),
    "lenet, tanh": lambda: models.build("lenet", IMAGE, CLASSES, activation="tanh"),
    "sigmoid-cnn3": lambda: models.build("sigmoid-cnn3", IMAGE, CLASSES, filters=3, uniform=0.5),
    "tanh-cnn2": lambda: models.build("tanh-cnn2", IMAGE, CLASSES),
    "tanh-cnn6": lambda: models.build("tanh-cnn6", IMAGE, CLASSES, width=4),
    "mlp": lambda: models.build("mlp", IMAGE, CLASSES, hidden=(5, 6)),
    "linear": lambda: models.build("linear", IMAGE, CLASSES),
}


@pytest.fixture(params=MODELS)
def module(request):
    return module_of(MODELS[request.param])


def test_every_registered_chain_is_made_of_our_layers():
    branched, large = {"resnet18-gn", "transformer"}, {"vgg11"}
    assert {name.split(",")[0] for name in MODELS} == set(models.MODELS) - branched - large


def test_a_large_model_has_the_gradients_of_autograd():
    assert_same(task_of(models.build("vgg11", IMAGE, CLASSES).double(), IMAGE))


@pytest.mark.parametrize("inputs", [draw, whole_numbers])
def test_models_have_the_gradients_of_autograd(module, inputs):
    assert_same(task_of(module, IMAGE, inputs=inputs))


def test_one_sample_is_a_batch(module):
    assert_same(task_of(module, IMAGE, batch_size=1))


def test_whole_parts_of_different_sizes(module):
    parts = [(draw(n, *IMAGE, seed=n), classes(n, seed=n)) for n in (2, 5, 2)]
    assert_same(Task(module, parts))


@pytest.mark.parametrize("inputs", [draw, whole_numbers])
def test_all_weights_alike_are_ties_everywhere(inputs):
    """Every filter, and so every pool and every output, sees the same numbers."""
    task = task_of(module_of(MODELS["cnn2"]), IMAGE, inputs=inputs)
    assert_same(task, torch.full((CLIENTS, task.parameters), 0.25, dtype=torch.float64))


def squared(output, targets):
    return (output - targets[:, None]).square().mean()


def uneven(output, targets):
    """Outputs and samples that count differently, so that none can be taken for another."""
    share = torch.arange(1.0, output.shape[1] + 1, dtype=output.dtype)
    return ((output.sin() * share).sum(1) * targets).sum() + output[:, 0].prod()


CRITERIA = {
    "mse": functional.mse_loss,
    "smoothed": lambda output, y: functional.cross_entropy(output, y, label_smoothing=0.1),
    "partial": partial(functional.cross_entropy, label_smoothing=0.2),
    "module": nn.CrossEntropyLoss(),
    "weighted": nn.CrossEntropyLoss(weight=torch.arange(1.0, CLASSES + 1).double()),
    "one number per sample": squared,
    "uneven": uneven,
    "probabilities": functional.cross_entropy,
}
TARGETS = {
    "mse": lambda count, seed: draw(count, CLASSES, seed=seed),
    "probabilities": lambda count, seed: draw(count, CLASSES, seed=seed).softmax(1),
}


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_any_criterion(name, batch_size):
    targets = TARGETS.get(name, classes)
    task = task_of(
        module_of(MODELS["cnn2"]),
        IMAGE,
        targets=targets,
        loss=CRITERIA[name],
        batch_size=batch_size,
    )
    assert_same(task)


def test_samples_that_cross_entropy_ignores():
    def some_ignored(count, seed):
        labels = classes(count, seed)
        labels[0] = -100  # what torch leaves out of the mean
        return labels

    assert_same(task_of(module_of(MODELS["mlp"]), IMAGE, targets=some_ignored, batch_size=4))


def test_a_criterion_that_cannot_be_batched_is_looped_and_right():
    def forked(output, targets):
        return (
            functional.cross_entropy(output, targets)
            if output[0, 0] > 0
            else output.square().mean()
        )

    task = task_of(module_of(MODELS["mlp"]), IMAGE, loss=forked)
    ids = list(range(CLIENTS))
    choice = choose_backend(task, ids, task.loader(torch.tensor(ids), 5, "cpu"), 5, "cpu")
    assert choice.strategy == "looped"
    assert "the value (bool)" in choice.reason


@st.composite
def chains(draw_value):
    """A chain of layers and the shape of its inputs."""
    whole = lambda low, high: draw_value(st.integers(low, high))  # noqa: E731
    layers = []
    channels, height, width = shape = (whole(1, 2), whole(3, 8), whole(3, 8))
    for _ in range(whole(0, 4)):
        kind = draw_value(st.sampled_from(["convolution", "max", "mean", "activation", "identity"]))
        if kind == "convolution":
            layer = nn.Conv2d(
                channels,
                whole(1, 3),
                (whole(1, 3), whole(1, 3)),
                stride=(whole(1, 3), whole(1, 2)),
                padding=(whole(0, 2), whole(0, 1)),
                dilation=(whole(1, 2), whole(1, 2)),
                bias=draw_value(st.booleans()),
            )
        elif kind in ("max", "mean"):
            size = draw_value(st.sampled_from([1, 2, 3, (2, 1), (1, 3)]))
            step = draw_value(st.sampled_from([None, 1, 2, (1, 3)]))
            layer = nn.MaxPool2d(size, step) if kind == "max" else nn.AvgPool2d(size)
        else:
            layer = _activation(draw_value) if kind == "activation" else nn.Identity()
        try:
            _, channels, *sides = layer(torch.zeros(1, channels, height, width)).shape
        except RuntimeError:
            continue  # a window larger than its image
        height, width = sides
        layers.append(layer)
    inside = whole(0, len(layers))  # this many layers form an inner Sequential
    layers = [nn.Sequential(*layers[:inside]), *layers[inside:], nn.Flatten()]
    return nn.Sequential(*layers, *_vectors(draw_value, channels * height * width)).double(), shape


@st.composite
def chains_of_vectors(draw_value):
    """A chain without Flatten, on vectors."""
    width = draw_value(st.integers(1, 6))
    return nn.Sequential(*_vectors(draw_value, width)).double(), (width,)


def _vectors(draw_value, width):
    """Linear layers and activations."""
    layers = []
    for _ in range(draw_value(st.integers(0, 2))):
        if draw_value(st.booleans()):
            layers.append(_activation(draw_value))
        outputs = draw_value(st.integers(1, 5))
        layers.append(nn.Sequential(nn.Linear(width, outputs, bias=draw_value(st.booleans()))))
        width = outputs
    return [*layers, nn.Linear(width, CLASSES)]


def _activation(draw_value):
    return draw_value(st.sampled_from([nn.ReLU, nn.Sigmoid, nn.Tanh]))()


@settings(max_examples=150)
@given(
    st.one_of(chains(), chains_of_vectors()),
    st.sampled_from([draw, whole_numbers]),
    st.integers(1, 3),
)
def test_any_chain_has_the_gradients_of_autograd(chain, inputs, batch_size):
    module, shape = chain
    task = task_of(module, shape, inputs=inputs, batch_size=batch_size)
    generator = torch.Generator().manual_seed(3)
    theta = torch.randn(CLIENTS, task.parameters, dtype=torch.float64, generator=generator)
    assert_same(task, theta)


def test_a_layer_may_occur_twice():
    activation = nn.Tanh()
    chain = nn.Sequential(
        nn.Linear(3, 5), activation, nn.Linear(5, 5), activation, nn.Linear(5, CLASSES), activation
    )
    assert_same(task_of(chain.double(), (3,)))


def test_gradients_go_where_they_belong_and_nowhere_else():
    """Rows are parts of a wider tensor, as those of some clients among all are."""
    task = task_of(module_of(MODELS["cnn2"]), IMAGE)
    theta = draw(CLIENTS, task.parameters, seed=7)
    arrays = tuple(
        torch.stack(column) for column in zip(*map(task.parts.of, range(CLIENTS)), strict=True)
    )
    held = torch.full((CLIENTS + 2, task.parameters), 7.0, dtype=torch.float64)
    before = theta.clone(), *(array.clone() for array in arrays)
    write_stacked(task.loss, theta, arrays, held[1:-1])
    torch.testing.assert_close(held[1:-1], looped(task.loss, theta, arrays), rtol=1e-10, atol=1e-12)
    assert bool((held[[0, -1]] == 7).all())
    assert all(torch.equal(*pair) for pair in zip((theta, *arrays), before, strict=True))


def parametrized():
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(3, CLASSES)))


def frozen():
    chain = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, CLASSES))
    chain[0].bias.requires_grad_(False)
    return chain


def shared():
    chain = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    chain[2].weight = chain[0].weight
    return chain


def twice():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Skipping(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Circular(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(2 * x, weight, bias)


def replaced():
    chain = nn.Sequential(nn.Linear(4, 4))
    chain[0].forward = partial(_twice_the_output, chain[0])
    return chain


def _twice_the_output(layer, x):
    return 2 * functional.linear(x, layer.weight, layer.bias)


def imaged(*layers):
    """Layers on images 2×6×6, then classes."""

    def make():
        inside = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            width = inside(torch.zeros(1, 2, 6, 6)).shape[1]
        return nn.Sequential(inside, nn.Linear(width, CLASSES))

    return make


class OtherCall(nn.Sequential):
    def __call__(self, x):
        return 2 * super().__call__(x)


class BiasFirst(nn.Linear):
    def __init__(self):
        super().__init__(6, 4)
        weight = self.weight
        del self.weight
        self.weight = weight


VECTOR, FOUR, PICTURE = (3,), (4,), (2, 6, 6)
RESEMBLING = {
    "parametrized": (parametrized, VECTOR),
    "frozen": (frozen, VECTOR),
    "shared": (shared, FOUR),
    "the same layer twice": (twice, FOUR),
    "another forward": (lambda: nn.Sequential(Doubled(3, CLASSES)), VECTOR),
    "a chain with another forward": (lambda: Skipping(nn.Linear(4, 4)), FOUR),
    "a forward of its own": (replaced, FOUR),
    "another convolution": (imaged(Circular(2, 3, 3)), PICTURE),
    "groups": (imaged(nn.Conv2d(2, 4, 3, groups=2)), PICTURE),
    "named padding": (imaged(nn.Conv2d(2, 4, 3, padding="same")), PICTURE),
    "padding that reflects": (
        imaged(nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect")),
        PICTURE,
    ),
    "overlapping means": (imaged(nn.AvgPool2d(3, stride=2)), PICTURE),
    "padded pools": (imaged(nn.MaxPool2d(2, padding=1)), PICTURE),
    "pools rounded up": (imaged(nn.AvgPool2d(4, ceil_mode=True)), PICTURE),
    "means by another divisor": (imaged(nn.AvgPool2d(2, divisor_override=3)), PICTURE),
    "group norm": (imaged(nn.GroupNorm(1, 2)), PICTURE),
    "batch norm": (imaged(nn.BatchNorm2d(2, track_running_stats=False)), PICTURE),
    "a ResNet": (
        lambda: models.build("resnet18-gn", (2, 8, 8), CLASSES, width=2, groups=2),
        PICTURE,
    ),
    "another activation": (imaged(nn.GELU()), PICTURE),
    "flattening from elsewhere": (
        lambda: nn.Sequential(nn.Flatten(-3), nn.Linear(72, CLASSES)),
        PICTURE,
    ),
    "linear on matrices": (lambda: nn.Sequential(nn.Linear(3, 3), nn.Flatten()), (2, 3)),
    "images as output": (lambda: nn.Sequential(nn.Conv2d(2, CLASSES, 6)), PICTURE),
    "another call": (lambda: OtherCall(nn.Linear(6, CLASSES)), (6,)),
    "another order": (BiasFirst, (6,)),
}


@pytest.mark.parametrize("name", RESEMBLING)
def test_what_only_resembles_a_chain_has_the_gradients_of_autograd(name):
    make, shape = RESEMBLING[name]
    loss = functional.cross_entropy
    if name in ("images as output", "linear on matrices"):
        loss = lambda output, y: output.flatten(1).sin().mean() + 0 * y.sum()  # noqa: E731
    assert_same(task_of(module_of(make), shape, loss=loss))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_gradients_that_are_not_finite_stay_so(module, value):
    """Gradients that autograd makes NaN are NaN; those of other clients do not change.

    In a pooling window with a NaN, autograd gives the gradient to the NaN alone, our layers give it
    to the whole window. The gradient is NaN there in both cases.
    """
    task = task_of(module, IMAGE)
    # After the check of the task.
    first, last = task.parts.offsets[1:3].tolist()
    task.parts.arrays[0][first:last, ..., 0, 0] = value
    ours, plain = both(task)
    assert bool(plain[1].isnan().any())
    assert torch.equal(ours.isfinite().all(1), plain.isfinite().all(1))
    torch.testing.assert_close(ours[[0, 2]], plain[[0, 2]], rtol=1e-10, atol=1e-12)
    assert not bool((plain.isnan() & ~ours.isnan()).any())


@pytest.mark.parametrize("way", ["stacked", "looped"])
def test_a_label_beyond_the_classes_is_refused_in_every_way(way):
    x, y = torch.rand(3, 8, 6), torch.zeros(3, 8, dtype=torch.int64)
    task = Task(nn.Linear(6, 4), list(zip(x, y, strict=True)))
    # After the check of the task.
    task.parts[2][1][5] = 4
    hosted = HostedObjective(task, range(3), task.loader(torch.arange(3), 0, "cpu"), way, 0, "cpu")
    with pytest.raises((IndexError, RuntimeError), match="bounds"):
        hosted.grad(hosted.theta0(), 0)
