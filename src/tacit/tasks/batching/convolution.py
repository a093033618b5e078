"""Convolutions whose filters differ from client to client."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tacit.tasks.batching.kernels import compute_type, kernels_for, packed


class _Convolution(torch.autograd.Function):
    """Convolutions of images [k, B, H, W, C] by our kernels."""

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


def convolve(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Tensor:
    """Outputs [k, B, F, rows, columns] of images [k, B, C, H, W] and filters [k, F, C, kh, kw].

    On a GPU channels are last in memory, and all clients are computed at once.
    """
    x = x.to(compute_type(x))
    gpu = kernels_for(x)
    if gpu is None or _numbers(x, w, stride, padding) >= 2**31:
        biases = [None] * len(x) if bias is None else list(bias)
        each = zip(x, w, biases, strict=True)
        return torch.stack([functional.conv2d(*one, stride, padding) for one in each])
    geometry = gpu.convolution.Geometry((w.shape[3], w.shape[4]), stride, padding)
    images = x.permute(0, 1, 3, 4, 2).contiguous()
    y: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
        images, packed(w), packed(bias), geometry, gpu.convolution
    )
    return y.permute(0, 1, 4, 2, 3)


def _numbers(x: Tensor, w: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> int:
    """Numbers in the input or in the output of one client, which kernels count in 32 bits."""
    sizes = zip(x.shape[3:], stride, padding, strict=True)
    output = math.prod(n // s + 2 * p + 1 for n, s, p in sizes)
    return max(x[0].numel(), x.shape[1] * w.shape[1] * output)
