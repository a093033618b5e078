"""Our GPU kernels, where they can be used, as functions that autograd records.

Tensors are [n, B, ...], of all rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tacit.core.devices import tf32_allowed

Pair = tuple[int, int]
# Kernels compute whole tiles of this many rows, inputs and outputs at least.
LEAST = 64
# Kernels count the numbers of a client in 32 bits.
MOST = 2**31


@dataclass(frozen=True)
class Kernels:
    """Modules of kernels: `images` has the batch last in memory, all others have channels last."""

    convolution: ModuleType
    images: ModuleType
    norm: ModuleType
    layer_norm: ModuleType


def kernels_for(x: Tensor) -> Kernels | None:
    """Kernels for a tensor's device and type; None: use tensor operations instead."""
    if not x.is_cuda or x.dtype not in (torch.float32, torch.bfloat16):
        return None
    return _kernels(x.device)


def packed(w: Tensor | None) -> Tensor | None:
    """Weights [k, ...] of which each client's are contiguous, as our kernels read them."""
    return w if w is None or w[0].is_contiguous() else w.contiguous()


def compute_type(x: Tensor) -> torch.dtype:
    """The type in which products of x are computed: that of autocast, if it is on."""
    kind = x.device.type
    if x.dtype == torch.float32 and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype


@cache
def _kernels(device: torch.device) -> Kernels | None:
    """Our kernels if one of them compiles and runs on the device: needs Triton and a C compiler."""
    try:
        from tacit.gradients import gpu_convolution, gpu_group_norm, gpu_images, gpu_layer_norm

        gpu_group_norm.forward(torch.zeros(1, 1, 1, 1, device=device), None, None, 1, 1e-5)
    except Exception:
        # Triton's errors have no common base class. Tensor operations work in any case.
        return None
    return Kernels(gpu_convolution, gpu_images, gpu_group_norm, gpu_layer_norm)


