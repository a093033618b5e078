"""Layers without weights that act on each number, or on the shape alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pointwise:
    """An activation whose derivative is known from its output."""

    function: Callable[[Tensor], Tensor]
    backpropagate: Callable[
        [Tensor, Tensor], Tensor
    ]  # (gradient of the output, output) → of the input
    width: int = 0

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps the output."""
        y = self.function(x)
        return y, y

    def backward(
        self, weights: Tensor, kept: Tensor, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """The chain rule."""
        return self.backpropagate(dy, kept) if further else None


RELU = Pointwise(torch.relu, lambda dy, y: torch.ops.aten.threshold_backward(dy, y, 0))
SIGMOID = Pointwise(torch.sigmoid, lambda dy, y: torch.ops.aten.sigmoid_backward(dy, y))
TANH = Pointwise(torch.tanh, lambda dy, y: torch.ops.aten.tanh_backward(dy, y))


@dataclass(frozen=True)
class Flatten:
    """Images [k, C, H, W, B] as vectors [k, C·H·W, B]; vectors stay as they are."""

    width: int = 0

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, torch.Size]:
        """Keeps the shape."""
        return x.flatten(1, -2), x.shape

    def backward(
        self, weights: Tensor, kept: torch.Size, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """The shape as it was."""
        return dy.view(kept) if further else None
