"""Compiled loops for layers, for one thread: of several clients, and of single samples."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core import native
from tacit.core.native import SUFFIX, Argument, strided
from tacit.core.turns import paused

Pair = tuple[int, int]
# Bytes of the largest vector of loops/samples.h.
VECTOR = 32

# At least as many rows as loops combine at a time.
COMBINED = 8
# At least as many samples as loops take at a time, in numbers of 8 bytes.
SAMPLES = 16


def supports(x: Tensor) -> bool:
    """Whether there are compiled loops for layers on this type and device."""
    compiled = hasattr(native._library(), "tacit_dots_f32_baseline")
    return compiled and x.device.type == "cpu" and x.dtype in SUFFIX


def call(name: str, *arguments: Argument) -> None:
    """Call a loop; meanwhile other threads have their turn."""
    with paused():
        native.call(name, *arguments)


@dataclass(frozen=True)
class Geometry:
    """A convolution of images [channels, height, width], with padding."""

    image: tuple[int, int, int]
    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    output: tuple[int, int]
    filters: int
    bias: bool

    @property
    def scratch(self) -> int:
        """Bytes that `filter_gradients` needs for one group of samples."""
        numbers = math.prod(self.image) + self.filters * math.prod(self.output)
        return (numbers + 4 * (self.taps + 4)) * VECTOR + 8 * (self.taps + 4)

    @property
    def taps(self) -> int:
        """Numbers in a window."""
        return self.image[0] * math.prod(self.size)

    def as_array(self) -> ctypes.Array[ctypes.c_int64]:
        """The numbers in the order of the struct in C."""
        shapes = (*self.image, *self.size, *self.stride, *self.dilation, *self.output)
        return _struct(*shapes, self.filters, self.bias)


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
        and (start is None or rows == 1 or start.stride(1) == 1)
    ):
        raise ValueError(f"products of {tuple(left.shape)} and {tuple(right.shape)}")
    call(
        f"tacit_dots_{SUFFIX[out.dtype]}",
        *(k, rows, columns, width),
        *(left, left.stride(0), left.stride(1), right, right.stride(0), right.stride(1)),
        *(start, out, *out.stride()),
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
    call(
        f"tacit_product_{SUFFIX[x.dtype]}",
        *(k, count, terms, width, factors),
        *factors.stride(),
        *(x, x.stride(0), x.stride(1), out, out.stride(0), out.stride(1)),
        *(*strided(total), scratch),
    )


def convolve(
    x: Tensor,
    filters: Tensor,
    geometry: Geometry,
    out: Tensor,
    b: Tensor | None = None,
    relu: bool = False,
) -> None:
    """Write the products of filters and the windows of padded images.

    Args:
        x: Images [k, channels, height, width, B], contiguous.
        filters: [k, filters, taps]; those of one client are contiguous.
        geometry: The convolution.
        out: Where to write, [k, filters, rows, columns, B], contiguous.
        b: What is added to each channel, [k, filters], or None.
        relu: Whether numbers below zero then become zero.
    """
    _check(x, filters, out, geometry)
    scratch = _scratch(geometry.filters, geometry.taps, math.prod(geometry.image))
    call(
        f"tacit_convolve_{SUFFIX[x.dtype]}",
        *(len(x), *strided(x), *strided(filters), out, x.shape[-1], geometry.as_array(), scratch),
    )
    if b is not None:
        out.add_(b[:, :, None, None, None])
    if relu:
        out.relu_()


def weight_gradients(x: Tensor, dy: Tensor, geometry: Geometry, out: Tensor) -> None:
    """Write the gradients of filters [k, filters, taps], from those of the output of `convolve`."""
    _check(x, out, dy, geometry)
    scratch = _scratch(0, geometry.taps)
    call(
        f"tacit_weight_gradients_{SUFFIX[x.dtype]}",
        *(len(x), *strided(x), dy, *strided(out), x.shape[-1], geometry.as_array(), scratch),
    )


def image_gradients(dy: Tensor, filters: Tensor, geometry: Geometry, out: Tensor) -> None:
    """Write the gradients of padded images, from those of the output of `convolve`."""
    _check(out, filters, dy, geometry)
    scratch = _scratch(geometry.taps, geometry.filters, math.prod(geometry.image))
    call(
        f"tacit_image_gradients_{SUFFIX[dy.dtype]}",
        *(len(dy), dy, *strided(filters), *strided(out), dy.shape[-1]),
        *(geometry.as_array(), scratch),
    )


def pool(
    x: Tensor, size: Pair, stride: Pair, b: Tensor | None, relu: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The largest number of each window, plus b, at least zero with ReLU.

    Args:
        x: Images [k, F, height, width, B], contiguous.
        size: Height and width of a window, at most 256 pixels.
        stride: The distance of windows, at least their size.
        b: [k, F] with contiguous rows, or None.
        relu: Whether numbers below zero become zero.

    Returns:
        Images [k, F, rows, columns, B], and what `unpool` needs: the places of the largest numbers
        in their windows, uint8, and with ReLU the images.
    """
    rows, columns = ((n - s) // d + 1 for n, s, d in zip(x.shape[2:4], size, stride, strict=True))
    y = x.new_empty(*x.shape[:2], rows, columns, x.shape[4])
    where = torch.empty(y.shape, dtype=torch.uint8)
    if not (x.is_contiguous() and (b is None or b.shape == x.shape[:2])):
        raise ValueError(f"pooling of images {tuple(x.shape)}")
    windows = _windows(x.shape, y.shape, size, stride, relu)
    images = x.shape[0] * x.shape[1]
    call(f"tacit_pool_{SUFFIX[x.dtype]}", x, images, windows, *strided(b), y, where)
    return y, (where, y) if relu else (where,)


def unpool(
    dy: Tensor,
    pooled: tuple[Tensor, ...],
    shape: torch.Size,
    size: Pair,
    stride: Pair,
    relu: bool,
    b_gradient: Tensor | None,
) -> Tensor:
    """The gradient of images of this shape from that of the result of `pool`.

    Args:
        dy: Like the result.
        pooled: What `pool` returned with it.
        shape: The shape of the images.
        size: As in `pool`, like `stride` and `relu`.
        stride: See there.
        relu: See there.
        b_gradient: Where to write the gradient of b, [k, F] with contiguous rows, or None.
    """
    dy = dy.contiguous()
    # Images are not read without ReLU.
    where, y = pooled[0], pooled[-1] if relu else dy
    dx = dy.new_empty(shape)
    if dy.shape != where.shape:
        raise ValueError(f"a gradient {tuple(dy.shape)} of images {tuple(where.shape)}")
    call(
        f"tacit_unpool_{SUFFIX[dy.dtype]}",
        *(dy, y, where, shape[0] * shape[1], _windows(shape, dy.shape, size, stride, relu)),
        *(dx, *strided(b_gradient)),
    )
    return dx


def filter_gradients(
    x: Tensor, dy: Tensor, geometry: Geometry, out: Tensor, squares: Tensor
) -> None:
    """Write the gradient of each sample by the filters, and then by b if there is a b.

    Args:
        x: Images with padding [channels, height, width, B], contiguous.
        dy: Gradient of the output [filters, rows, columns, B], contiguous.
        geometry: The convolution.
        out: Where to write, [B, weights].
        squares: Where to write the sum of squares of each gradient by the filters, float64 [B].
    """
    g = geometry
    if not (
        x.shape == (*g.image, len(out))
        and dy.shape == (g.filters, *g.output, len(out))
        and out.shape[1] == g.filters * (g.taps + g.bias)
        and x.dtype == dy.dtype == out.dtype
        and all(part.is_contiguous() for part in (x, dy, out))
        and (squares.shape, squares.dtype) == (out.shape[:1], torch.float64)
    ):
        raise ValueError(f"images {tuple(x.shape)} and {tuple(dy.shape)} for {geometry}")
    scratch = torch.empty(g.scratch, dtype=torch.uint8)
    call(
        f"tacit_filter_gradients_{SUFFIX[x.dtype]}",
        *(x, dy, len(out), g.as_array(), *strided(out), squares, scratch),
    )


def outer_sums(left: Tensor, right: Tensor, bounds: Tensor, out: Tensor) -> None:
    """out[i] = Σ left[b] ⊗ right[b] over bounds[i] ≤ b < bounds[i + 1].

    Args:
        left: [B, O], each row contiguous.
        right: [B, I], each row contiguous.
        bounds: Not decreasing and at most B, int64 [n + 1], contiguous; not checked.
        out: Where to write [n, O·I], each row contiguous.
    """
    if not (
        left.dtype == right.dtype == out.dtype
        and out.shape == (len(bounds) - 1, left.shape[1] * right.shape[1])
        and all(part.stride(1) == 1 or part.shape[1] == 1 for part in (left, right, out))
    ):
        raise ValueError(
            f"outer products of {tuple(left.shape)} and {tuple(right.shape)} for "
            f"{len(bounds) - 1} clients into {tuple(out.shape)}"
        )
    call(
        f"tacit_outer_sums_{SUFFIX[out.dtype]}",
        *(*strided(left), left.shape[1], *strided(right), right.shape[1]),
        *(bounds, len(out), *strided(out)),
    )


def _windows(
    images: torch.Size, output: torch.Size, size: Pair, stride: Pair, relu: bool
) -> ctypes.Array[ctypes.c_int64]:
    """The numbers in the order of the struct in C."""
    return _struct(*images[2:5], *size, *stride, *output[2:4], images[1], relu)


def _struct(*numbers: int) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _check(x: Tensor, filters: Tensor, y: Tensor, g: Geometry) -> None:
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


def _scratch(count: int, terms: int, pixels: int = 0) -> Tensor:
    """Room for padded factors, an offset of each row and term, and SAMPLES of terms and pixels."""
    padded = -(-count // COMBINED) * COMBINED
    numbers = padded * terms + 1 + count + terms + SAMPLES * (terms + pixels)
    return torch.empty(numbers, dtype=torch.float64)
