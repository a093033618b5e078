"""Functions that act on each number by itself: the same function, on the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.stacked import Rule, Stacked, aligned

# Names of functions, in whatever module of torch they are; each also with a trailing underscore.
UNARY = (
    "abs absolute acos acosh angle arccos arcsin arctan asin asinh atan atanh bitwise_not ceil "
    "clamp clamp_max clamp_min clip celu cos cosh deg2rad digamma elu erf erfc erfinv exp exp2 "
    "expm1 floor frac gelu hardshrink hardsigmoid hardswish hardtanh isfinite isinf isnan lgamma "
    "leaky_relu log log10 log1p log2 logical_not logit logsigmoid mish nan_to_num neg negative "
    "positive rad2deg reciprocal relu relu6 round rsqrt selu sgn sigmoid sign sin sinc sinh silu "
    "softplus softshrink softsign sqrt square tan tanh tanhshrink threshold trunc expit "
    "isneginf isposinf signbit"
)
SEVERAL = (
    "add addcdiv addcmul arctan2 atan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift "
    "bitwise_right_shift copysign div divide eq floor_divide fmax fmin fmod ge greater "
    "greater_equal gt hypot le less less_equal lerp logaddexp logical_and logical_or logical_xor "
    "lt masked_fill maximum minimum mul multiply ne not_equal pow remainder rsub sub subtract "
    "true_divide where xlogy"
)
OPERATORS = (
    "add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv rfloordiv "
    "ifloordiv mod rmod imod pow rpow ipow neg pos abs invert and rand iand or ror ior xor rxor "
    "ixor lshift rshift ilshift irshift eq ne lt le gt ge div rdiv idiv"
)


def elementwise(func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Any:
    """A function of numbers at the same place of its arguments, which broadcast."""
    if kwargs.get("out") is not None:
        return NotImplemented
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    if len(tensors) == 1:
        ndim = 0
    else:
        ndim = max(x.dim() for x in tensors)
        if _promotes_otherwise(tensors, ndim):
            return NotImplemented
    result = func(
        *(aligned(x, ndim) if isinstance(x, Stacked) else x for x in args),
        **{k: aligned(x, ndim) if isinstance(x, Stacked) else x for k, x in kwargs.items()},
    )
    return _as_stacked(result, tensors)


def _as_stacked(result: Any, tensors: list[Tensor]) -> Any:
    """The result as a Stacked tensor; an argument itself if it was changed in place."""
    if not isinstance(result, Tensor):
        return NotImplemented
    for x in tensors:
        if isinstance(x, Stacked) and result is x.rows:
            return x.written()
    return next(x for x in tensors if isinstance(x, Stacked)).like(result)


def _promotes_otherwise(tensors: list[Tensor], ndim: int) -> bool:
    """Whether types may be promoted otherwise for rows: tensors without dimensions count less."""
    whole = ndim == 0 and all(isinstance(x, Stacked) for x in tensors)
    if whole or len({x.dtype for x in tensors}) == 1:
        return False
    return any(isinstance(x, Stacked) and x.dim() == 0 for x in tensors)


def owners(name: str) -> Iterator[Callable[..., Any]]:
    """All functions of torch with this name: of modules, and methods of tensors."""
    for owner in (torch, Tensor, functional, torch.special, torch._C._nn):
        if callable(function := getattr(owner, name, None)):
            yield function


def _table() -> dict[Any, Rule]:
    names = f"{UNARY} {SEVERAL}".split()
    names += [f"{name}_" for name in names] + [f"__{name}__" for name in OPERATORS.split()]
    return {func: partial(elementwise, func) for name in names for func in owners(name)}


RULES: dict[Any, Rule] = _table()
