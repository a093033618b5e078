"""The protocol of a layer, and all layers but convolutions.

Layers make the forward and backward passes of k clients with different weights. The batch is the
last dimension everywhere: images [k, C, H, W, B] and vectors [k, D, B]. So every product is
"weights times columns" with long rows, windows of an image are contiguous runs of W·B numbers, and
nothing is transposed between layers. Layers write the gradients of their weights directly into the
rows of all clients, without an autograd tape.

That is the order of dimensions. Where compiled loops compute linear layers, the numbers of a sample
are next to each other in memory, as in the data: such vectors have strides (…, 1, D).

For pooling, images have the memory layout of k·C channels-last images with B channels, for which
torch has fast loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.core.native import layers
from tacit.gradients.products import OuterProducts

# Numbers of one client's inputs up to which they stay in a core's cache.
CACHED = 1 << 16


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

    def sample_gradients(
        self, weights: Tensor, saved: Any, dy: Tensor, needs_dx: bool
    ) -> tuple[Tensor | None, list[OuterProducts]]:
        """The gradient of the input, and those of the weights sample by sample.

        For one client, as `backward` otherwise. Does not overwrite `dy`, whose column b is the
        gradient of the loss of sample b alone.
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

    def sample_gradients(
        self, weights: Tensor, saved: Any, dy: Tensor, needs_dx: bool
    ) -> tuple[Tensor | None, list[OuterProducts]]:
        return self.input_gradient(saved, dy) if needs_dx else None, []


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
        if self._is_compiled(x):
            samples = _sample_rows(x)
            y = x.new_empty(len(x), x.shape[2], self.outputs).mT
            b = weights[:, self.width - self.outputs :] if self.bias else None
            layers.dots(w, samples, b, y)
            return y, samples.mT
        if self.bias:
            return torch.baddbmm(weights[:, self.width - self.outputs :, None], w, x), x
        return w @ x, x

    def backward(
        self, weights: Tensor, saved: Tensor, dy: Tensor, gradient: Tensor, needs_dx: bool
    ) -> Tensor | None:
        # ∂W = dy xᵀ, ∂b = Σ dy, dx = Wᵀ dy
        w_gradient = matrix(gradient, self.outputs, self.inputs)
        b_gradient = gradient[:, self.width - self.outputs :] if self.bias else None
        if self._is_compiled(saved):
            layers.product(dy, _sample_rows(saved), w_gradient, b_gradient)
        else:
            torch.bmm(dy, saved.mT, out=w_gradient)
            if b_gradient is not None:
                torch.sum(dy, 2, out=b_gradient)
        return self._input_gradient(weights, dy) if needs_dx else None

    def sample_gradients(
        self, weights: Tensor, saved: Tensor, dy: Tensor, needs_dx: bool
    ) -> tuple[Tensor | None, list[OuterProducts]]:
        by_output = _sample_major(dy)
        products = [OuterProducts(_sample_major(saved), by_output)]
        if self.bias:
            products.append(OuterProducts(by_output))
        return self._input_gradient(weights, dy) if needs_dx else None, products

    def _input_gradient(self, weights: Tensor, dy: Tensor) -> Tensor:
        w = matrix(weights, self.outputs, self.inputs)
        if not self._is_compiled(dy):
            return w.mT @ dy
        dx = dy.new_empty(len(dy), dy.shape[2], self.inputs)
        layers.product(dy.mT, w, dx)
        return dx.mT

    def _is_compiled(self, x: Tensor) -> bool:
        """Whether compiled loops are faster than a library, which makes better use of caches."""
        return layers.supports(x) and self.inputs * x.shape[2] <= CACHED


def _sample_rows(x: Tensor) -> Tensor:
    """Vectors [k, D, B] as [k, B, D] with contiguous rows, moved only if they are not."""
    rows = x.mT
    return rows if rows.stride(2) == 1 else rows.contiguous()


def _sample_major(x: Tensor) -> Tensor:
    """One client's vectors [1, D, B] as [B, D]; in this order in memory on a CPU."""
    return x[0].T if x.is_cuda else x[0].T.contiguous()


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
        return dy.reshape(saved)


@dataclass(frozen=True)
class Affine(WeightlessLayer):
    """y = shift + scale · x, with constants."""

    shift: float
    scale: float

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, None]:
        return self.shift + self.scale * x, None

    def input_gradient(self, saved: None, dy: Tensor) -> Tensor:
        return self.scale * dy