class _Convolution(torch.autograd.Function):
    """Convolutions of images [n, B, H, W, C]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Any, gpu: Any
    ) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.geometry, ctx.gpu, ctx.has_bias = geometry, gpu, bias is not None
        y: Tensor = gpu.forward(x, w, bias, geometry)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        dy = gradients[0].contiguous()
        by_x = by_w = by_bias = None
        if ctx.needs_input_grad[0]:
            by_x = ctx.gpu.input_gradient(dy, w, x.shape, ctx.geometry)
        if ctx.needs_input_grad[1]:
            by_w = ctx.gpu.filter_gradient(x, dy, ctx.geometry)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            by_bias = dy.float().sum((1, 2, 3))
        return by_x, by_w, by_bias, None, None


def convolve(x: Tensor, w: Tensor, bias: Tensor | None, stride: Pair, padding: Pair) -> Any:
    """Outputs [n, B, F, rows, columns] of images [n, B, C, H, W] and filters [n, F, C, kh, kw].

    Channels are last in memory. NotImplemented where there are no kernels, or images are large.
    """
    gpu = kernels_for(x)
    if gpu is None:
        return NotImplemented
    sizes = zip(x.shape[3:], stride, padding, strict=True)
    output = math.prod(n // s + 2 * p + 1 for n, s, p in sizes)
    if max(x[0].numel(), x.shape[1] * w.shape[1] * output) >= MOST:
        return NotImplemented
    x = x.to(compute_type(x))
    geometry = gpu.convolution.Geometry((w.shape[3], w.shape[4]), stride, padding)
    images = x.permute(0, 1, 3, 4, 2).contiguous()
    y: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
        images, packed(w), packed(bias), geometry, gpu.convolution
    )
    return y.permute(0, 1, 4, 2, 3)


class _Linear(torch.autograd.Function):
    """Products of [n, M, inputs] and [n, outputs, inputs], as 1 × 1 convolutions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, gpu: Any) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.gpu, ctx.has_bias = gpu, bias is not None
        y: Tensor = gpu.forward(_as_images(x), w[..., None, None], bias, gpu.POINTWISE)
        return y.view(*x.shape[:2], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        dy = gradients[0].contiguous()
        by_x = by_w = by_bias = None
        if ctx.needs_input_grad[0]:
            images = _as_images(x).shape
            by_x = ctx.gpu.input_gradient(
                _as_images(dy), w[..., None, None], images, ctx.gpu.POINTWISE
            ).view(x.shape)
        if ctx.needs_input_grad[1]:
            # In the order of the weights, so that autograd need not copy it.
            by_w = dy.mT @ x
        if ctx.has_bias and ctx.needs_input_grad[2]:
            by_bias = dy.sum(1)
        return by_x, by_w, by_bias, None


def linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Any:
    """Outputs x wᵀ + bias of x [n, M, inputs], w [n, outputs, inputs] and bias [n, outputs].

    NotImplemented but in TF32: else the products of torch's libraries are faster.
    """
    is_tf32 = compute_type(x) == w.dtype == torch.float32 and tf32_allowed()
    gpu = kernels_for(x) if is_tf32 else None
    sizes = x.shape[1], *w.shape[1:]
    if gpu is None or min(sizes) < LEAST or sizes[0] * max(sizes[1:]) >= MOST:
        return NotImplemented
    return _Linear.apply(x.contiguous(), packed(w), packed(bias), gpu.convolution)  # type: ignore[no-untyped-call]


def _as_images(x: Tensor) -> Tensor:
    """Vectors [n, M, C] as images [n, 1, M, 1, C]."""
    return x[:, None, :, None]


class _GroupNorm(torch.autograd.Function):
    """Group normalisation of images [n, B, positions, C]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor | None, b: Tensor | None, groups: int, eps: float, gpu: Any
    ) -> Tensor:
        y, mean, rstd = gpu.forward(x, w, b, groups, eps)
        ctx.save_for_backward(x, w, mean, rstd)
        ctx.gpu = gpu
        return y  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w, mean, rstd = ctx.saved_tensors
        dx, dw, db = ctx.gpu.backward(x, w, gradients[0].contiguous(), mean, rstd)
        affine = w is not None
        return dx, dw if affine else None, db if affine else None, None, None, None


def group_norm(x: Tensor, groups: int, w: Tensor | None, b: Tensor | None, eps: float) -> Any:
    """The groups of channels of x [n, B, C, ...], normalised; weights and biases are [n, C].

    NotImplemented where there are no kernels.
    """
    gpu, channels = kernels_for(x), x.shape[2]
    affine = (w is None) == (b is None)
    if gpu is None or not affine or x.ndim < 4 or not gpu.norm.supports(channels, groups):
        return NotImplemented
    images = x.movedim(2, -1)
    flat = images.reshape(*x.shape[:2], -1, channels).contiguous()
    y: Tensor = _GroupNorm.apply(flat, packed(w), packed(b), groups, eps, gpu.norm)  # type: ignore[no-untyped-call]
    return y.view(images.shape).movedim(-1, 2)


class _LayerNorm(torch.autograd.Function):
    """Layer normalisation of vectors [n, M, C]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, eps: float, gpu: Any) -> Tensor:
        y, mean, rstd = gpu.forward(x, w, b, eps)
        ctx.save_for_backward(x, w, mean, rstd)
        ctx.gpu = gpu
        return y  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w, mean, rstd = ctx.saved_tensors
        return *ctx.gpu.backward(x, w, gradients[0].contiguous(), mean, rstd), None, None


def layer_norm(x: Tensor, size: int, w: Tensor | None, b: Tensor | None, eps: float) -> Any:
    """The last dimensions of x [n, ...] of `size` numbers, normalised; w and b are [n, size].

    NotImplemented where there are no kernels.
    """
    gpu = kernels_for(x)
    if gpu is None or w is None or b is None or not gpu.layer_norm.supports(size):
        return NotImplemented
    vectors = x.reshape(len(x), -1, size).contiguous()
    y = _LayerNorm.apply(vectors, packed(w), packed(b), eps, gpu.layer_norm)  # type: ignore[no-untyped-call]
    return y.view(x.shape)
