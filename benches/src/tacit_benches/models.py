"""Models of the kinds that people train, small, for the paths that gradients take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit import models

CLASSES, VOCABULARY = 4, 50


@dataclass(frozen=True)
class Kind:
    """How a model is made, and the shape of a sample; `words` of a vocabulary, else numbers."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    words: bool = False

    def samples(self, count: int) -> tuple[Tensor, Tensor]:
        """Inputs and classes, the same every time."""
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        if self.words:
            return torch.randint(VOCABULARY, (count, *self.shape), generator=generator), labels
        return torch.randn(count, *self.shape, generator=generator), labels

    def module(self) -> nn.Module:
        """The module, with the same weights every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make()


class Recurrent(nn.Module):
    """Classes from the last output of an LSTM or a GRU."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.inner, self.head = kind(16, 32, batch_first=True), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.inner(x)[0][:, -1])
        return y


class SelfAttention(nn.Module):
    """Classes from the mean of what a layer of attention sees."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.inner(x, x, x)[0].mean(1))
        return y


class Encoder(nn.Module):
    """Classes from the mean of a TransformerEncoder."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.inner = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.inner(x).mean(1))
        return y


class Block(nn.Module):
    """A layer of a transformer, normalised after (BERT) or before (GPT-2)."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.causal, self.heads = causal, 4
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def seen(self, x: Tensor, mask: Tensor | None) -> Tensor:
        shape = (*x.shape[:2], self.heads, -1)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        seen: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return seen

    def fed(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(functional.gelu(self.up(x)))
        return y

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if self.causal:
            x = x + self.seen(self.first(x), mask)
            return x + self.fed(self.second(x))
        x = self.first(x + self.seen(x, mask))
        y: Tensor = self.second(x + self.fed(x))
        return y


class Words(nn.Module):
    """BERT, with padding, or GPT-2, whose table also weighs its last output."""

    def __init__(self, width: int = 32, length: int = 16, causal: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, causal) for _ in range(2))
        self.head, self.causal = nn.Linear(width, CLASSES), causal

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        mask = None if self.causal else (tokens != 0)[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        if self.causal:
            # The words that may come next, by the table of words itself.
            x = (x @ self.words.weight.T).softmax(-1) @ self.words.weight
        y: Tensor = self.head(x.mean(1))
        return y


KINDS: dict[str, Kind] = {
    "LSTM": Kind(lambda: Recurrent(nn.LSTM), (16, 16)),
    "GRU": Kind(lambda: Recurrent(nn.GRU), (16, 16)),
    "MultiheadAttention": Kind(SelfAttention, (16, 32)),
    "TransformerEncoder": Kind(Encoder, (16, 32)),
    "CNN": Kind(lambda: models.build("cnn2", (1, 28, 28), CLASSES, filters=(8, 16)), (1, 28, 28)),
    "ResNet, GroupNorm": Kind(
        lambda: models.build("resnet18-gn", (3, 16, 16), CLASSES, width=8, groups=4), (3, 16, 16)
    ),
    "BERT": Kind(Words, (16,), words=True),
    "GPT-2": Kind(lambda: Words(causal=True), (16,), words=True),
    "BERT, LoRA": Kind(lambda: models.lora(Words(), rank=2), (16,), words=True),
}
