"""Small models of every kind, with a batch for each of some clients."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

import tacit
from tacit.gradients.passes import write_one, write_stacked

BATCH, CLASSES, LENGTH, WIDTH, WORDS = 4, 3, 5, 6, 7


@dataclass
class Case:
    """A loss, and the parameters and arrays of all clients, [n, ...] each."""

    loss: Callable
    parameters: list
    arrays: list


def gradients_together(case):
    out = [torch.full_like(rows, torch.nan) for rows in case.parameters]
    write_stacked(case.loss, case.parameters, case.arrays, out)
    return out


def gradients_apart(case):
    out = [torch.full_like(rows, torch.nan) for rows in case.parameters]
    for client in range(len(out[0])):
        parts = (case.parameters, case.arrays, out)
        write_one(case.loss, *([rows[client] for rows in part] for part in parts))
    return out


def largest_error(found, expected):
    """The largest error of the gradient by a parameter, as a share of the largest gradient."""
    largest = max(float(rows.norm()) for rows in expected)
    assert largest > 0
    pairs = zip(found, expected, strict=True)
    return max(float((one - other).norm()) for one, other in pairs) / largest


def case_of(make, shape, dtype, clients, words=0, criterion=functional.cross_entropy):
    """A module, and random inputs [clients, BATCH, *shape]: numbers, or words of a vocabulary."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(clients)
        # For layers that find their sizes when they are called first.
        module = make()
        module(torch.randint(words, (2, *shape)) if words else torch.randn(2, *shape))
        module = module.to(dtype)
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        parameters = [
            torch.stack([p.detach() + 0.1 * torch.randn_like(p) for _ in range(clients)])
            for p in named.values()
        ]
        x = torch.randn(clients, BATCH, *shape, dtype=dtype)
        x = torch.randint(words, x.shape) if words else x
        y = torch.randint(CLASSES, (clients, BATCH))

    def loss(models, arrays):
        *inputs, targets = arrays
        held = dict(zip(named, models, strict=True))
        return criterion(functional_call(module, held, tuple(inputs)), targets)

    return Case(loss, parameters, [x, y])


class First(nn.Module):
    """The mean over the sequence of the first result of a layer, and a linear layer."""

    def __init__(self, layer, width, **options):
        super().__init__()
        self.layer, self.last, self.options = layer, nn.Linear(width, CLASSES), options

    def forward(self, x):
        y = self.layer(x, **self.options)
        return self.last((y[0] if isinstance(y, tuple) else y).mean(1))


class SelfAttention(nn.MultiheadAttention):
    def forward(self, x, **options):
        return super().forward(x, x, x, **options)


class Unrolled(nn.Module):
    """A recurrent cell, called step by step."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.last = cell, nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.last(state[0] if isinstance(state, tuple) else state)


class Odd(nn.Module):
    """Bare and tied parameters, centring, in-place steps, buffers of unlucky sizes."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(LENGTH + 1, WIDTH))
        self.scale = nn.Parameter(torch.randn(()))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.activation, self.last = nn.PReLU(WIDTH), nn.Linear(WIDTH, CLASSES)
        self.register_buffer("of_steps", torch.randn(2 * BATCH, WIDTH))
        self.register_buffer("of_three", torch.randn(3, WIDTH))
        self.register_buffer("order", torch.tensor([2, 0, 1, 4, 3, 5]))

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        x = x[:, self.order] + self.scale * self.of_steps[: LENGTH + 1]
        h = self.normed(x - x.mean(0))
        h = self.activation(h.transpose(1, 2)).transpose(1, 2)
        h += 1
        h = h.clone()
        h.mul_(self.of_three[0])
        h[:, 0] = h[:, 1] * 2
        later = h[:, 2:]
        later.add_(h[:, :1].detach())
        highest, _ = h.max(1)
        y = self.last(highest)
        return y @ self.last.weight @ self.last.weight.T


