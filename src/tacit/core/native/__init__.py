"""Compiled loops, called by address and without Python's lock; absent where there was no C compiler to install them."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}


@cache
def _library() -> ctypes.CDLL | None:
    found = find_spec("tacit.core.native._kernels")
    try:
        return None if found is None or found.origin is None else ctypes.CDLL(found.origin)
    except OSError:
        return None  # compiled for another machine


def compiled() -> bool:
    """Whether there are compiled loops at all."""
    return _library() is not None


def available(rows: Tensor) -> bool:
    """Whether there are compiled loops for rows such as these, each of them in one piece."""
    fits = (
        rows.device.type == "cpu"
        and rows.dtype in SUFFIX
        and rows.ndim == 2
        and rows.stride(1) == 1
    )
    return fits and compiled()


def mix(
    begin: Tensor,
    source: Tensor,
    weight: Tensor,
    x: Tensor,
    out: Tensor,
    rows: slice,
    onto: bool = False,
) -> None:
    """out[i] = Σ weight[e] x[source[e]] over e in begin[i] … begin[i+1], for the rows asked for.

    That is added to what is in `out` if it comes `onto` it. `begin`, `source` are int64 and `weight` is of the type of
    `x` and `out`; rows of both lie in one piece. Sources are rows of `x`, which nobody checks here.
    """
    if not (x.dtype == out.dtype == weight.dtype and out.shape == (len(begin) - 1, x.shape[1])):
        raise ValueError(
            f"rows {x.dtype} {tuple(x.shape)} for {len(begin) - 1} clients with {weight.dtype} weights"
        )
    _call(
        f"tacit_mix_{SUFFIX[x.dtype]}",
        *(begin.data_ptr(), source.data_ptr(), weight.data_ptr()),
        *(
            x.data_ptr(),
            x.stride(0),
            out.data_ptr(),
            out.stride(0),
            rows.start,
            rows.stop,
            x.shape[1],
        ),
        int(onto),
    )


def add(out: Tensor, a: float, x: Tensor, b: float, y: Tensor | None, rows: slice) -> None:
    """out[i] += a x[i], and then b y[i] if there is a y, for the rows asked for."""
    if not all(
        part is None or (part.shape, part.dtype) == (out.shape, out.dtype) for part in (x, y)
    ):
        raise ValueError(f"rows {x.dtype} {tuple(x.shape)} onto {out.dtype} {tuple(out.shape)}")
    factors = (ctypes.c_double(a), ctypes.c_double(b))
    _call(
        f"tacit_add_{SUFFIX[out.dtype]}",
        *(out.data_ptr(), out.stride(0), ctypes.addressof(factors[0]), x.data_ptr(), x.stride(0)),
        *(ctypes.addressof(factors[1]), *((0, 0) if y is None else (y.data_ptr(), y.stride(0)))),
        *(rows.start, rows.stop, out.shape[1]),
    )


def not_finite(x: Tensor, bad: Tensor, rows: slice) -> None:
    """bad[i] = whether row i of x has a number that is not finite, for the rows asked for; `bad` is of bool."""
    name = f"tacit_not_finite_{SUFFIX[x.dtype]}"
    _call(name, x.data_ptr(), x.stride(0), bad.data_ptr(), rows.start, rows.stop, x.shape[1])


def write_words(
    key: int, tick: int, source: Tensor, target: Tensor, column: int, out: Tensor, rows: slice
) -> None:
    """Write the Philox words of (source, target) at `tick` from a column on into `out` [n, width] of int64."""
    if not (
        out.dtype == torch.int64 and column % 4 == 0 and len(source) == len(target) == len(out)
    ):
        raise ValueError(
            f"words of {len(source)} rows from column {column} on into {out.dtype} {tuple(out.shape)}"
        )
    _call(
        "tacit_words",
        *(source.data_ptr(), target.data_ptr(), tick, key, column),
        *(out.data_ptr(), out.stride(0), rows.start, rows.stop, out.shape[1]),
    )


def add_laplace(
    key: int,
    tick: int,
    begin: Tensor,
    source: Tensor,
    target: Tensor,
    scale: float,
    out: Tensor,
    rows: slice,
) -> None:
    """out[i] += Laplace noise of (source[e], target[e]) for e in begin[i] … begin[i+1], one after the other.

    A negative scale subtracts it. `begin`, `source` and `target` are int64 and in one piece.
    """
    if not (len(begin) == len(out) + 1 and len(source) == len(target)):
        raise ValueError(
            f"noise of {len(source)} edges of {len(begin) - 1} clients onto {tuple(out.shape)}"
        )
    factor = ctypes.c_double(scale)
    _call(
        f"tacit_laplace_{SUFFIX[out.dtype]}",
        *(
            begin.data_ptr(),
            source.data_ptr(),
            target.data_ptr(),
            tick,
            key,
            ctypes.addressof(factor),
        ),
        *(out.data_ptr(), out.stride(0), rows.start, rows.stop, out.shape[1]),
    )


def _call(name: str, *arguments: int) -> None:
    library = _library()
    assert library is not None
    getattr(library, name)(*map(ctypes.c_int64, arguments))
