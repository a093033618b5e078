"""Layers that multiply: linear ones, and convolutions as products with all windows of their input."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


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
        return affine(weights, self.outputs, x), x

    def backward(
        self, weights: Tensor, kept: Tensor, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """∂W = dy xᵀ, ∂b = Σ dy, dx = Wᵀ dy."""
        write_gradient(gradient, dy, kept)
        return matrix(weights, self.outputs, self.inputs).mT @ dy if further else None


@dataclass(frozen=True)
class Convolution:
    """A convolution of images [k, C, H, W, B]."""

    inputs: int
    outputs: int
    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    bias: bool

    @property
    def width(self) -> int:
        """Filters and their biases."""
        return self.outputs * (self.taps + self.bias)

    @property
    def taps(self) -> int:
        """Numbers in a window."""
        return self.inputs * self.size[0] * self.size[1]

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, torch.Size]]:
        """Keeps the windows [k, taps, places · B]: the input, as often as windows overlap."""
        (top, left), (down, across) = self.padding, self.stride
        if top or left:
            x = functional.pad(x, (0, 0, left, left, top, top))
        k, channels, height, breadth, batch = x.shape
        s = x.stride()
        rows, columns = self._places(height, breadth)
        windows = x.as_strided(
            (k, channels, *self.size, rows, columns, batch),
            (s[0], s[1], s[2] * self.dilation[0], s[3] * self.dilation[1], s[2] * down, s[3] * across, s[4]),
        ).reshape(k, self.taps, rows * columns * batch)
        y = affine(weights, self.outputs, windows)
        return y.view(k, self.outputs, rows, columns, batch), (windows, x.shape)

    def backward(
        self, weights: Tensor, kept: tuple[Tensor, torch.Size], dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """As a linear layer of windows; each number of the input gets the sum over its windows."""
        windows, shape = kept
        k, channels, height, breadth, batch = shape
        rows, columns = self._places(height, breadth)
        dy = dy.reshape(k, self.outputs, -1)
        write_gradient(gradient, dy, windows)
        if not further:
            return None
        spread = matrix(weights, self.outputs, self.taps).mT @ dy
        spread = spread.view(k, channels, *self.size, rows, columns, batch)
        dx = dy.new_zeros(shape)
        for i in range(self.size[0]):
            down = slice(i * self.dilation[0], i * self.dilation[0] + (rows - 1) * self.stride[0] + 1)
            for j in range(self.size[1]):
                across = slice(
                    j * self.dilation[1], j * self.dilation[1] + (columns - 1) * self.stride[1] + 1
                )
                dx[:, :, down, across][:, :, :: self.stride[0], :: self.stride[1]] += spread[:, :, i, j]
        top, left = self.padding
        return dx[:, :, top : height - top, left : breadth - left]

    def _places(self, height: int, breadth: int) -> tuple[int, int]:
        """How many windows there are below and beside each other."""
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(self.size, self.dilation, strict=True)]
        return (height - reach[0]) // self.stride[0] + 1, (breadth - reach[1]) // self.stride[1] + 1


def matrix(weights: Tensor, outputs: int, inputs: int) -> Tensor:
    """The matrices [k, outputs, inputs] at the beginning of rows of weights."""
    return weights[:, : outputs * inputs].view(len(weights), outputs, inputs)


def affine(weights: Tensor, outputs: int, x: Tensor) -> Tensor:
    """Wx + b, or Wx where `weights` hold no b."""
    size = outputs * x.shape[1]
    w = matrix(weights, outputs, x.shape[1])
    return torch.baddbmm(weights[:, size:, None], w, x) if weights.shape[1] > size else w @ x


def write_gradient(gradient: Tensor, dy: Tensor, x: Tensor) -> None:
    """∂W = dy xᵀ and ∂b = Σ dy into rows laid out as the weights are."""
    outputs, inputs = dy.shape[1], x.shape[1]
    torch.bmm(dy, x.mT, out=matrix(gradient, outputs, inputs))
    if gradient.shape[1] > outputs * inputs:
        gradient[:, outputs * inputs :] = dy.sum(2)
