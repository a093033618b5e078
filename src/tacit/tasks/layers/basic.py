"""Linear layers, and layers without weights that act on each number or on the shape alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def matrix(weights: Tensor, outputs: int, inputs: int) -> Tensor:
    """The matrices [k, outputs, inputs] at the beginning of rows of weights."""
    return weights[:, : outputs * inputs].view(len(weights), outputs, inputs)


@dataclass(frozen=True)
class Linear:
    """y = Wx + b on vectors [k, D, B]; saves the input."""

    inputs: int
    outputs: int
    bias: bool

    @property
    def width(self) -> int:
        return self.outputs * (self.inputs + self.bias)

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        w = matrix(weights, self.outputs, self.inputs)
        if self.bias:
            return torch.baddbmm(weights[:, self.width - self.outputs :, None], w, x), x
        return w @ x, x

    def backward(
        self, weights: Tensor, saved: Tensor, dy: Tensor, gradient: Tensor, needs_dx: bool
    ) -> Tensor | None:
        # ∂W = dy xᵀ, ∂b = Σ dy, dx = Wᵀ dy
        torch.bmm(dy, saved.mT, out=matrix(gradient, self.outputs, self.inputs))
        if self.bias:
            torch.sum(dy, 2, out=gradient[:, self.width - self.outputs :])
        return matrix(weights, self.outputs, self.inputs).mT @ dy if needs_dx else None


@dataclass(frozen=True)
class Pointwise:
    """An activation whose derivative is a function of its output; saves the output."""

    function: Callable[[Tensor], Tensor]
    backpropagate: Callable[[Tensor, Tensor], Tensor]  # (dy, y) → dx
    width: int = 0

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.function(x)
        return y, y

    def backward(
        self, weights: Tensor, saved: Tensor, dy: Tensor, gradient: Tensor, needs_dx: bool
    ) -> Tensor | None:
        return self.backpropagate(dy, saved) if needs_dx else None


RELU = Pointwise(torch.relu, lambda dy, y: torch.ops.aten.threshold_backward(dy, y, 0))
SIGMOID = Pointwise(torch.sigmoid, lambda dy, y: torch.ops.aten.sigmoid_backward(dy, y))
TANH = Pointwise(torch.tanh, lambda dy, y: torch.ops.aten.tanh_backward(dy, y))


@dataclass(frozen=True)
class Flatten:
    """Images [k, C, H, W, B] as vectors [k, C·H·W, B]; vectors do not change. Saves the shape."""

    width: int = 0

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, torch.Size]:
        return x.flatten(1, -2), x.shape

    def backward(
        self, weights: Tensor, saved: torch.Size, dy: Tensor, gradient: Tensor, needs_dx: bool
    ) -> Tensor | None:
        return dy.view(saved) if needs_dx else None
