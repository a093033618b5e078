"""Modules of every kind, for gradients of single samples."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

D, T = 8, 5


class Called(nn.Module):
    """A module of some parts and a forward of its own."""

    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.called = forward

    def forward(self, x):
        return self.called(self, x)


def weights(*shape):
    return nn.Parameter(0.5 * torch.randn(*shape))


class Attention(nn.Module):
    """Self-attention of BERT: a mask of padding, heads by views, GELU, residual norms."""

    def __init__(self, heads=2, dropout=False):
        super().__init__()
        self.words, self.places = nn.Embedding(11, D, padding_idx=0), nn.Embedding(T, D)
        self.query, self.key, self.value = (nn.Linear(D, D) for _ in range(3))
        self.out, self.norm = nn.Linear(D, D), nn.LayerNorm(D)
        self.up, self.down, self.last = nn.Linear(D, 2 * D), nn.Linear(2 * D, D), nn.LayerNorm(D)
        self.head, self.heads = nn.Linear(D, 3), heads
        self.register_buffer("ids", torch.arange(T)[None])

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, tokens):
        mask = (tokens != 0)[:, None, None, :]
        x = self.words(tokens) + self.places(self.ids[:, : tokens.shape[1]])
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm(x + self.out(seen.transpose(1, 2).reshape(x.shape)))
        x = self.last(x + self.down(functional.gelu(self.up(x))))
        return self.head(x[:, 0])


def class_token(self, x):
    x = torch.cat((self.token.expand(len(x), -1, -1), self.linear(x)), 1) + self.places
    return (self.gain * functional.prelu(x, self.slope))[:, 0]


def conv1d_of_transformers(self, x):
    flat = torch.addmm(self.bias, x.view(-1, D), self.weight)
    return flat.view(*x.shape[:-1], -1).sum(1)


def standardised(self, x):
    w = self.weight
    w = self.gain * (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-3)
    return functional.conv2d(x, w, padding=1).flatten(1)[:, :6]


def tied(self, tokens):
    x = self.table(tokens)
    return functional.linear(self.inner(x), self.table.weight)[:, -1]


def adapted(self, x):
    down = functional.linear(functional.linear(x, self.a), self.b)
    return (functional.linear(x, self.frozen) + 2 * down).mean(1)


def merged(self, x):
    return functional.linear(x, self.frozen + self.b @ self.a).tanh().mean(1)


def sequence_first(self, x):
    return self.encoder(x.transpose(0, 1)).mean(0)


def several(self, x):
    output, (h, c) = self.cell(x)
    return torch.cat((output[:, -1], h[-1], c[-1]), 1)


def masked_attention(self, x):
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    padding = torch.tensor([[False] * (T - 1) + [True]]).expand(len(x), -1)
    seen, weights = self.attention(x, x, x, key_padding_mask=padding, attn_mask=hidden)
    return seen.mean(1) + weights.sum((1, 2))[:, None]


VECTOR, TOKENS, WORDS = (D,), (T, D), "words"
IMAGE, SIGNAL, VOLUME = (4, 7, 6), (4, 9), (2, 4, 5, 4)


def layers(*parts):
    return lambda: nn.Sequential(*(part() for part in parts), nn.Flatten())


CASES = {
    "linear": (layers(lambda: nn.Linear(D, 3)), VECTOR),
    "no bias, deeper": (
        layers(lambda: nn.Linear(D, 16, bias=False), nn.Tanh, lambda: nn.Linear(16, 3)), VECTOR,
    ),
    "tokens": (layers(lambda: nn.Linear(D, 16), nn.GELU, lambda: nn.Linear(16, 3)), TOKENS),
    "bilinear": (lambda: Called(lambda s, x: s.b(x, x.flip(1)), b=nn.Bilinear(D, D, 3)), VECTOR),
    "Conv1D of transformers": (
        lambda: Called(conv1d_of_transformers, weight=weights(D, 6), bias=weights(6)), TOKENS,
    ),
    "matrix on the right": (lambda: Called(lambda s, x: (x @ s.w).sum(1), w=weights(D, 4)), TOKENS),
    "transpose": (lambda: Called(lambda s, x: (x @ s.w.t()).sum(1), w=weights(4, D)), TOKENS),
    "other ways to transpose": (
        lambda: Called(
            lambda s, x: (x @ s.w.transpose(0, 1) + x @ s.w.mT + x @ s.w.permute(1, 0)).sum(1),
            w=weights(4, D),
        ), TOKENS,
    ),
    "matrix on the left": (
        lambda: Called(lambda s, x: (s.w @ x).flatten(1), w=weights(4, T)), TOKENS,
    ),
    "complex": (
        lambda: Called(lambda s, x: torch.view_as_real(
            torch.complex(x, x.cos()) @ torch.view_as_complex(s.w)).flatten(1), w=weights(D, 3, 2)),
        TOKENS,
    ),
    "einsum": (
        lambda: Called(lambda s, x: torch.einsum("btd,hde->bhe", x, s.w).flatten(1),
                       w=weights(2, D, 3)), TOKENS,
    ),
    "conv1d": (layers(lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2)), SIGNAL),
    "conv1d same": (layers(lambda: nn.Conv1d(4, 6, 4, padding="same")), SIGNAL),
    "conv2d": (layers(lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 3), padding=(0, 1))), IMAGE),
    "conv2d groups": (layers(lambda: nn.Conv2d(4, 6, 3, groups=2, dilation=2)), IMAGE),
    "depthwise": (
        layers(lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), nn.ReLU,
               lambda: nn.Conv2d(8, 3, 1)), IMAGE,
    ),
    "reflected": (
        layers(lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect")), IMAGE,
    ),
    "conv3d": (layers(lambda: nn.Conv3d(2, 3, (2, 3, 2), stride=(1, 2, 1))), VOLUME),
    "transposed 1d": (
        layers(lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1)), SIGNAL,
    ),
    "transposed 2d": (
        layers(lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, dilation=2)), IMAGE,
    ),
    "transposed 3d": (layers(lambda: nn.ConvTranspose3d(2, 3, 2, stride=2)), VOLUME),
    "images of a video": (
        lambda: Called(lambda s, x: s.c(x.flatten(0, 1)).unflatten(0, (len(x), -1)).flatten(1),
                       c=nn.Conv2d(4, 2, 3)), (3, 4, 7, 6),
    ),
    "norms": (
        layers(lambda: nn.Conv2d(4, 6, 3), lambda: nn.GroupNorm(2, 6), nn.ReLU,
               lambda: nn.Conv2d(6, 4, 3), lambda: nn.InstanceNorm2d(4, affine=True)), IMAGE,
    ),
    "small maps": (
        layers(lambda: nn.Conv2d(4, 16, 3, stride=2), lambda: nn.GroupNorm(4, 16), nn.ReLU,
               lambda: nn.Conv2d(16, 32, 2, bias=False), lambda: nn.GroupNorm(4, 32)), IMAGE,
    ),
    "in place": (
        layers(lambda: nn.Conv2d(4, 6, 3), lambda: nn.ReLU(inplace=True),
               lambda: nn.Conv2d(6, 4, 3)), IMAGE,
    ),
    "layer norms": (
        layers(lambda: nn.LayerNorm((T, D)), lambda: nn.Linear(D, D), lambda: nn.RMSNorm(D)),
        TOKENS,
    ),
    "embedding": (
        layers(lambda: nn.Embedding(11, D, padding_idx=0), lambda: nn.Linear(D, 3)), WORDS,
    ),
    "bag": (lambda: Called(lambda s, x: s.b(x), b=nn.EmbeddingBag(11, D)), WORDS),
    "class token, positions, bare scale, PReLU": (
        lambda: Called(class_token, token=weights(1, 1, D), places=weights(T + 1, D),
                       gain=weights(()), slope=weights(1), linear=nn.Linear(D, D)), TOKENS,
    ),
    "added in place": (
        lambda: Called(lambda s, x: (s.l(x).add_(s.p)).flatten(1), l=nn.Linear(D, 3),
                       p=weights(T, 3)), TOKENS,
    ),
    "layer used twice": (
        lambda: Called(lambda s, x: s.l(s.l(x).tanh()), l=nn.Linear(D, D)), VECTOR,
    ),
    "tied": (
        lambda: Called(tied, table=nn.Embedding(11, D), inner=nn.Linear(D, D)), WORDS,
    ),
    "weight norm": (
        layers(lambda: parametrizations.weight_norm(nn.Linear(D, 4))), VECTOR,
    ),
    "orthogonal": (
        layers(lambda: parametrizations.orthogonal(nn.Linear(D, 4), use_trivialization=False)),
        VECTOR,
    ),
    "standardised": (
        lambda: Called(standardised, weight=weights(4, 4, 3, 3), gain=weights(4, 1, 1, 1)), IMAGE,
    ),
    "adapters": (
        lambda: Called(adapted, frozen=torch.randn(6, D), a=weights(2, D), b=weights(6, 2)), TOKENS,
    ),
    "merged adapters": (
        lambda: Called(merged, frozen=torch.randn(6, D), a=weights(2, D), b=weights(6, 2)), TOKENS,
    ),
    "BERT": (Attention, WORDS),
    "multi-head attention": (
        lambda: Called(masked_attention, attention=nn.MultiheadAttention(D, 2, batch_first=True)),
        TOKENS,
    ),
    "encoder": (
        lambda: Called(lambda s, x: s.e(x).mean(1), e=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(D, 2, 16, 0.0, batch_first=True), 2)), TOKENS,
    ),
    "encoder, sequence first": (
        lambda: Called(sequence_first, encoder=nn.TransformerEncoderLayer(D, 2, 16, 0.0)), TOKENS,
    ),
    "decoder": (
        lambda: Called(lambda s, x: s.d(x, x.flip(1)).mean(1),
                       d=nn.TransformerDecoderLayer(D, 2, 16, 0.0, batch_first=True)), TOKENS,
    ),
    "LSTM": (
        lambda: Called(several, cell=nn.LSTM(D, 6, num_layers=2, batch_first=True)), TOKENS,
    ),
    "LSTM, both ways": (
        lambda: Called(lambda s, x: s.cell(x)[0].mean(1),
                       cell=nn.LSTM(D, 6, bidirectional=True, batch_first=True)), TOKENS,
    ),
    "GRU": (
        lambda: Called(lambda s, x: s.cell(x)[0].mean(1), cell=nn.GRU(D, 6, batch_first=True)),
        TOKENS,
    ),
    "LSTM cell": (
        lambda: Called(lambda s, x: s.cell(x[:, 0], s.cell(x[:, 1]))[0], cell=nn.LSTMCell(D, 6)),
        TOKENS,
    ),
}  # fmt: skip


def inputs(shape, count, dtype=torch.float32, seed=1):
    generator = torch.Generator().manual_seed(seed)
    if shape == WORDS:
        return torch.randint(0, 11, (count, T), generator=generator)
    return torch.randn(count, *shape, generator=generator).to(dtype)


def made(name, dtype=torch.float32):
    """A module of a case, with weights that are not all zero, and the shape of its inputs."""
    make, shape = CASES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().to(dtype)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return module, shape
