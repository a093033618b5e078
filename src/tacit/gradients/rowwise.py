"""Functions for which rows can be samples, and functions that are computed row by row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tacit.gradients.stacked import Rule, Stacked, first_stacked


def folded(func: Callable[..., Any], ndim: int, x: Stacked, *args: Any, **kwargs: Any) -> Any:
    """A function of samples [B, C, ...] or of one [C, ...], each by itself.

    `ndim` is how many dimensions a sample has. The samples of all rows are one batch.
    """
    if any(isinstance(a, Stacked) for a in (*args, *kwargs.values())):
        return NotImplemented
    if x.dim() == ndim:
        return tree_map(x.like, func(x.rows, *args, **kwargs))
    if x.dim() != ndim + 1:
        return NotImplemented
    result = func(x.rows.flatten(0, 1), *args, **kwargs)
    return tree_map(lambda y: x.like(y.unflatten(0, x.rows.shape[:2])), result)


def row_by_row(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function that is called for each row, for results that are tensors."""
    leaves, spec = tree_flatten((args, kwargs))
    some = first_stacked(*leaves)
    # Not an index for each row, whose gradients would be tensors of all rows.
    single = some.stack.size == 1
    apart = [
        ((x.rows.squeeze(0),) if single else x.rows.unbind()) if isinstance(x, Stacked) else x
        for x in leaves
    ]

    def of_row(row: int) -> Tensor:
        given = [
            x[row] if isinstance(one, Stacked) else x for one, x in zip(leaves, apart, strict=True)
        ]
        positional, named = tree_unflatten(given, spec)
        result: Tensor = func(*positional, **named)
        return result

    if single:
        return some.like(of_row(0)[None])
    return some.like(torch.stack([of_row(row) for row in range(some.stack.size)]))


SAMPLES: dict[int, tuple[str, ...]] = {
    2: ("max_pool1d", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d", "lp_pool1d"),
    3: (
        "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "lp_pool2d",
        "unfold", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
    ),
    4: ("max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d"),
}  # fmt: skip
RULES: dict[Any, Rule] = {
    **{
        func: partial(folded, func, ndim)
        for ndim, names in SAMPLES.items()
        for name in names
        for func in (getattr(functional, name), getattr(functional, f"{name}_with_indices", None))
        if func is not None
    },
    functional.embedding_bag: partial(row_by_row, functional.embedding_bag),
}
