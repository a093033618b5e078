"""The protocol of a layer, linear layers, and layers that act on each number or the shape alone.

Layers make the forward and backward passes of k clients with different weights. The batch is the
last dimension everywhere: images [k, C, H, W, B] and vectors [k, D, B]. So every product is
"weights times columns" with long rows, windows of an image are contiguous runs of W·B numbers, and
nothing is transposed between layers. Layers write the gradients of their weights directly into the
rows of all clients, without an autograd tape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class Layer(Protocol):
    """One layer of a network."""

    @property
    def width(self) -> int:
        """Number of weights of one client."""
        ...

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        """The output for `weights` [k, width], and what `backward` needs."""
        ...

    def backward(
        self, weights: Tensor, saved: Any, dy: Tensor, gradient: Tensor, needs_dx: bool
    ) -> Tensor | None:
        """Write the gradient of the weights and return that of the input.

        Args:
            weights: As in `forward`.
            saved: What `forward` returned.
            dy: Gradient of the output. The layer may overwrite it.
            gradient: Where the gradient of the weights goes, [k, width].
            needs_dx: Whether the gradient of the input is needed; if not, returns None.
        """
        ...


class WeightlessLayer:
    """A layer without weights, whose backward pass is the function `input_gradient`."""

    width = 0

    def input_gradient(self, saved: Any, dy: Tensor) -> Tensor:
        raise NotImplementedError

    def backward(
        self, weights: Tensor, saved: Any, dy: Tensor, gradient: Tensor, needs_dx: bool
    ) -> Tensor | None:
        return self.input_gradient(saved, dy) if needs_dx else None


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
class Pointwise(WeightlessLayer):
    """An activation whose derivative is a function of its output; saves the output."""

    function: Callable[[Tensor], Tensor]
    backpropagate: Callable[[Tensor, Tensor], Tensor]  # (dy, y) → dx

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.function(x)
        return y, y

    def input_gradient(self, saved: Tensor, dy: Tensor) -> Tensor:
        return self.backpropagate(dy, saved)


RELU = Pointwise(torch.relu, lambda dy, y: torch.ops.aten.threshold_backward(dy, y, 0))
SIGMOID = Pointwise(torch.sigmoid, lambda dy, y: torch.ops.aten.sigmoid_backward(dy, y))
TANH = Pointwise(torch.tanh, lambda dy, y: torch.ops.aten.tanh_backward(dy, y))


class Flatten(WeightlessLayer):
    """Images [k, C, H, W, B] as vectors [k, C·H·W, B]; vectors do not change. Saves the shape."""

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, torch.Size]:
        return x.flatten(1, -2), x.shape

    def input_gradient(self, saved: torch.Size, dy: Tensor) -> Tensor:
        return dy.view(saved)
