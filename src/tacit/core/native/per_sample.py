"""Compiled loops for the gradients of single samples."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core import native
from tacit.core.native import SUFFIX

# Bytes that the largest vector of kernels.c has.
VECTOR = 32


def supports(numbers: Tensor) -> bool:
    """Whether there are compiled loops for this type and device."""
    compiled = hasattr(native._library(), "tacit_outer_sums_f32_baseline")
    return compiled and numbers.device.type == "cpu" and numbers.dtype in SUFFIX


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
        flat = (*shapes, self.filters, self.bias)
        return (ctypes.c_int64 * len(flat))(*flat)


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
    numbers = g.as_array()
    scratch = torch.empty(g.scratch, dtype=torch.uint8)
    native._call(
        f"tacit_filter_gradients_{SUFFIX[x.dtype]}",
        *(x.data_ptr(), dy.data_ptr(), len(out), ctypes.addressof(numbers)),
        *(out.data_ptr(), out.stride(0), squares.data_ptr(), scratch.data_ptr()),
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
    native._call(
        f"tacit_outer_sums_{SUFFIX[out.dtype]}",
        *(left.data_ptr(), left.stride(0), left.shape[1]),
        *(right.data_ptr(), right.stride(0), right.shape[1]),
        *(bounds.data_ptr(), len(out), out.data_ptr(), out.stride(0)),
    )
