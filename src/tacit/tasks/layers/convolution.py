"""Convolutions: products of filters with all windows of an image, and what usually comes right after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.tasks.layers.own_kernels import kernels
from tacit.tasks.layers.pooling import MaxPool
from tacit.tasks.layers.products import matrix


@dataclass(frozen=True)
class Convolution:
    """A convolution of images [k, C, H, W, B]; what is added to its channels is not in it."""

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
        """Keeps the windows [k, taps, places · B]: the input, as often as windows overlap."""
        x, (down, across) = self.padded(x), self.stride
        k, channels, height, breadth, batch = x.shape
        s = x.stride()
        rows, columns = self.places(height, breadth)
        windows = x.as_strided(
            (k, channels, *self.size, rows, columns, batch),
            (
                s[0],
                s[1],
                s[2] * self.dilation[0],
                s[3] * self.dilation[1],
                s[2] * down,
                s[3] * across,
                s[4],
            ),
        ).reshape(k, self.taps, rows * columns * batch)
        filters = matrix(weights, self.outputs, self.taps)
        return (filters @ windows).view(k, self.outputs, rows, columns, batch), (windows, x.shape)

    def backward(
        self,
        weights: Tensor,
        kept: tuple[Tensor, torch.Size],
        dy: Tensor,
        gradient: Tensor,
        further: bool,
    ) -> Tensor | None:
        """As a linear layer of windows; each number of the input gets the sum over its windows."""
        windows, shape = kept
        dy = dy.reshape(len(dy), self.outputs, -1)
        torch.bmm(dy, windows.mT, out=matrix(gradient, self.outputs, self.taps))
        if not further:
            return None
        return self.unpadded(
            self._gathered(matrix(weights, self.outputs, self.taps).mT @ dy, shape)
        )

    def padded(self, x: Tensor) -> Tensor:
        """Images with zeros around them."""
        top, left = self.padding
        return functional.pad(x, (0, 0, left, left, top, top)) if top or left else x

    def unpadded(self, x: Tensor) -> Tensor:
        """Images without what is around them."""
        top, left = self.padding
        return x[:, :, top : x.shape[2] - top, left : x.shape[3] - left]

    def _gathered(self, spread: Tensor, shape: torch.Size) -> Tensor:
        """Each number of images of this shape gets the sum over its windows [k, taps, places · B]."""
        k, channels, height, breadth, batch = shape
        rows, columns = self.places(height, breadth)
        spread = spread.view(k, channels, *self.size, rows, columns, batch)
        dx = spread.new_zeros(shape)
        for i in range(self.size[0]):
            down = slice(
                i * self.dilation[0], i * self.dilation[0] + (rows - 1) * self.stride[0] + 1
            )
            for j in range(self.size[1]):
                across = slice(
                    j * self.dilation[1], j * self.dilation[1] + (columns - 1) * self.stride[1] + 1
                )
                dx[:, :, down, across][:, :, :: self.stride[0], :: self.stride[1]] += spread[
                    :, :, i, j
                ]
        return dx

    def places(self, height: int, breadth: int) -> tuple[int, int]:
        """How many windows there are below and beside each other."""
        reach = [
            (size - 1) * dilation + 1
            for size, dilation in zip(self.size, self.dilation, strict=True)
        ]
        return (height - reach[0]) // self.stride[0] + 1, (breadth - reach[1]) // self.stride[1] + 1


@dataclass(frozen=True)
class Block:
    """A convolution, plus b, the largest number of each window if it is pooled, and zero for negative ones if so asked.

    Adding and cutting keep the order of numbers, so they come after pooling: the same values and gradients, on fewer
    numbers. On a GPU all of it is two kernels.
    """

    convolution: Convolution
    bias: bool
    pool: MaxPool | None
    relu: bool

    @property
    def width(self) -> int:
        """Filters and b."""
        return self.convolution.width + self.bias * self.convolution.outputs

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        """Keeps what its parts keep, and the output; on a GPU input and places of the largest numbers."""
        if (gpu := kernels(x)) is not None:
            return self._forward_there(gpu, weights, x)
        filters, b = self._parts(weights)
        y, seen = self.convolution.forward(filters, x)
        pooled = None
        if self.pool is not None:
            y, pooled = self.pool.forward(filters, y)
        if self.bias:
            y.add_(b[:, :, None, None, None])
        if self.relu:
            y.relu_()
        return y, (seen, pooled, y)

    def backward(
        self, weights: Tensor, kept: Any, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """The same backwards."""
        if (gpu := kernels(dy)) is not None:
            return self._backward_there(gpu, weights, kept, dy, gradient, further)
        seen, pooled, y = kept
        (filters, _), (own, b) = self._parts(weights), self._parts(gradient)
        if self.relu:
            dy = torch.ops.aten.threshold_backward(dy, y, 0)
        if self.bias:
            torch.sum(dy, (2, 3, 4), out=b)
        through = dy if self.pool is None else self.pool.backward(filters, pooled, dy, own, True)
        assert through is not None
        return self.convolution.backward(filters, seen, through, own, further)

    def _forward_there(self, gpu: Any, weights: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        x = self.convolution.padded(x).contiguous()
        filters, b = self._parts(weights)
        cut_now = self.relu and self.pool is None
        y = self._windows(gpu, x).forward(
            x, self._matrix(filters), b if self.bias else None, cut_now
        )
        if self.pool is None:
            return y, (x, y, y.shape)
        pooled, where = gpu.pool(y, self.pool.size, self.relu)
        return pooled, (x, where, y.shape)

    def _backward_there(
        self, gpu: Any, weights: Tensor, kept: Any, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        x, seen, shape = kept
        dy = dy.contiguous()
        if self.pool is not None:
            dy = gpu.unpool(dy, seen, shape, self.pool.size)
        elif self.relu:
            dy = torch.ops.aten.threshold_backward(dy, seen, 0)
        windows, dy = self._windows(gpu, x), dy.view(len(dy), self.convolution.outputs, -1)

        def write() -> None:
            own, b = self._parts(gradient)
            windows.write_gradients(x, dy, own)
            if self.bias:
                torch.sum(dy, 2, out=b)

        if not further:
            write()
            return None
        with gpu.beside(write, dy.device):
            spread = self._matrix(self._parts(weights)[0]).mT @ dy
            return self.convolution.unpadded(windows.back(spread, x.shape))

    def _parts(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Filters and b."""
        return weights[:, : self.convolution.width], weights[:, self.convolution.width :]

    def _matrix(self, filters: Tensor) -> Tensor:
        return matrix(filters, self.convolution.outputs, self.convolution.taps)

    def _windows(self, gpu: Any, x: Tensor) -> Any:
        of = self.convolution
        return gpu.Windows(of.size, of.stride, of.dilation, *of.places(*x.shape[2:4]))
