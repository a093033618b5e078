"""Linear layers and products of matrices: one batched product for all rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.stacked import Rule, Stacked, first_stacked, rows_of, stacked


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
    w = weight.rows
    flat = x.reshape(len(w), -1, x.shape[-1])
    if bias is None:
        y = flat @ w.mT
    else:
        y = torch.baddbmm(rows_of(bias, some.stack)[:, None], flat, w.mT)
    return some.like(y.view(*x.shape[:-1], w.shape[1]))


def matmul(left: Tensor, right: Tensor, *, out: Any = None) -> Any:
    if left.dim() < 2 or right.dim() < 2 or out is not None:
        return NotImplemented
    some = first_stacked(left, right)
    ndim = max(left.dim(), right.dim())
    a, b = (_with_dims(x.rows, ndim + 1) if isinstance(x, Stacked) else x for x in (left, right))
    if isinstance(right, Stacked) and right.dim() == 2 < left.dim():
        # One product of each row, not one for each matrix of the left tensor.
        a = rows_of(left, some.stack)
        y = a.reshape(len(a), -1, a.shape[-1]) @ right.rows
        return some.like(y.view(*a.shape[:-1], y.shape[-1]))
    return some.like(a @ b)


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


RULES: dict[Any, Rule] = {
    functional.linear: linear,
    **dict.fromkeys((torch.matmul, Tensor.matmul, Tensor.__matmul__), matmul),
    Tensor.__rmatmul__: _rmatmul,
    **dict.fromkeys((torch.bmm, Tensor.bmm, torch.mm, Tensor.mm), _bmm),
    **dict.fromkeys((torch.addmm, Tensor.addmm), _addmm),
}
