"""Products of a sparse matrix with rows on a GPU: each row of the result in one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

# Numbers of a row that one program computes.
BLOCK = 2048


@triton.jit
def _product_kernel(
    begin, source, weight, x, out, rows, width, x_stride, out_stride, ACCUMULATE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    # Rows that are computed at the same time read the same columns of rows that they share.
    row = (tl.program_id(0) % rows).to(tl.int64)
    column = (tl.program_id(0) // rows).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    out += row * out_stride
    if ACCUMULATE:
        total = tl.load(out + column, inside, 0.0)
    else:
        total = tl.zeros((BLOCK,), dtype=out.dtype.element_ty)
    for entry in range(tl.load(begin + row), tl.load(begin + row + 1)):
        own = x + tl.load(source + entry) * x_stride
        total += tl.load(weight + entry) * tl.load(own + column, inside, 0.0)
    tl.store(out + column, total, inside)


def write(
    begin: Tensor, source: Tensor, weight: Tensor, x: Tensor, out: Tensor, accumulate: bool
) -> None:
    """Write A·x into `out` [n, P], or add it, for entries of A in rows `begin` [n + 1]."""
    # One dimension: CUDA allows 2³¹ programs in the first, and 65,535 in the others.
    grid = (len(out) * triton.cdiv(x.shape[1], BLOCK),)
    _product_kernel[grid](
        begin, source, weight, x, out, len(out), x.shape[1], x.stride(0), out.stride(0),
        ACCUMULATE=accumulate, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
