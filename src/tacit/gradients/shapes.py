"""Views, joins and copies: the same, one dimension further."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.stacked import Rule, Stacked, first_stacked, rows_of


def _dim(dim: int, ndim: int) -> int:
    """A logical dimension as one of the rows."""
    return dim + 1 if dim >= 0 else dim + ndim + 1


def _sizes(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes that are given one by one or together."""
    together = len(sizes) == 1 and isinstance(sizes[0], tuple | list)
    return tuple(sizes[0]) if together else sizes


def _view(x: Stacked, *sizes: Any, **named: Any) -> Any:
    sizes = _sizes(sizes)
    if named or not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    if x.gradient is not None and tuple(sizes) == tuple(x.shape):
        return x
    try:
        return x.like(x.rows.view(len(x.rows), *_known(sizes, x)))
    except RuntimeError:
        # The rows may be in another order in memory than the module's tensor would be.
        if math.prod(_known(sizes, x)) != x.numel():
            raise
        x.rows = x.rows.contiguous()
        return x.like(x.rows.view(len(x.rows), *_known(sizes, x)))


def _known(sizes: Sequence[int], x: Stacked) -> tuple[int, ...]:
    """The sizes with a number in the place of −1."""
    if -1 not in sizes:
        return tuple(sizes)
    rest = -math.prod(sizes)
    return tuple(x.numel() // max(rest, 1) if size == -1 else size for size in sizes)


def _reshape(x: Stacked, *sizes: Any, shape: Any = None) -> Any:
    sizes = _sizes(sizes if shape is None else (shape,))
    return x.like(x.rows.reshape(len(x.rows), *_known(sizes, x)))


def _view_as(x: Tensor, other: Tensor) -> Any:
    return _view(x, *other.shape) if isinstance(x, Stacked) else x.view(other.shape)


def _flatten(x: Stacked, start_dim: int = 0, end_dim: int = -1) -> Any:
    if x.dim() == 0 or not isinstance(start_dim, int):
        return NotImplemented
    return x.like(x.rows.flatten(_dim(start_dim, x.dim()), _dim(end_dim, x.dim())))


def _unflatten(x: Stacked, dim: int, sizes: Any) -> Any:
    if not isinstance(dim, int):
        return NotImplemented
    return x.like(x.rows.unflatten(_dim(dim, x.dim()), sizes))  # type: ignore[no-untyped-call]


def _transpose(x: Stacked, dim0: int, dim1: int) -> Any:
    ndim = x.dim()
    if ndim == 0:
        return NotImplemented
    return x.like(x.rows.transpose(_dim(dim0, ndim), _dim(dim1, ndim)))


def _turned(x: Stacked) -> Any:
    """The transpose of a matrix."""
    return x.like(x.rows.transpose(1, 2)) if x.dim() == 2 else NotImplemented


def _last_transposed(x: Stacked) -> Any:
    return x.like(x.rows.mT) if x.dim() >= 2 else NotImplemented


def _permute(x: Stacked, *dims: Any, **named: Any) -> Any:
    dims = _sizes(dims or (named["dims"],))
    return x.like(x.rows.permute(0, *(_dim(dim, x.dim()) for dim in dims)))


def _movedim(x: Stacked, source: Any, destination: Any) -> Any:
    def moved(dims: Any) -> tuple[int, ...]:
        dims = (dims,) if isinstance(dims, int) else dims
        return tuple(_dim(dim, x.dim()) for dim in dims)

    return x.like(x.rows.movedim(moved(source), moved(destination)))


def _unsqueeze(x: Stacked, dim: int) -> Any:
    return x.like(x.rows.unsqueeze(_dim(dim, x.dim() + 1)))


def _squeeze(x: Stacked, dim: Any = None) -> Any:
    shape = x.rows.shape
    dims = range(len(shape) - 1) if dim is None else (dim,) if isinstance(dim, int) else dim
    return x.like(x.rows.squeeze(tuple(_dim(axis, x.dim()) for axis in dims)))


def _expand(x: Stacked, *sizes: Any, **named: Any) -> Any:
    if named:
        return NotImplemented
    sizes = _sizes(sizes)
    new = len(sizes) - x.dim()
    rows = x.rows[(slice(None), *([None] * new))] if new > 0 else x.rows
    return x.like(rows.expand(len(rows), *sizes))


def _expand_as(x: Tensor, other: Tensor) -> Any:
    return _expand(x, *other.shape) if isinstance(x, Stacked) else x.expand(other.shape)


def _parts(func: Callable[..., Any], x: Stacked, *args: Any, **kwargs: Any) -> Any:
    """Functions that cut a tensor along a dimension, the last argument or `dim`."""
    if "dim" in kwargs:
        dim = kwargs.pop("dim")
    else:
        before = 0 if func is torch.unbind else 1
        dim = args[before] if len(args) > before else 0
        args = args[:before]
    if x.dim() == 0:
        return NotImplemented
    pieces = func(x.rows, *args, **kwargs, dim=_dim(dim, x.dim()))
    return type(pieces)(x.like(piece) for piece in pieces)


def _split(x: Stacked, split_size: Any, dim: int = 0) -> Any:
    return tuple(x.like(piece) for piece in torch.split(x.rows, split_size, _dim(dim, x.dim())))


def _iter(x: Stacked) -> Any:
    return iter(x.like(piece) for piece in x.rows.unbind(1)) if x.dim() else NotImplemented


def _joined(func: Callable[..., Tensor], tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    """`cat` and `stack`."""
    if out is not None or not isinstance(dim, int):
        return NotImplemented
    some = first_stacked(*tensors)
    # cat leaves out empty vectors [0], whatever the shape of the others.
    if func is torch.cat and len({x.dim() for x in tensors}) > 1:
        return NotImplemented
    ndim = tensors[0].dim() + (func is torch.stack)
    rows = [rows_of(x, some.stack) for x in tensors]
    return some.like(func(rows, _dim(dim, ndim)))


def _copy(func: Callable[..., Tensor], x: Any, *args: Any, **kwargs: Any) -> Any:
    """Functions of one tensor that keep its shape: copies, conversions, new tensors alike."""
    if not isinstance(x, Stacked) or any(isinstance(a, Stacked) for a in kwargs.values()):
        return NotImplemented
    # The order in memory changes no number.
    kwargs.pop("memory_format", None)
    # For to(other) and type_as(other).
    args = tuple(a.rows if isinstance(a, Stacked) else a for a in args)
    result = func(x.rows, *args, **kwargs)
    return x if result is x.rows else x.like(result)


def _copy_into(x: Any, source: Tensor, non_blocking: bool = False) -> Any:
    if not isinstance(x, Stacked):
        return NotImplemented
    if isinstance(source, Stacked):
        missing = x.dim() - source.dim()
        source = source.rows[(slice(None), *([None] * missing))] if missing > 0 else source.rows
    x.rows.copy_(source, non_blocking)
    return x.written()


def _getitem(x: Any, index: Any) -> Any:
    at = _row_index(x, index)
    return NotImplemented if at is None else x.like(x.rows[at])


def _setitem(x: Any, index: Any, value: Any) -> Any:
    at = _row_index(x, index)
    if at is None:
        return NotImplemented
    if isinstance(value, Stacked):
        shape = x.rows[at].shape
        missing = len(shape) - value.rows.ndim
        if missing < 0:
            return NotImplemented
        value = value.rows[(slice(None), *([None] * missing))]
    x.rows[at] = value
    x.written()
    return None


def _row_index(x: Any, index: Any) -> Any:
    """The index of the rows; None if it may select other numbers than in each row alone."""
    if not isinstance(x, Stacked):
        return None
    entries = index if isinstance(index, tuple) else (index,)
    basic = (int, slice, type(None), type(Ellipsis))
    advanced = [e for e in entries if not isinstance(e, basic) or isinstance(e, bool)]
    # Several arrays of indices that are apart come first in the result, before the rows.
    plain = all(isinstance(e, Tensor) and not isinstance(e, Stacked) for e in advanced)
    if len(advanced) > 1 or not plain:
        return None
    return (slice(None), *entries)


def _pad(x: Stacked, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    return (
        x.like(functional.pad(x.rows, pad, mode, value)) if mode == "constant" else NotImplemented
    )


def _narrow(x: Stacked, dim: int, start: Any, length: int) -> Any:
    if isinstance(start, Tensor):
        return NotImplemented
    return x.like(x.rows.narrow(_dim(dim, x.dim()), start, length))


def _select(x: Stacked, dim: int, index: int) -> Any:
    return x.like(x.rows.select(_dim(dim, x.dim()), index))


def _repeat(x: Stacked, *sizes: Any, **named: Any) -> Any:
    if named:
        return NotImplemented
    sizes = _sizes(sizes)
    new = len(sizes) - x.dim()
    rows = x.rows[(slice(None), *([None] * new))] if new > 0 else x.rows
    return x.like(rows.repeat(1, *sizes))


COPIES: tuple[Any, ...] = (
    torch.clone, Tensor.clone, torch.detach, Tensor.detach, Tensor.contiguous, Tensor.float,
    Tensor.double, Tensor.half, Tensor.bfloat16, Tensor.long, Tensor.int, Tensor.bool, Tensor.to,
    Tensor.type_as, Tensor.cpu, Tensor.cuda, torch.zeros_like, torch.ones_like, torch.empty_like,
    torch.full_like, Tensor.zero_, Tensor.fill_, Tensor.data.__get__,  # type: ignore[attr-defined]
)  # fmt: skip
RULES: dict[Any, Rule] = {
    Tensor.view: _view,
    Tensor.view_as: _view_as,
    **dict.fromkeys((torch.reshape, Tensor.reshape), _reshape),
    **dict.fromkeys((torch.flatten, Tensor.flatten), _flatten),
    **dict.fromkeys((torch.unflatten, Tensor.unflatten), _unflatten),
    **dict.fromkeys(
        (torch.transpose, Tensor.transpose, torch.swapaxes, Tensor.swapaxes), _transpose
    ),
    **dict.fromkeys((torch.t, Tensor.t, Tensor.T.__get__), _turned),  # type: ignore[attr-defined]
    Tensor.mT.__get__: _last_transposed,  # type: ignore[attr-defined]
    **dict.fromkeys((torch.permute, Tensor.permute), _permute),
    **dict.fromkeys((torch.movedim, Tensor.movedim), _movedim),
    **dict.fromkeys((torch.unsqueeze, Tensor.unsqueeze), _unsqueeze),
    **dict.fromkeys((torch.squeeze, Tensor.squeeze), _squeeze),
    Tensor.expand: _expand,
    Tensor.expand_as: _expand_as,
    Tensor.repeat: _repeat,
    **dict.fromkeys((torch.chunk, Tensor.chunk), partial(_parts, torch.chunk)),
    **dict.fromkeys((torch.unbind, Tensor.unbind), partial(_parts, torch.unbind)),
    **dict.fromkeys((torch.split, Tensor.split, Tensor.split_with_sizes), _split),
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), partial(_joined, torch.cat)),
    torch.stack: partial(_joined, torch.stack),
    **{func: partial(_copy, func) for func in COPIES},
    Tensor.copy_: _copy_into,
    Tensor.__getitem__: _getitem,
    Tensor.__setitem__: _setitem,
    Tensor.__iter__: _iter,
    functional.pad: _pad,
    **dict.fromkeys((torch.narrow, Tensor.narrow), _narrow),
    **dict.fromkeys((torch.select, Tensor.select), _select),
}
