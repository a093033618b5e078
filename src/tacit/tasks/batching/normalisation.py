"""Normalisation whose weights differ from client to client."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tacit.tasks.batching.kernels import kernels_for, packed


class _GroupNorm(torch.autograd.Function):
    """Group normalisation of images [k, B, positions, C] by our kernels."""

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


def group_norm(x: Tensor, groups: int, w: Tensor | None, b: Tensor | None, eps: float) -> Tensor:
    """Normalise the groups of channels of x [k, B, C, ...]; weights and biases are [k, C].

    The result has the type of x; means and variances are computed in float32 at least.
    """
    gpu, channels = kernels_for(x), x.shape[2]
    affine = (w is None) == (b is None)
    if gpu is None or not affine or x.ndim < 4 or not gpu.norm.supports(channels, groups):
        with torch.autocast(x.device.type, enabled=False):
            plain = functional.group_norm(x.flatten(0, 1), groups, eps=eps).view(x.shape)
            return scaled(plain, w, b, (1, channels, *(1 for _ in x.shape[3:])))
    images = x.movedim(2, -1)
    flat = images.reshape(*x.shape[:2], -1, channels).contiguous()
    y: Tensor = _GroupNorm.apply(flat, packed(w), packed(b), groups, eps, gpu.norm)  # type: ignore[no-untyped-call]
    return y.view(images.shape).movedim(-1, 2)


class _LayerNorm(torch.autograd.Function):
    """Layer normalisation of vectors [k, M, C] by our kernels."""

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


def layer_norm(
    x: Tensor, shape: Sequence[int], w: Tensor | None, b: Tensor | None, eps: float
) -> Tensor:
    """Normalise the last dimensions of x [k, ..., *shape]; weights and biases [k, *shape].

    The result has the type of x; means and variances are computed in float32 at least.
    """
    gpu = kernels_for(x)
    if gpu is None or w is None or b is None or not gpu.layer_norm.supports(math.prod(shape)):
        with torch.autocast(x.device.type, enabled=False):
            y = functional.layer_norm(x, list(shape), eps=eps)
            leading = x.ndim - 1 - len(shape)
            return scaled(y, w, b, (*(1 for _ in range(leading)), *shape))
    vectors = x.reshape(len(x), -1, math.prod(shape)).contiguous()
    weights = (each.flatten(1) for each in (w, b))
    y = _LayerNorm.apply(vectors, *map(packed, weights), eps, gpu.layer_norm)  # type: ignore[no-untyped-call]
    return y.view(x.shape)  # type: ignore[no-any-return]


def scaled(y: Tensor, w: Tensor | None, b: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """w·y + b for weights and biases of each client, viewed in this shape; in the type of y."""
    w = None if w is None else w.to(y.dtype).view(-1, *shape)
    b = None if b is None else b.to(y.dtype).view(-1, *shape)
    if w is not None and b is not None:
        return torch.addcmul(b, y, w)
    return y if w is None and b is None else (y * w if w is not None else y + b)  # type: ignore[operator]
