"""A transformer encoder that classifies sequences of tokens or of vectors, and images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.checks import check_count, check_number
from tacit.core.errors import Misuse


def transformer(
    shape: Sequence[int],
    classes: int,
    *,
    vocabulary: int | None = None,
    layers: int = 4,
    dim: int = 256,
    heads: int = 4,
    feedforward: int = 1024,
    patch: int = 4,
    dropout: float = 0.0,
) -> nn.Module:
    """Transformer encoder: pre-norm layers, learned positions, mean over the sequence, linear.

    Inputs are integers [T] below `vocabulary`, vectors [T, features], or images [C, H, W] cut into
    squares of `patch` pixels. With `dropout`, a share of each block's outputs is set to zero in
    training. It has 3,244,042 parameters for 64 tokens of 256 and ten classes.
    """
    for name, value in (("layers", layers), ("heads", heads), ("feedforward", feedforward)):
        check_count(name, value)
    check_count("dim", dim)
    check_count("patch", patch)
    check_number("dropout", dropout, at_least=0, below=1)
    if dim % heads:
        raise Misuse(
            f"dim is {dim}, which is not a multiple of heads = {heads}.",
            "Choose heads that divide dim, such as heads = 4.",
        )
    embedding, length = _embedding(shape, dim, vocabulary, patch)
    blocks = [Block(dim, heads, feedforward, dropout) for _ in range(layers)]
    return Transformer(embedding, Positions(length, dim), blocks, nn.Linear(dim, classes))


def _embedding(
    shape: Sequence[int], dim: int, vocabulary: int | None, patch: int
) -> tuple[nn.Module, int]:
    """The layer that maps inputs of `shape` to vectors [B, T, dim], and T."""
    if len(shape) == 1 and vocabulary is not None:
        check_count("vocabulary", vocabulary)
        return nn.Embedding(vocabulary, dim), shape[0]
    if len(shape) == 2 and vocabulary is None:
        return nn.Linear(shape[1], dim), shape[0]
    if len(shape) == 3 and vocabulary is None and min(shape[1:]) >= patch:
        channels, height, width = shape
        return Patches(channels, dim, patch), (height // patch) * (width // patch)
    raise Misuse(
        f"Model 'transformer' got inputs of shape {tuple(shape)} and vocabulary = {vocabulary}.",
        "It needs tokens [T] with vocabulary = …, vectors [T, features], or images [C, H, W] of at "
        'least one patch; use "mlp" for tables.',
    )


class Transformer(nn.Module):
    """Inputs → vectors [B, T, dim] → encoder → their mean over T → logits [B, classes]."""

    def __init__(
        self, embedding: nn.Module, positions: Positions, blocks: list[Block], linear: nn.Linear
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(linear.in_features)
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.positions(self.embedding(x)))
        logits: Tensor = self.linear(self.norm(x).mean(1))
        return logits


class Patches(nn.Module):
    """Images [B, C, H, W] → one vector per square patch [B, T, dim]."""

    def __init__(self, channels: int, dim: int, patch: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, dim, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        vectors: Tensor = self.conv(x)
        return vectors.flatten(2).transpose(1, 2)


class Positions(nn.Module):
    """Adds a learned vector to each place of a sequence."""

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


class Block(nn.Module):
    """Attention and a feedforward network, each after a LayerNorm and added to its input."""

    def __init__(self, dim: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.linear1 = nn.Linear(dim, feedforward)
        self.linear2 = nn.Linear(feedforward, dim)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        y = self.linear2(functional.gelu(self.linear1(self.norm2(x))))
        out: Tensor = x + self.dropout(y)
        return out


class SelfAttention(nn.Module):
    """Multi-head self-attention of sequences [B, T, dim]."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        # Each [B, heads, T, dim/heads].
        q, k, v = (
            piece.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for piece in self.qkv(x).chunk(3, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return out
