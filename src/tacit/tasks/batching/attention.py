"""Attention of many clients: the client dimension is folded into that of the batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tacit.models.attention import attention_arguments


class _Attention(torch.autograd.Function):
    """Torch's attention, whose backward pass gives the same bits every time.

    By default its fused kernels add up gradients in any order, and warn if they should not.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        with torch.enable_grad():
            own: list[Any] = [
                None if x is None else x.detach().requires_grad_(needed)
                for x, needed in zip((q, k, v, mask), ctx.needs_input_grad, strict=False)
            ]
            y = functional.scaled_dot_product_attention(*own, **options)
        # A graph of its own, which only the backward pass below uses.
        ctx.own, ctx.y = own, y
        return y.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        needed = [x for x in ctx.own if x is not None and x.requires_grad]
        with strictly_deterministic(gradients[0].device):
            found = iter(torch.autograd.grad(ctx.y, needed, gradients[0]))
        by = [next(found) if x is not None and x.requires_grad else None for x in ctx.own]
        ctx.own = ctx.y = None
        return *by, None


def attention(*args: Any, **kwargs: Any) -> Tensor:
    """Torch's scaled dot-product attention, deterministic on a GPU."""
    (q, k, v, mask), options = attention_arguments(*args, **kwargs)
    if not q.is_cuda:
        return functional.scaled_dot_product_attention(q, k, v, mask, **options)
    kind = q.device.type
    if torch.is_autocast_enabled(kind):
        q, k, v = (x.to(torch.get_autocast_dtype(kind)) for x in (q, k, v))
        mask = mask.to(q.dtype) if mask is not None and mask.is_floating_point() else mask
    y: Tensor = _Attention.apply(q, k, v, mask, options)  # type: ignore[no-untyped-call]
    return y


@contextmanager
def strictly_deterministic(device: torch.device) -> Iterator[None]:
    """Kernels that give the same bits every time, which are refused if there are none."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
