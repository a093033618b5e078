"""Linear layers and products of matrices: one product for all rows, or for all samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tacit.core.native import layers as loops
from tacit.gradients import kernel_functions
from tacit.gradients.stacked import (
    Rule,
    Stacked,
    first_stacked,
    rows_of,
    stacked,
    written_gradient,
)
from tacit.gradients.taped import Kept, Piece, Positions, Taped, is_sample, numbers_of

# Numbers of one client's inputs up to which compiled loops are faster than a library, which makes
# better use of caches.
CACHED = 1 << 16


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.dim() != 2 or (bias is not None and bias.dim() != 1):
        return NotImplemented
    some = first_stacked(input, weight, bias)
    if not isinstance(weight, Stacked):
        x = rows_of(input, some.stack) if stacked(bias) else input.rows  # type: ignore[attr-defined]
        y = functional.linear(x, weight, None if stacked(bias) else bias)
        if isinstance(bias, Stacked):
            y = y + bias.rows.view(len(y), *(1 for _ in range(y.ndim - 2)), -1)
        return some.like(y)
    x = rows_of(input, some.stack)
    flat = x.reshape(len(x), -1, x.shape[-1])
    y = _product(flat, weight, bias)
    return some.like(y.view(*x.shape[:-1], y.shape[-1]))


class _Compiled(torch.autograd.Function):
    """Outputs x wᵀ + b of x [n, M, I], w [n, O, I] and b [n, O], by compiled loops."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, w_place: Any, b_place: Any
    ) -> Tensor:
        x = x if x.stride(2) == 1 else x.contiguous()
        ctx.save_for_backward(x, w, b)
        ctx.places = w_place, b_place
        y = x.new_empty(len(x), x.shape[1], w.shape[1])
        # The loop reads both from the same rows, and the numbers of b one after the other.
        together = b is None or (b.stride(0) == w.stride(0) and b[0].is_contiguous())
        loops.dots(w, x, b if together else None, y.mT)
        return y if together or b is None else y.add_(b[:, None])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dy = gradients[0]
        x, w, b = ctx.saved_tensors
        w_place, b_place = ctx.places
        of_x, of_w, of_b, *_ = ctx.needs_input_grad
        by_x = by_w = by_b = b_target = None
        if of_w or of_b:
            w_target, by_w = written_gradient(w_place, w)
            if of_b:
                b_target, by_b = written_gradient(b_place, b)
            loops.product(dy.mT, x, w_target, b_target)
        if of_x:
            by_x = torch.empty_like(x)
            loops.product(dy, w, by_x)
        return by_x, by_w if of_w else None, by_b, None, None


def _product(x: Tensor, weight: Stacked, bias: Tensor | None) -> Tensor:
    """Outputs [n, M, O] of x [n, M, I]."""
    w, b = weight.rows, None if bias is None else rows_of(bias, weight.stack)
    result = kernel_functions.linear(x, w, b)
    if result is not NotImplemented:
        return result  # type: ignore[no-any-return]
    # In one type, as the loops read them; autocast is left to torch.
    plain = x.dtype == w.dtype and not torch.is_autocast_enabled(x.device.type)
    small = x.shape[1] * x.shape[2] <= CACHED
    if small and plain and loops.supports(x) and w.stride(2) == 1:
        b_place = bias.gradient if isinstance(bias, Stacked) else None
        y: Tensor = _Compiled.apply(x, w, b, weight.gradient, b_place)  # type: ignore[no-untyped-call]
        return y
    return x @ w.mT if b is None else torch.baddbmm(b[:, None], x, w.mT)


def matmul(left: Tensor, right: Tensor, *, out: Any = None) -> Any:
    if out is not None or not left.dim() or not right.dim():
        return NotImplemented
    # A vector is a matrix of one row on the left, of one column on the right.
    if left.dim() == 1:
        product = matmul(_unsqueezed(left, -2), right)
        return product.like(product.rows.squeeze(-2 if right.dim() > 1 else -1))
    if right.dim() == 1:
        product = matmul(left, _unsqueezed(right, -1))
        return product.like(product.rows.squeeze(-1))
    some = first_stacked(left, right)
    ndim = max(left.dim(), right.dim())
    a, b = (_with_dims(x.rows, ndim + 1) if isinstance(x, Stacked) else x for x in (left, right))
    if isinstance(right, Stacked) and right.dim() == 2 < left.dim():
        # One product of each row, not one for each matrix of the left tensor.
        a = rows_of(left, some.stack)
        y = a.reshape(len(a), -1, a.shape[-1]) @ right.rows
        return some.like(y.view(*a.shape[:-1], y.shape[-1]))
    return some.like(a @ b)


