"""Products of weights that differ from client to client, and the linear layer, which is no more than that."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Linear:
    """y = Wx + b on vectors [k, D, B]."""

    inputs: int
    outputs: int
    bias: bool

    @property
    def width(self) -> int:
        """W and b."""
        return self.outputs * (self.inputs + self.bias)

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps the input."""
        w = matrix(weights, self.outputs, self.inputs)
        y = (
            torch.baddbmm(weights[:, self.width - self.outputs :, None], w, x)
            if self.bias
            else w @ x
        )
        return y, x

    def backward(
        self, weights: Tensor, kept: Tensor, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """∂W = dy xᵀ, ∂b = Σ dy, dx = Wᵀ dy."""
        torch.bmm(dy, kept.mT, out=matrix(gradient, self.outputs, self.inputs))
        if self.bias:
            torch.sum(dy, 2, out=gradient[:, self.width - self.outputs :])
        return matrix(weights, self.outputs, self.inputs).mT @ dy if further else None


def matrix(weights: Tensor, outputs: int, inputs: int) -> Tensor:
    """The matrices [k, outputs, inputs] at the beginning of rows of weights."""
    return weights[:, : outputs * inputs].view(len(weights), outputs, inputs)
