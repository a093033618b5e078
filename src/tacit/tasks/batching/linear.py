"""Linear layers whose weights differ from client to client."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tacit.core.devices import tf32_allowed
from tacit.tasks.batching.kernels import compute_type, kernels_for, packed

# Our kernels compute whole tiles of this many rows, inputs and outputs at least.
LEAST = 64


class _Linear(torch.autograd.Function):
    """Products of [k, M, inputs] and [k, outputs, inputs] by our kernels, as 1 × 1 convolutions."""

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


def linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """Outputs x wᵀ + bias of x [k, M, inputs], w [k, outputs, inputs] and bias [k, outputs]."""
    # In full precision and in bfloat16 the products of torch's libraries are faster than ours.
    is_tf32 = compute_type(x) == w.dtype == torch.float32 and tf32_allowed()
    gpu = kernels_for(x) if is_tf32 else None
    sizes = x.shape[1], *w.shape[1:]
    # Kernels count the numbers of a client in 32 bits.
    if gpu is None or min(sizes) < LEAST or sizes[0] * max(sizes[1:]) >= 2**31:
        return x @ w.mT if bias is None else torch.baddbmm(bias[:, None], x, w.mT)
    y: Tensor = _Linear.apply(x.contiguous(), packed(w), packed(bias), gpu.convolution)  # type: ignore[no-untyped-call]
    return y


def _as_images(x: Tensor) -> Tensor:
    """Vectors [k, M, C] as images [k, 1, M, 1, C]."""
    return x[:, None, :, None]
