"""A small residual network for inputs of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn


class ResidualMLP(nn.Module):
    """An input layer, one residual block and an output layer."""

    def __init__(self, inputs: int, classes: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.block = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1)).tanh()
        out: Tensor = self.last(hidden + self.block(hidden))
        return out


def residual_mlp(shape: Sequence[int], classes: int, *, width: int = 32) -> nn.Module:
    """Make one for inputs of `shape` (without the batch) and `classes` outputs."""
    return ResidualMLP(math.prod(shape), classes, width)