def _unsqueezed(x: Tensor, dim: int) -> Tensor:
    """One more dimension, counted from the last."""
    return x.like(x.rows.unsqueeze(dim)) if isinstance(x, Stacked) else x.unsqueeze(dim)


def _with_dims(rows: Tensor, ndim: int) -> Tensor:
    """Rows with more dimensions of one number after the first."""
    return rows[(slice(None), *([None] * (ndim - rows.ndim)))] if rows.ndim < ndim else rows


def _rmatmul(right: Tensor, left: Tensor) -> Any:
    return matmul(left, right)


def _bmm(left: Tensor, right: Tensor, *, out: Any = None) -> Any:
    return matmul(left, right, out=out)


def _addmm(
    added: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Any:
    if beta != 1 or alpha != 1 or out is not None or added.dim() > 2:
        return NotImplemented
    product = matmul(left, right) if stacked(left) or stacked(right) else left @ right
    return added + product


def _taped_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """[..., I], [O, I] → [..., O]."""
    if not is_sample(input) or not isinstance(weight, Taped) or weight.dim() != 2:
        return NotImplemented
    if is_sample(bias):
        return NotImplemented
    seen = Kept(input.rows)

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        left = _flat(gradient)
        yield weight, Positions(left, _flat(seen.get()))
        if isinstance(bias, Taped):
            yield bias, left.sum(1)

    # One product: torch may compute one for each sample of three dimensions, several times as slow.
    x = input.rows
    y = functional.linear(x.reshape(-1, x.shape[-1]), weight.unrecorded, numbers_of(bias))
    return weight.stack.noted(y.view(*x.shape[:-1], y.shape[-1]), pieces)


def _taped_matmul(left: Tensor, right: Tensor, *, out: Any = None) -> Any:
    """[..., I] @ [I, O] → [..., O], with the matrix on the right or on the left."""
    if out is not None:
        return NotImplemented
    if isinstance(right, Taped) and right.dim() == 2 and is_sample(left):
        matrix, x = right, left.rows
        seen = Kept(x)

        def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
            yield matrix, Positions(_flat(seen.get()), _flat(gradient))

        y = x.reshape(-1, x.shape[-1]) @ matrix.unrecorded
        return matrix.stack.noted(y.view(*x.shape[:-1], y.shape[-1]), pieces)
    if isinstance(left, Taped) and left.dim() == 2 and is_sample(right) and right.dim() == 1:
        return _taped_linear(right, left)
    return NotImplemented


def _taped_addmm(
    added: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Any:
    product = _taped_matmul(left, right)
    if product is NotImplemented or (beta, alpha, out) != (1, 1, None):
        return NotImplemented
    return product + added


def _flat(rows: Tensor) -> Tensor:
    """Rows [B, ..., D] as [B, T, D]."""
    return rows.reshape(len(rows), -1, rows.shape[-1])


RULES: dict[Any, Rule] = {
    functional.linear: linear,
    **dict.fromkeys((torch.matmul, Tensor.matmul, Tensor.__matmul__), matmul),
    Tensor.__rmatmul__: _rmatmul,
    **dict.fromkeys((torch.bmm, Tensor.bmm, torch.mm, Tensor.mm), _bmm),
    **dict.fromkeys((torch.addmm, Tensor.addmm), _addmm),
}
TAPED: dict[Any, Rule] = {
    functional.linear: _taped_linear,
    **dict.fromkeys(
        (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm), _taped_matmul
    ),
    Tensor.__rmatmul__: lambda right, left: _taped_matmul(left, right),
    **dict.fromkeys((torch.addmm, Tensor.addmm), _taped_addmm),
}