class Looked(nn.Module):
    """A constant table that is looked up by the data, and an einsum."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(WORDS, WIDTH))
        self.weight, self.last = nn.Parameter(torch.randn(2, WIDTH, 3)), nn.Linear(6, CLASSES)

    def forward(self, x):
        h = torch.einsum("btd,hde->bthe", self.table[x], self.weight)
        h = functional.normalize(h.sum(1).flatten(1), dim=-1)
        shift, scale = torch.var_mean(h, 1, keepdim=True)
        return self.last(torch.where(h > 0, h - shift, scale))


class Scaled(nn.Module):
    """Convolutions that are first used where nothing is recorded, to find their scale."""

    def __init__(self):
        super().__init__()
        self.filters, self.last = nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, CLASSES)

    def forward(self, x):
        y = self.filters(x)
        with torch.no_grad():
            largest = y.abs().amax(axis=(1, 2, 3), keepdim=True)
        return self.last((y / largest).flatten(1))


class SlicedBias(nn.Module):
    """A convolution whose bias is every other number of a parameter, and pooling."""

    def __init__(self):
        super().__init__()
        self.filters, self.last = nn.Conv2d(1, 3, 3, bias=False), nn.Linear(3 * 9, CLASSES)
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, x):
        y = functional.conv2d(x, self.filters.weight, self.bias[::2])
        return self.last(functional.max_pool2d(y, 2).flatten(1))


class BiasColumn(nn.Module):
    """A linear layer whose bias is the last column of its matrix, then one with a sliced bias."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(5, 65))
        self.last = nn.Linear(5, CLASSES, bias=False)
        self.bias = nn.Parameter(torch.randn(2 * CLASSES))

    def forward(self, x):
        y = functional.linear(x.flatten(1)[:, :64], self.matrix[:, :-1], self.matrix[:, -1])
        return functional.linear(y.tanh(), self.last.weight, self.bias[::2])


def model(name, shape, **options):
    return lambda: tacit.models.build(name, shape, CLASSES, **options)


TRANSFORMER = {"vocabulary": WORDS, "dim": 8, "heads": 2, "feedforward": 12, "layers": 2}
IMAGE, SEQUENCE, SENTENCE = (1, 8, 8), (LENGTH, WIDTH), (LENGTH,)


def sequential(*layers):
    """The layers, with a linear one behind them."""
    return lambda: nn.Sequential(*(make() for make in layers), nn.Flatten(), nn.LazyLinear(CLASSES))


def layer(kind, *args, **options):
    return partial(kind, *args, **options)


def first(width, kind, *args, called=None, **options):
    return lambda: First(kind(*args, **options), width, **(called or {}))


MADE: dict[str, tuple] = {
    "mlp": (model("mlp", IMAGE, hidden=[6, 5]), IMAGE),
    "cnn2": (model("cnn2", (1, 28, 28)), (1, 28, 28)),
    "resnet": (model("resnet18-gn", IMAGE, width=2, groups=2), IMAGE),
    "transformer": (model("transformer", SENTENCE, **TRANSFORMER), SENTENCE, WORDS),
    "low rank": (
        lambda: tacit.models.lora(model("transformer", SENTENCE, **TRANSFORMER)(), 2),
        SENTENCE,
        WORDS,
    ),
    "lstm": (first(10, nn.LSTM, 6, 5, 2, batch_first=True, bidirectional=True), SEQUENCE),
    "projected lstm": (first(3, nn.LSTM, 6, 5, batch_first=True, proj_size=3), SEQUENCE),
    "gru": (first(5, nn.GRU, 6, 5, 2), SEQUENCE),
    "gru without biases": (first(5, nn.GRU, 6, 5, bias=False, batch_first=True), SEQUENCE),
    "rnn": (first(5, nn.RNN, 6, 5, batch_first=True), SEQUENCE),
    "rnn of relu": (first(5, nn.RNN, 6, 5, nonlinearity="relu"), SEQUENCE),
    "lstm cell": (lambda: Unrolled(nn.LSTMCell(6, WIDTH)), SEQUENCE),
    "gru cell": (lambda: Unrolled(nn.GRUCell(6, WIDTH)), SEQUENCE),
    "attention": (first(6, SelfAttention, 6, 2, batch_first=True), SEQUENCE),
    "attention without weights": (
        first(6, SelfAttention, 6, 2, batch_first=True, called={"need_weights": False}),
        SEQUENCE,
    ),
    "attention, sequence first": (first(6, SelfAttention, 6, 2), SEQUENCE),
    "attention with biases": (first(6, SelfAttention, 6, 2, add_bias_kv=True), SEQUENCE),
    "encoder layer": (
        first(6, nn.TransformerEncoderLayer, 6, 2, 8, dropout=0.0, batch_first=True),
        SEQUENCE,
    ),
    "encoder": (
        first(
            6, nn.TransformerEncoder, nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), 2,
            enable_nested_tensor=False,
        ),
        SEQUENCE,
    ),
    "batch norm": (
        sequential(
            layer(nn.Conv2d, 1, 4, 3), layer(nn.BatchNorm2d, 4, track_running_stats=False),
            nn.ReLU, layer(nn.AvgPool2d, 2),
        ),
        IMAGE,
    ),
    "batch norm without weights": (
        sequential(
            layer(nn.Linear, 6, 4),
            layer(nn.BatchNorm1d, 4, affine=False, track_running_stats=False),
        ),
        (6,),
    ),
    "instance norm": (
        sequential(
            layer(nn.Conv2d, 1, 4, 3), layer(nn.InstanceNorm2d, 4, affine=True), nn.GELU,
            layer(nn.AdaptiveAvgPool2d, 2),
        ),
        IMAGE,
    ),
    "convolutions of sequences": (
        sequential(
            layer(nn.Conv1d, 6, 4, 3, stride=2, padding=1, dilation=2, groups=2), nn.Tanh,
            layer(nn.ConvTranspose1d, 4, 4, 3, stride=2, groups=2), layer(nn.MaxPool1d, 2),
        ),
        (6, 9),
    ),
    "convolutions of volumes": (
        sequential(layer(nn.Conv3d, 2, 4, 3), layer(nn.MaxPool3d, 2)),
        (2, 6, 6, 6),
    ),
    "convolutions of images": (
        sequential(
            layer(nn.ConvTranspose2d, 1, 4, 3, stride=2, output_padding=1),
            layer(nn.ReLU, inplace=True),
            layer(nn.Conv2d, 4, 2, 3, padding="same", padding_mode="reflect"),
            layer(nn.MaxPool2d, 3, 2, padding=1),
        ),
        IMAGE,
    ),
    "pooling before ReLU in place": (
        sequential(layer(nn.Conv2d, 1, 4, 3), layer(nn.MaxPool2d, 2), layer(nn.ReLU, inplace=True)),
        IMAGE,
    ),
    "sliced bias": (SlicedBias, IMAGE),
    "bias in a column": (BiasColumn, IMAGE),
    "depthwise": (
        sequential(
            layer(nn.Conv2d, 2, 4, 3, groups=2, bias=False), layer(nn.GroupNorm, 2, 4), nn.SiLU,
            layer(nn.Conv2d, 4, 2, 1),
        ),
        (2, 6, 6),
    ),
    "embedding": (
        sequential(layer(nn.Embedding, WORDS, 6, padding_idx=0), layer(nn.RMSNorm, 6)),
        SENTENCE,
        WORDS,
    ),
    "embedding bag": (
        sequential(layer(nn.EmbeddingBag, WORDS, 6), nn.GELU, nn.Softplus),
        SENTENCE,
        WORDS,
    ),
    "layer norm": (
        sequential(layer(nn.Linear, 6, 6), layer(nn.LayerNorm, (5, 6)), layer(nn.LogSoftmax, -1)),
        SEQUENCE,
    ),
    "odd": (Odd, SEQUENCE),
    "scaled": (Scaled, IMAGE),
    "looked up": (Looked, SENTENCE, WORDS),
}  # fmt: skip