@dataclass(frozen=True)
class MaxPool(WeightlessLayer):
    """The largest number of each window; windows may overlap.

    Saves the input and the position of the largest number, the first one among equals.
    """

    size: tuple[int, int]
    stride: tuple[int, int]

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if (gpu := kernels_for(x)) is not None:
            y, where = gpu.pool(x.contiguous(), self.size, self.stride, False)
            return y, (x, where)
        images = _to_torch(x)
        y, where = torch.ops.aten.max_pool2d_with_indices(images, self.size, self.stride)
        return _from_torch(y, x), (images, where)

    def input_gradient(self, saved: tuple[Tensor, Tensor], dy: Tensor) -> Tensor:
        images, where = saved
        if (gpu := kernels_for(dy)) is not None:
            return gpu.unpool(  # type: ignore[no-any-return]
                dy.contiguous(), where, images.shape, self.size, self.stride
            )
        if dy.is_cuda and self.overlaps:
            return _from_torch(self._unpool(_to_torch(dy), images, where), dy)
        with _no_determinism_warning(dy.device):
            dx = torch.ops.aten.max_pool2d_with_indices_backward(
                _to_torch(dy), images, self.size, self.stride, (0, 0), (1, 1), False, where
            )
        return _from_torch(dx, dy)

    @property
    def is_compiled(self) -> bool:
        """Whether compiled loops can pool such windows."""
        return not self.overlaps and self.size[0] * self.size[1] <= 256

    @property
    def overlaps(self) -> bool:
        """Whether a number may be in several windows."""
        return self.stride[0] < self.size[0] or self.stride[1] < self.size[1]

    def _unpool(self, dy: Tensor, images: Tensor, where: Tensor) -> Tensor:
        """The gradient of images [..., H, W], summed in a fixed order, which torch's is not."""
        dx = torch.zeros_like(images)
        (rows, columns), (down, across) = dy.shape[2:], self.stride
        position = torch.arange(images[0, 0].numel(), device=dy.device).view(images.shape[2:])
        for i in range(self.size[0]):
            for j in range(self.size[1]):
                at = (..., slice(i, i + (rows - 1) * down + 1, down),
                      slice(j, j + (columns - 1) * across + 1, across))  # fmt: skip
                dx[at] += torch.where(where == position[at], dy, 0)
        return dx


@dataclass(frozen=True)
class MeanPool(WeightlessLayer):
    """The mean of each window, without overlap; saves the input for its shape."""

    size: tuple[int, int]

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        images = _to_torch(x)
        return _from_torch(torch.ops.aten.avg_pool2d(images, self.size, self.size), x), images

    def input_gradient(self, saved: Tensor, dy: Tensor) -> Tensor:
        with _no_determinism_warning(dy.device):
            dx = torch.ops.aten.avg_pool2d_backward(
                _to_torch(dy), saved, self.size, self.size, (0, 0), False, True, None
            )
        return _from_torch(dx, dy)


def kernels_for(x: Tensor) -> ModuleType | None:
    """Our kernels for a tensor's device and type; None: use tensor operations instead."""
    return _kernels(x.device) if x.is_cuda and x.dtype == torch.float32 else None


@cache
def _kernels(device: torch.device) -> ModuleType | None:
    """Our kernels if one of them compiles and runs on the device: needs Triton and a C compiler."""
    try:
        from tacit.tasks.layers import gpu

        gpu.pool(torch.zeros(1, 1, 2, 2, 1, device=device), (2, 2), (2, 2), False)
    except Exception:
        # Triton's errors have no common base class. Tensor operations work in any case.
        return None
    return gpu


def _to_torch(x: Tensor) -> Tensor:
    """[k, C, H, W, B] as [k·C, B, H, W], without moving a number."""
    return x.contiguous().flatten(0, 1).permute(0, 3, 1, 2)


def _from_torch(y: Tensor, like: Tensor) -> Tensor:
    """[k·C, B, H, W] as [k, C, H, W, B]."""
    return y.permute(0, 2, 3, 1).contiguous().unflatten(0, like.shape[:2])  # type: ignore[no-untyped-call, no-any-return]


@contextmanager
def _no_determinism_warning(device: torch.device) -> Iterator[None]:
    """Silence torch's warning about non-deterministic sums.

    Windows that do not overlap never add to the same number, so the order of sums has no effect.
    """
    warns = torch.is_deterministic_algorithms_warn_only_enabled() and device.type == "cuda"
    if warns:
        torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        if warns:
            torch.use_deterministic_algorithms(True, warn_only=True)
