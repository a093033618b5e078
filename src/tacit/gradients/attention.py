"""Attention of all rows: the samples of all rows are one batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tacit.gradients.multi_head import multi_head_attention
from tacit.gradients.stacked import Rule, Stacked, first_stacked, rows_of
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
            inputs: list[Any] = [
                None if x is None else x.detach().requires_grad_(needed)
                for x, needed in zip((q, k, v, mask), ctx.needs_input_grad, strict=False)
            ]
            y = functional.scaled_dot_product_attention(*inputs, **options)
        # A graph of its own, which only the backward pass below uses.
        ctx.inputs, ctx.y = inputs, y
        return y.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        needed = [x for x in ctx.inputs if x is not None and x.requires_grad]
        with strictly_deterministic(gradients[0].device):
            computed = iter(torch.autograd.grad(ctx.y, needed, gradients[0]))
        by = [next(computed) if x is not None and x.requires_grad else None for x in ctx.inputs]
        ctx.inputs = ctx.y = None
        return *by, None


def attention(*args: Any, **kwargs: Any) -> Tensor:
    """Torch's scaled dot-product attention of plain tensors, deterministic on a GPU."""
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


def _stacked_attention(*args: Any, **kwargs: Any) -> Any:
    (q, k, v, mask), options = attention_arguments(*args, **kwargs)
    if options["dropout_p"]:
        return NotImplemented
    inner = 3 if options.get("enable_gqa") else 2
    if not q.shape[:-inner] == k.shape[:-inner] == v.shape[:-inner] or q.dim() < inner:
        # Torch expands samples or heads.
        return NotImplemented
    some = first_stacked(q, k, v, mask)
    q, k, v = (rows_of(x, some.stack) for x in (q, k, v))
    if isinstance(mask, Stacked):
        # As many dimensions as the scores, so that that of the rows can be folded too.
        rows = mask.rows
        rows = rows[(slice(None), *([None] * (q.ndim - rows.ndim)))]
        mask = _folded(rows.expand(*q.shape[:-2], *rows.shape[-2:]))
    elif mask is not None and mask.ndim > 2:
        mask = _folded(mask.expand(*q.shape[:-2], *mask.shape[-2:]))
    y = attention(_folded(q), _folded(k), _folded(v), mask, **options)
    return some.like(y.view(*q.shape[:-1], v.shape[-1]))


def _folded(x: Tensor) -> Tensor:
    """The last four dimensions and those before them, folded into the first one."""
    return x.flatten(0, x.ndim - 4) if x.ndim > 4 else x


def _multi_head(*args: Any, **kwargs: Any) -> Any:
    try:
        return multi_head_attention(*args, **kwargs)
    except NotImplementedError:
        # Rare options are left to vmap.
        return NotImplemented


RULES: dict[Any, Rule] = {
    functional.scaled_dot_product_attention: _stacked_attention,
    functional.multi_head_attention_forward: _multi_head,
}
