"""Compiled loops for layers of several clients with different weights, for one thread."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

from tacit.core import native
from tacit.core.native import SUFFIX
from tacit.core.native.per_sample import Geometry

Pair = tuple[int, int]

# At least as many rows as loops combine at a time.
COMBINED = 8
# At least as many samples as loops take at a time, in numbers of 8 bytes.
SAMPLES = 16


def supports(x: Tensor) -> bool:
    """Whether there are compiled loops for layers on this type and device."""
    compiled = hasattr(native._library(), "tacit_dots_f32_baseline")
    return compiled and x.device.type == "cpu" and x.dtype in SUFFIX


def dots(left: Tensor, right: Tensor, start: Tensor | None, out: Tensor) -> None:
    """out[i, m, n] = left[i, m] · right[i, n] + start[i, m].

    Args:
        left: [k, M, width]; the last dimension is contiguous.
        right: [k, N, width]; the last dimension is contiguous.
        start: [k, M] with the stride of `left` and contiguous rows, or None for zeros.
        out: Where to write [k, M, N], of any strides.
    """
    k, rows, width = left.shape
    columns = right.shape[1]
    if not (
        right.shape == (k, columns, width)
        and out.shape == (k, rows, columns)
        and left.dtype == right.dtype == out.dtype
        and all(part.stride(2) == 1 or width == 1 for part in (left, right))
        and (start is None or start.shape == (k, rows))
        and (start is None or k == 1 or start.stride(0) == left.stride(0))
    ):
        raise ValueError(f"products of {tuple(left.shape)} and {tuple(right.shape)}")
    native._call(
        f"tacit_dots_{SUFFIX[out.dtype]}",
        *(k, rows, columns, width, left.data_ptr(), left.stride(0), left.stride(1)),
        *(right.data_ptr(), right.stride(0), right.stride(1)),
        *(0 if start is None else start.data_ptr(), out.data_ptr(), *out.stride()),
    )


def product(factors: Tensor, x: Tensor, out: Tensor, total: Tensor | None = None) -> None:
    """out[i] = factors[i] @ x[i], and total[i] = the sum over the columns of factors[i].

    Args:
        factors: [k, M, R], of any strides.
        x: [k, R, width]; the last dimension is contiguous.
        out: Where to write [k, M, width]; the last dimension is contiguous.
        total: Where to write [k, M] with contiguous rows; None if that is not needed.
    """
    k, count, terms = factors.shape
    width = x.shape[2]
    if not (
        x.shape == (k, terms, width)
        and out.shape == (k, count, width)
        and factors.dtype == x.dtype == out.dtype
        and all(part.stride(2) == 1 or width == 1 for part in (x, out))
        and (total is None or (total.shape, total.dtype) == ((k, count), x.dtype))
        and (total is None or total.stride(1) == 1 or count == 1)
    ):
        raise ValueError(f"the product of {tuple(factors.shape)} and {tuple(x.shape)}")
    scratch = _scratch(count, terms)
    native._call(
        f"tacit_product_{SUFFIX[x.dtype]}",
        *(k, count, terms, width, factors.data_ptr(), *factors.stride()),
        *(x.data_ptr(), x.stride(0), x.stride(1), out.data_ptr(), out.stride(0), out.stride(1)),
        *((0, 0) if total is None else (total.data_ptr(), total.stride(0))),
        scratch.data_ptr(),
    )


def convolve(x: Tensor, filters: Tensor, geometry: Geometry, out: Tensor) -> None:
    """Write the products of filters and the windows of padded images.

    Args:
        x: Images [k, channels, height, width, B], contiguous.
        filters: [k, filters, taps]; those of one client are contiguous.
        geometry: The convolution.
        out: Where to write, [k, filters, rows, columns, B], contiguous.
    """
    numbers = _checked(x, filters, out, geometry)
    scratch = _scratch(geometry.filters, geometry.taps, math.prod(geometry.image))
    native._call(
        f"tacit_convolve_{SUFFIX[x.dtype]}",
        *(len(x), x.data_ptr(), x.stride(0), filters.data_ptr(), filters.stride(0)),
        *(out.data_ptr(), x.shape[-1], ctypes.addressof(numbers), scratch.data_ptr()),
    )


def weight_gradients(x: Tensor, dy: Tensor, geometry: Geometry, out: Tensor) -> None:
    """Write the gradients of filters [k, filters, taps], from those of the output of `convolve`."""
    numbers = _checked(x, out, dy, geometry)
    scratch = _scratch(0, geometry.taps)
    native._call(
        f"tacit_weight_gradients_{SUFFIX[x.dtype]}",
        *(len(x), x.data_ptr(), x.stride(0), dy.data_ptr(), out.data_ptr(), out.stride(0)),
        *(x.shape[-1], ctypes.addressof(numbers), scratch.data_ptr()),
    )


def image_gradients(dy: Tensor, filters: Tensor, geometry: Geometry, out: Tensor) -> None:
    """Write the gradients of padded images, from those of the output of `convolve`."""
    numbers = _checked(out, filters, dy, geometry)
    scratch = _scratch(geometry.taps, geometry.filters, math.prod(geometry.image))
    native._call(
        f"tacit_image_gradients_{SUFFIX[dy.dtype]}",
        *(len(dy), dy.data_ptr(), filters.data_ptr(), filters.stride(0)),
        *(out.data_ptr(), out.stride(0), dy.shape[-1]),
        *(ctypes.addressof(numbers), scratch.data_ptr()),
    )


def pool(
    x: Tensor, size: Pair, stride: Pair, b: Tensor | None, relu: bool
) -> tuple[Tensor, Tensor]:
    """The largest number of each window, plus b, at least zero with ReLU; and its place.

    Args:
        x: Images [k, F, height, width, B], contiguous.
        size: Height and width of a window, at most 256 pixels.
        stride: The distance of windows, at least their size.
        b: [k, F] with contiguous rows, or None.
        relu: Whether numbers below zero become zero.

    Returns:
        Images [k, F, rows, columns, B] and places uint8 of the same shape.
    """
    rows, columns = ((n - s) // d + 1 for n, s, d in zip(x.shape[2:4], size, stride, strict=True))
    y = x.new_empty(*x.shape[:2], rows, columns, x.shape[4])
    where = torch.empty(y.shape, dtype=torch.uint8)
    if not (x.is_contiguous() and (b is None or b.shape == x.shape[:2])):
        raise ValueError(f"pooling of images {tuple(x.shape)}")
    numbers = _windows(x.shape, y.shape, size, stride, relu)
    native._call(
        f"tacit_pool_{SUFFIX[x.dtype]}",
        *(x.data_ptr(), x.shape[0] * x.shape[1], ctypes.addressof(numbers)),
        *((0, 0) if b is None else (b.data_ptr(), b.stride(0))),
        *(y.data_ptr(), where.data_ptr()),
    )
    return y, where


def unpool(
    dy: Tensor,
    pooled: tuple[Tensor, Tensor],
    shape: torch.Size,
    size: Pair,
    stride: Pair,
    relu: bool,
    b_gradient: Tensor | None,
) -> Tensor:
    """The gradient of images of this shape from that of the result of `pool`.

    Args:
        dy: Like the result.
        pooled: What `pool` returned.
        shape: The shape of the images.
        size: As in `pool`, like `stride` and `relu`.
        stride: See there.
        relu: See there.
        b_gradient: Where to write the gradient of b, [k, F] with contiguous rows, or None.
    """
    y, where = pooled
    dy = dy.contiguous()
    dx = dy.new_empty(shape)
    if dy.shape != y.shape:
        raise ValueError(f"a gradient {tuple(dy.shape)} of images {tuple(y.shape)}")
    numbers = _windows(shape, y.shape, size, stride, relu)
    native._call(
        f"tacit_unpool_{SUFFIX[dy.dtype]}",
        *(dy.data_ptr(), y.data_ptr(), where.data_ptr(), shape[0] * shape[1]),
        *(ctypes.addressof(numbers), dx.data_ptr()),
        *((0, 0) if b_gradient is None else (b_gradient.data_ptr(), b_gradient.stride(0))),
    )
    return dx


def _windows(
    images: torch.Size, output: torch.Size, size: Pair, stride: Pair, relu: bool
) -> ctypes.Array[ctypes.c_int64]:
    """The numbers in the order of the struct in C."""
    flat = (*images[2:5], *size, *stride, *output[2:4], images[1], relu)
    return (ctypes.c_int64 * len(flat))(*flat)


def _checked(x: Tensor, filters: Tensor, y: Tensor, g: Geometry) -> ctypes.Array[ctypes.c_int64]:
    """The geometry in the order of the struct in C."""
    k, batch = len(x), x.shape[-1]
    if not (
        x.shape == (k, *g.image, batch)
        and filters.shape == (k, g.filters, g.taps)
        and y.shape == (k, g.filters, *g.output, batch)
        and x.dtype == filters.dtype == y.dtype
        and x.is_contiguous()
        and y.is_contiguous()
        and filters.stride()[1:] == (g.taps, 1)
    ):
        raise ValueError(f"images {tuple(x.shape)} and {tuple(y.shape)} for {g}")
    return g.as_array()


def _scratch(count: int, terms: int, pixels: int = 0) -> Tensor:
    """Room for padded factors, an offset of each row and term, and SAMPLES of terms and pixels."""
    padded = -(-count // COMBINED) * COMBINED
    numbers = padded * terms + 1 + count + terms + SAMPLES * (terms + pixels)
    return torch.empty(numbers, dtype=torch.float64)
