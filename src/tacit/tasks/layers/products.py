"""Products of weights that differ from client to client, and the linear layer, which is no more than that."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_PRODUCTS = 512  # that a GPU should have to do at the same time
LONG = 2048  # columns, from which on a sum over them is worth cutting


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
        y = torch.baddbmm(weights[:, self.width - self.outputs :, None], w, x) if self.bias else w @ x
        return y, x

    def backward(
        self, weights: Tensor, kept: Tensor, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """∂W = dy xᵀ, ∂b = Σ dy, dx = Wᵀ dy."""
        write_product(matrix(gradient, self.outputs, self.inputs), dy, kept)
        if self.bias:
            gradient[:, self.width - self.outputs :] = dy.sum(2)
        return matrix(weights, self.outputs, self.inputs).mT @ dy if further else None


def matrix(weights: Tensor, outputs: int, inputs: int) -> Tensor:
    """The matrices [k, outputs, inputs] at the beginning of rows of weights."""
    return weights[:, : outputs * inputs].view(len(weights), outputs, inputs)


def write_product(out: Tensor, dy: Tensor, x: Tensor) -> None:
    """Write dy xᵀ [k, outputs, inputs], sums over all columns."""
    k, outputs, columns = dy.shape
    pieces = math.gcd(columns, LEAST_PRODUCTS // k) if dy.is_cuda and columns >= LONG else 1
    if pieces == 1:
        torch.bmm(dy, x.mT, out=out)
        return
    # A GPU gives each product to few of its processors: for few clients, sums are cut into pieces that all can take.
    cut = [rows.view(k, -1, pieces, columns // pieces).transpose(1, 2).flatten(0, 1) for rows in (dy, x)]
    out.copy_((cut[0] @ cut[1].mT).view(k, pieces, outputs, -1).sum(1))
