"""Sums and other functions along dimensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.stacked import Rule, Stacked


def _over(
    func: Callable[..., Tensor], x: Stacked, dim: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Functions over one, several or all dimensions."""
    ndim = x.dim()
    if kwargs.get("out") is not None or ndim == 0 or not _whole(dim):
        return NotImplemented
    dims = (dim,) if isinstance(dim, int) else tuple(dim if dim else range(ndim))
    return x.like(func(x.rows, tuple(_shifted(axis, ndim) for axis in dims), *args, **kwargs))


def _whole(dim: Any) -> bool:
    several = isinstance(dim, tuple | list) and all(isinstance(axis, int) for axis in dim)
    return dim is None or several or (isinstance(dim, int) and not isinstance(dim, bool))


def _shifted(dim: int, ndim: int) -> int:
    return dim + 1 if dim >= 0 else dim + ndim + 1


def _along(
    func: Callable[..., Tensor], x: Stacked, dim: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Functions along one dimension that keep the shape, such as the softmax."""
    known = isinstance(dim, int) and not isinstance(dim, bool)
    if not known or x.dim() == 0 or kwargs.get("out") is not None:
        return NotImplemented
    return x.like(func(x.rows, _shifted(dim, x.dim()), *args, **kwargs))


RULES: dict[Any, Rule] = {
    **{
        func: partial(_over, getattr(torch, name))
        for name in ("sum", "mean", "amax", "amin", "logsumexp")
        for func in (getattr(torch, name), getattr(Tensor, name))
    },
    **{
        func: partial(_along, func)
        for name in ("softmax", "log_softmax", "cumsum")
        for func in (getattr(torch, name), getattr(Tensor, name))
    },
    functional.softmax: partial(_along, functional.softmax),
    functional.log_softmax: partial(_along, functional.log_softmax),
}