def _made(name, dtype, clients):
    make, shape, *words = MADE[name]
    return case_of(make, shape, dtype, clients, *words)


def _loss_case(function, floating, dtype, clients):
    """A linear layer with another loss."""
    draw = torch.Generator().manual_seed(clients)
    x = torch.randn(clients, BATCH, WIDTH, generator=draw, dtype=dtype)
    if floating:
        y = torch.rand(clients, BATCH, CLASSES, generator=draw, dtype=dtype)
    else:
        y = torch.randint(CLASSES, (clients, BATCH), generator=draw)
        y[:, 0] = -100
    w = torch.randn(clients, CLASSES, WIDTH, generator=draw, dtype=dtype)
    return Case(lambda models, arrays: function(arrays[0] @ models[0].T, arrays[1]), [w], [x, y])


cross_entropy, bce = functional.cross_entropy, functional.binary_cross_entropy_with_logits
LOSSES = {
    "cross-entropy, some ignored": (cross_entropy, False),
    "summed": (partial(cross_entropy, reduction="sum", label_smoothing=0.1), False),
    "smoothed": (partial(cross_entropy, label_smoothing=0.1), False),
    "of probabilities": (lambda x, y: cross_entropy(x, y / y.sum(1, keepdim=True)), True),
    "weighted": (lambda x, y: cross_entropy(x, y, torch.tensor([1, 2, 3]).to(x)), False),
    "nll": (lambda x, y: functional.nll_loss(x.log_softmax(1), y), False),
    "mse": (functional.mse_loss, True),
    "weighted mse": (
        lambda x, y: functional.mse_loss(x, y, weight=torch.tensor([1, 2, 3]).to(x).expand_as(x)),
        True,
    ),
    "huber": (partial(functional.huber_loss, delta=0.5), True),
    "bce": (bce, True),
    "weighted bce": (lambda x, y: bce(x, y, pos_weight=torch.tensor([1, 2, 3]).to(x)), True),
    "contrastive": (lambda x, y: ((x @ x.T).logsumexp(1) - (x * y).sum(1)).mean(), True),
}
CASES = {name: partial(_made, name) for name in MADE} | {
    name: partial(_loss_case, *options) for name, options in LOSSES.items()
}
