"""Convolutions as products of filters with the windows of an image, fused with what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tacit.core.native import layers, per_sample
from tacit.core.native.per_sample import Geometry
from tacit.gradients.products import OuterProducts
from tacit.tasks.layers.basic import CACHED, MaxPool, kernels_for, matrix


class _Compiled(NamedTuple):
    """What a compiled loop pooled: its result, and the shape of the images."""

    result: tuple[Tensor, Tensor]
    shape: torch.Size


@dataclass(frozen=True)
class Convolution:
    """A convolution of images [k, C, H, W, B] with optional bias, max-pooling and ReLU.

    Bias and ReLU preserve the order of numbers, so they come after pooling: the same values and
    gradients, computed on fewer numbers. On a GPU a convolution is two kernels, on a CPU a compiled
    loop. Where there is none, or images are large, it saves the windows [k, taps, positions · B],
    which repeat the numbers where windows overlap.
    """

    inputs: int
    outputs: int
    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    bias: bool = False
    pool: MaxPool | None = None
    relu: bool = False

    @property
    def width(self) -> int:
        return self.outputs * (self.taps + self.bias)

    @property
    def taps(self) -> int:
        """Numbers in a window."""
        return self.inputs * self.size[0] * self.size[1]

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        top, left = self.padding
        x = functional.pad(x, (0, 0, left, left, top, top)) if top or left else x
        filters, b = self._split(weights)
        if (gpu := kernels_for(x)) is not None:
            return self._forward_gpu(gpu, filters, b, x.contiguous())
        if self._is_compiled(x):
            x, windows = x.contiguous(), None
            geometry = self._geometry(x)
            y = x.new_empty(len(x), self.outputs, *geometry.output, x.shape[-1])
            layers.convolve(x, filters, geometry, y)
            if self.pool is not None and self.pool.is_compiled:
                shift = b if self.bias else None
                result = layers.pool(y, self.pool.size, self.pool.stride, shift, self.relu)
                return result[0], (None, x, _Compiled(result, y.shape), result[0])
        else:
            windows = self._copied_windows(x)
            y = filters @ windows
            y = y.view(len(x), self.outputs, *self.output_size(x.shape), x.shape[-1])
        pooled = None
        if self.pool is not None:
            y, pooled = self.pool.forward(weights, y)
        if self.bias:
            y.add_(b[:, :, None, None, None])
        if self.relu:
            y.relu_()
        return y, (windows, x, pooled, y)

    def _copied_windows(self, x: Tensor) -> Tensor:
        """The windows [k, taps, positions · B] of padded images."""
        x = x.contiguous()
        k, channels, *_, batch = x.shape
        s = x.stride()
        taps_stride = (s[2] * self.dilation[0], s[3] * self.dilation[1])
        window_stride = (s[2] * self.stride[0], s[3] * self.stride[1])
        rows, columns = self.output_size(x.shape)
        return x.as_strided(
            (k, channels, *self.size, rows, columns, batch),
            (s[0], s[1], *taps_stride, *window_stride, s[4]),
        ).reshape(k, self.taps, rows * columns * batch)

    def backward(
        self, weights: Tensor, saved: Any, dy: Tensor, gradient: Tensor, needs_dx: bool
    ) -> Tensor | None:
        if (gpu := kernels_for(dy)) is not None:
            return self._backward_gpu(gpu, weights, saved, dy, gradient, needs_dx)
        windows, x, pooled, y = saved
        filters_gradient, b_gradient = self._split(gradient)
        if isinstance(pooled, _Compiled):
            dy = self._before_compiled_pooling(dy, pooled, b_gradient if self.bias else None)
        else:
            dy = self._before_relu(dy, y)
            if self.bias:
                torch.sum(dy, (2, 3, 4), out=b_gradient)
            dy = self._before_pooling(dy, pooled)
        if windows is None:
            geometry = self._geometry(x)
            outputs = dy.view(len(x), self.outputs, *geometry.output, -1)
            layers.weight_gradients(x, outputs, geometry, filters_gradient)
        else:
            torch.bmm(dy, windows.mT, out=filters_gradient)
        return self._input_gradient(weights, dy, x) if needs_dx else None

    def sample_gradients(
        self, weights: Tensor, saved: Any, dy: Tensor, needs_dx: bool
    ) -> tuple[Tensor | None, list[OuterProducts]]:
        if (gpu := kernels_for(dy)) is not None:
            return self._sample_gradients_gpu(gpu, weights, saved, dy, needs_dx)
        windows, x, pooled, y = saved
        if isinstance(pooled, _Compiled):
            dy = self._before_compiled_pooling(dy, pooled, None)
        else:
            dy = self._before_pooling(self._before_relu(dy, y), pooled)
        dx = self._input_gradient(weights, dy, x) if needs_dx else None
        if per_sample.supports(dy):
            return dx, [self._compiled_gradients(x[0], dy[0])]
        if windows is None:
            windows = self._copied_windows(x)
        by_output = dy.view(self.outputs, -1, x.shape[-1]).permute(2, 0, 1)
        by_filters = by_output @ windows.view(self.taps, -1, x.shape[-1]).permute(2, 1, 0)
        products = [OuterProducts(by_filters.flatten(1))]
        if self.bias:
            products.append(OuterProducts(by_output.sum(2)))
        return dx, products

    def _compiled_gradients(self, x: Tensor, dy: Tensor) -> OuterProducts:
        """The gradients of samples from padded images [C, H, W, B] and dy [F, positions · B]."""
        geometry = self._geometry(x[None])
        gradients = x.new_empty(x.shape[-1], self.width)
        squares = torch.empty(x.shape[-1], dtype=torch.float64)
        dy = dy.view(self.outputs, *geometry.output, -1)
        per_sample.filter_gradients(x.contiguous(), dy, geometry, gradients, squares)
        return OuterProducts(gradients, squares=squares[:, None])

    def _before_relu(self, dy: Tensor, y: Tensor) -> Tensor:
        return torch.ops.aten.threshold_backward(dy, y, 0) if self.relu else dy

    def _before_pooling(self, dy: Tensor, pooled: Any) -> Tensor:
        """The gradient [k, F, positions · B] of the products of filters and windows."""
        dy = dy if self.pool is None else self.pool.input_gradient(pooled, dy)
        return dy.reshape(len(dy), self.outputs, -1)

    def _before_compiled_pooling(
        self, dy: Tensor, pooled: _Compiled, b_gradient: Tensor | None
    ) -> Tensor:
        """As `_before_pooling` of `_before_relu`; writes the gradient of b."""
        assert self.pool is not None
        how = (self.pool.size, self.pool.stride, self.relu)
        dx = layers.unpool(dy, pooled.result, pooled.shape, *how, b_gradient)
        return dx.view(len(dx), self.outputs, -1)

    def _input_gradient(self, weights: Tensor, dy: Tensor, x: Tensor) -> Tensor:
        """The gradient of images, from that of products [k, F, positions · B]."""
        filters = self._split(weights)[0]
        if not self._is_compiled(x):
            return self._unpadded(self._fold(filters.mT @ dy, x.shape))
        geometry = self._geometry(x)
        dx = torch.empty_like(x)
        outputs = dy.view(len(x), self.outputs, *geometry.output, -1)
        layers.image_gradients(outputs, filters, geometry, dx)
        return self._unpadded(dx)

    def _is_compiled(self, x: Tensor) -> bool:
        """Whether compiled loops are faster than a library, which makes better use of caches."""
        return layers.supports(x) and max(x[0, ..., 0].numel(), self.width) <= CACHED

    def _geometry(self, x: Tensor) -> Geometry:
        """The convolution of padded images [k, C, H, W, B]."""
        return Geometry(
            (x.shape[1], x.shape[2], x.shape[3]),
            *(self.size, self.stride, self.dilation, self.output_size(x.shape)),
            *(self.outputs, self.bias),
        )

    def output_size(self, shape: torch.Size) -> tuple[int, int]:
        """Height and width of the output for padded images of this shape."""
        height, width = ((n - 1) * d + 1 for n, d in zip(self.size, self.dilation, strict=True))
        down, across = self.stride
        return (shape[2] - height) // down + 1, (shape[3] - width) // across + 1

    def _fold(self, windows: Tensor, shape: torch.Size) -> Tensor:
        """Images of this shape: each number is the sum of its copies in windows [k, taps, n]."""
        rows, columns = self.output_size(shape)
        windows = windows.view(*shape[:2], *self.size, rows, columns, shape[4])
        dx = windows.new_zeros(shape)
        for i in range(self.size[0]):
            top = i * self.dilation[0]
            down = slice(top, top + (rows - 1) * self.stride[0] + 1, self.stride[0])
            for j in range(self.size[1]):
                left = j * self.dilation[1]
                across = slice(left, left + (columns - 1) * self.stride[1] + 1, self.stride[1])
                dx[:, :, down, across].add_(windows[:, :, i, j])
        return dx

    def _forward_gpu(self, gpu: Any, filters: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        relu_now = self.relu and self.pool is None
        y = self._windows(gpu, x).forward(x, filters, b if self.bias else None, relu_now)
        if self.pool is None:
            return y, (x, y, y.shape)
        pooled, where = gpu.pool(y, self.pool.size, self.pool.stride, self.relu)
        return pooled, (x, where, y.shape)

    def _backward_gpu(
        self, gpu: Any, weights: Tensor, saved: Any, dy: Tensor, gradient: Tensor, needs_dx: bool
    ) -> Tensor | None:
        x, dy = saved[0], self._product_gradient(gpu, saved, dy)
        windows = self._windows(gpu, x)

        def write_gradients() -> None:
            filters_gradient, b_gradient = self._split(gradient)
            windows.write_gradients(x, dy, filters_gradient.flatten(1))
            if self.bias:
                torch.sum(dy, 2, out=b_gradient)

        if not needs_dx:
            write_gradients()
            return None
        with gpu.concurrently(write_gradients, dy.device):
            filters = self._split(weights)[0]
            return self._unpadded(windows.input_gradient(filters, dy, x.shape))

    def _sample_gradients_gpu(
        self, gpu: Any, weights: Tensor, saved: Any, dy: Tensor, needs_dx: bool
    ) -> tuple[Tensor | None, list[OuterProducts]]:
        from tacit.tasks.layers import gpu_samples

        x, dy = saved[0], self._product_gradient(gpu, saved, dy)
        windows = self._windows(gpu, x)
        products, write = gpu_samples.filter_gradients(windows, x, dy, self.bias)
        if not needs_dx:
            write()
            return None, [products]
        with gpu.concurrently(write, dy.device):
            unfolded = self._split(weights)[0].mT @ dy
            return self._unpadded(windows.fold(unfolded, x.shape)), [products]

    def _product_gradient(self, gpu: Any, saved: Any, dy: Tensor) -> Tensor:
        """The gradient [k, F, positions · B] of the products of filters and windows."""
        _, output, shape = saved
        dy = dy.contiguous()
        if self.pool is not None:
            dy = gpu.unpool(dy, output, shape, self.pool.size, self.pool.stride)
        elif self.relu:
            dy = torch.ops.aten.threshold_backward(dy, output, 0)
        return dy.view(len(dy), self.outputs, -1)

    def _split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Filters [k, F, taps] and b [k, F], as views."""
        filters = matrix(weights, self.outputs, self.taps)
        return filters, weights[:, self.outputs * self.taps :]

    def _unpadded(self, x: Tensor) -> Tensor:
        top, left = self.padding
        return x[:, :, top : x.shape[2] - top, left : x.shape[3] - left]

    def _windows(self, gpu: Any, x: Tensor) -> Any:
        return gpu.Windows(self.size, self.stride, self.dilation, *self.output_size(x.shape))
