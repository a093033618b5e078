"""Convolutions: products of filters with all windows of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.tasks.layers.own_kernels import kernels
from tacit.tasks.layers.products import matrix


@dataclass(frozen=True)
class Convolution:
    """A convolution of images [k, C, H, W, B]; what is added to its channels is a layer of its own."""

    inputs: int
    outputs: int
    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def width(self) -> int:
        """The filters."""
        return self.outputs * self.taps

    @property
    def taps(self) -> int:
        """Numbers in a window."""
        return self.inputs * self.size[0] * self.size[1]

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, torch.Size]]:
        """Keeps the windows [k, taps, places · B], the input as often as windows overlap; on a GPU the input."""
        (top, left), (down, across) = self.padding, self.stride
        if top or left:
            x = functional.pad(x, (0, 0, left, left, top, top))
        filters = matrix(weights, self.outputs, self.taps)
        if (gpu := kernels(x)) is not None:
            x = x.contiguous()
            return self._windows(gpu, x.shape).forward(x, filters), (x, x.shape)
        k, channels, height, breadth, batch = x.shape
        s = x.stride()
        rows, columns = self._places(height, breadth)
        windows = x.as_strided(
            (k, channels, *self.size, rows, columns, batch),
            (s[0], s[1], s[2] * self.dilation[0], s[3] * self.dilation[1], s[2] * down, s[3] * across, s[4]),
        ).reshape(k, self.taps, rows * columns * batch)
        return (filters @ windows).view(k, self.outputs, rows, columns, batch), (windows, x.shape)

    def backward(
        self, weights: Tensor, kept: tuple[Tensor, torch.Size], dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """As a linear layer of windows; each number of the input gets the sum over its windows."""
        seen, shape = kept
        out, dy = matrix(gradient, self.outputs, self.taps), dy.reshape(len(dy), self.outputs, -1)
        gpu = kernels(dy)
        if gpu is None:
            torch.bmm(dy, seen.mT, out=out)
        else:
            self._windows(gpu, shape).filter_gradients(seen, dy, out)
        if not further:
            return None
        spread = matrix(weights, self.outputs, self.taps).mT @ dy
        dx = self._gathered(spread, shape) if gpu is None else self._windows(gpu, shape).back(spread, shape)
        top, left = self.padding
        return dx[:, :, top : shape[2] - top, left : shape[3] - left]

    def _gathered(self, spread: Tensor, shape: torch.Size) -> Tensor:
        """Each number of images of this shape gets the sum over its windows [k, taps, places · B]."""
        k, channels, height, breadth, batch = shape
        rows, columns = self._places(height, breadth)
        spread = spread.view(k, channels, *self.size, rows, columns, batch)
        dx = spread.new_zeros(shape)
        for i in range(self.size[0]):
            down = slice(i * self.dilation[0], i * self.dilation[0] + (rows - 1) * self.stride[0] + 1)
            for j in range(self.size[1]):
                across = slice(
                    j * self.dilation[1], j * self.dilation[1] + (columns - 1) * self.stride[1] + 1
                )
                dx[:, :, down, across][:, :, :: self.stride[0], :: self.stride[1]] += spread[:, :, i, j]
        return dx

    def _windows(self, gpu: Any, shape: torch.Size) -> Any:
        return gpu.Windows(self.size, self.stride, self.dilation, *self._places(*shape[2:4]))

    def _places(self, height: int, breadth: int) -> tuple[int, int]:
        """How many windows there are below and beside each other."""
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(self.size, self.dilation, strict=True)]
        return (height - reach[0]) // self.stride[0] + 1, (breadth - reach[1]) // self.stride[1] + 1
