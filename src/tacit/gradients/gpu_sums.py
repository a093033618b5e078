"""Sums of clipped gradients of single samples on a GPU, client by client.

All kernels have a fixed amount of work, whatever the samples are, so that they can be captured:
which samples belong to a client is read on the device. Norms, products and sums are computed in
float64, and added in a fixed order: see `tacit.core.rounded_sums`. What a sample or another client
has changes no bit of a sum. The first dimension of a grid is for numbers that may be large: CUDA
allows 2³¹ programs in it, and 65,535 in the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.gradients.products import LARGEST_SQUARE, OuterProducts
from tacit.privacy.clipping import margin

# Numbers that a program reads at a time, and samples of which it reads some.
NUMBERS, SAMPLES = 4096, 16
# Rows and columns at most of a tile of outer products, each by one program.
OUTER_ROWS, OUTER_COLUMNS = 32, 64
# Samples of a client for each program, if programs share them; and numbers of all their sums.
FEW_SAMPLES, MOST_PARTS = 64, 1 << 22


@triton.jit
def _squares(
    x, b, batch, x_b, x_i, width, SQUARED: tl.constexpr, SAMPLES: tl.constexpr,
    NUMBERS: tl.constexpr,
):  # fmt: skip
    """The sum of squares of each of some rows, or of numbers that are squares, float64."""
    total = tl.zeros((SAMPLES, NUMBERS), dtype=tl.float64)
    for low in range(0, width, NUMBERS):
        i = low + tl.arange(0, NUMBERS)
        inside = (b < batch)[:, None] & (i < width)[None, :]
        number = tl.load(x + b[:, None] * x_b + i[None, :] * x_i, inside, 0.0).to(tl.float64)
        total += number if SQUARED else number * number
    return tl.sum(total, 1)


@triton.jit
def _norms_kernel(
    norms, left, right, left_b, left_o, right_b, right_i, outputs, width, batch,
    LEFT: tl.constexpr, SQUARED: tl.constexpr, FIRST: tl.constexpr, LARGEST: tl.constexpr,
    SAMPLES: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Adds the squared norm of some samples' gradients by one parameter to those by others."""
    b = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    square = _squares(right, b, batch, right_b, right_i, width, SQUARED, SAMPLES, NUMBERS)
    if LEFT:
        other = _squares(left, b, batch, left_b, left_o, outputs, False, SAMPLES, NUMBERS)
        square = tl.where(square > LARGEST, float("inf"), square) * other
    if not FIRST:
        square += tl.load(norms + b, b < batch, 0.0)
    tl.store(norms + b, square, b < batch)


@triton.jit
def _factors_kernel(norms, factors, bound, batch, MARGIN: tl.constexpr, SAMPLES: tl.constexpr):
    """As `clipping_factors`. The margin covers that Triton passes the bound in float32, too."""
    b = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)
    square = tl.load(norms + b, b < batch, 0.0)
    # Infinite for a gradient of zero.
    share = bound / tl.sqrt(square)
    share = tl.where(share < 1.0 + MARGIN, share * (1.0 - MARGIN), 1.0)
    # Below the smallest normal number, factors have too few digits. NaN is not below infinity.
    full = (square < float("inf")) & (share >= 1.1754943508222875e-38)
    tl.store(factors + b, tl.where(full, share, 0.0).to(tl.float32), b < batch)


@triton.jit
def _sums_kernel(
    factors, left, right, bounds, out, clients, left_b, left_o, right_b, right_i, outputs, width,
    out_client, out_piece, LEFT: tl.constexpr, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr,
    SAMPLES: tl.constexpr,
):  # fmt: skip
    """Adds up some columns, or a tile of outer products, of one piece of a client's samples."""
    client, tile = tl.program_id(0) % clients, tl.program_id(0) // clients
    piece, pieces = tl.program_id(1), tl.num_programs(1)
    low, high = tl.load(bounds + client), tl.load(bounds + client + 1)
    length = (high - low + pieces - 1) // pieces
    low += piece * length
    high = tl.minimum(high, low + length)
    across = (width + WIDTH - 1) // WIDTH
    i = (tile % across) * WIDTH + tl.arange(0, WIDTH)
    o = (tile // across) * OUTPUTS + tl.arange(0, OUTPUTS)
    place = out + client.to(tl.int64) * out_client + piece.to(tl.int64) * out_piece
    total = tl.zeros((OUTPUTS if LEFT else SAMPLES, WIDTH), dtype=tl.float64)
    for first in range(low, high, SAMPLES):
        b = first + tl.arange(0, SAMPLES)
        factor = tl.load(factors + b, b < high, 0.0)
        some = (b < high)[:, None] & (i < width)[None, :]
        number = tl.load(right + b[:, None] * right_b + i[None, :] * right_i, some, 0.0)
        # Samples with the factor zero may have gradients that are not finite. Loading only others
        # would mean to wait for the factors first.
        number = tl.where(factor[:, None] != 0, number, 0.0).to(tl.float64)
        if LEFT:
            some = (o < outputs)[:, None] & (b < high)[None, :]
            other = tl.load(left + b[None, :] * left_b + o[:, None] * left_o, some, 0.0)
            other = tl.where(factor[None, :] != 0, other, 0.0).to(tl.float64) * factor[None, :]
            total = tl.dot(other, number, total, input_precision="ieee", out_dtype=tl.float64)
        else:
            total += factor[:, None] * number
    if LEFT:
        some = (o < outputs)[:, None] & (i < width)[None, :]
        tl.store(place + o[:, None] * width + i[None, :], total.to(tl.float32), some)
    else:
        tl.store(place + i, tl.sum(total, 0).to(tl.float32), i < width)


@triton.jit
def _add_parts_kernel(parts, out, width, out_stride, pieces, clients, COLUMNS: tl.constexpr):
    """Adds up the sums of all pieces of a client's samples."""
    blocks = tl.cdiv(width, COLUMNS)
    client = (tl.program_id(0) // blocks).to(tl.int64)
    i = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), dtype=tl.float64)
    for piece in range(pieces):
        total += tl.load(parts + (piece * clients + client) * width + i, i < width, 0.0)
    tl.store(out + client * out_stride + i, total.to(tl.float32), i < width)


def write_clipped_sums(
    products: Sequence[OuterProducts], bound: float, bounds: Tensor, out: Tensor
) -> None:
    """Clip the gradient of each sample to the norm `bound`, and sum those of each client.

    Args:
        products: The gradients of B samples by all weights, block by block, float32.
        bound: The largest norm. A gradient that is not finite counts as zero.
        bounds: Samples bounds[i] to bounds[i + 1] are client i's, int64 [n + 1], on the GPU.
        out: Where to write, float32 [n, P], with contiguous rows.
    """
    factors = clipped_factors(products, bound)
    clients, width = out.shape
    average = max(1, len(factors) // clients)
    # Programs share the samples of a client that has many. What each adds up is rounded to float32.
    pieces = max(1, min(average // FEW_SAMPLES, MOST_PARTS // out.numel()))
    parts = out[None] if pieces == 1 else out.new_empty(pieces, clients, width)
    columns = torch.split(parts, [block.width for block in products], 2)
    for block, part in zip(products, columns, strict=True):
        _write_sums(block, factors, bounds, part)
    if pieces > 1:
        _add_parts_kernel[(triton.cdiv(width, 256) * clients,)](
            parts, out, width, out.stride(0), pieces, clients, COLUMNS=256, num_warps=4
        )


def clipped_factors(products: Sequence[OuterProducts], bound: float) -> Tensor:
    """The factor of each sample that clips its gradient to the norm `bound`, float32 [B]."""
    batch = len(products[0].right)
    norms = torch.empty(batch, dtype=torch.float64, device=products[0].right.device)
    for number, block in enumerate(products):
        right = block.right if block.squares is None else block.squares
        left = right if block.left is None else block.left
        numbers = min(1024, _power(max(left.shape[1], right.shape[1])))
        samples = min(SAMPLES, NUMBERS // numbers)
        _norms_kernel[(triton.cdiv(batch, samples),)](
            norms, left, right, *left.stride(), *right.stride(), left.shape[1], right.shape[1],
            batch, LEFT=block.left is not None, SQUARED=block.squares is not None,
            FIRST=number == 0, LARGEST=LARGEST_SQUARE, SAMPLES=samples, NUMBERS=numbers,
            num_warps=4,
        )  # fmt: skip
    factors = torch.empty(batch, dtype=torch.float32, device=norms.device)
    _factors_kernel[(triton.cdiv(batch, 128),)](
        norms, factors, bound, batch, MARGIN=margin(torch.float32), SAMPLES=128, num_warps=4
    )
    return factors


def _write_sums(block: OuterProducts, factors: Tensor, bounds: Tensor, parts: Tensor) -> None:
    """Write the sums of each piece of the clients' samples, [pieces, n, width of the block]."""
    pieces, clients, _ = parts.shape
    right, width = block.right, block.right.shape[1]
    if block.left is None:
        left, outputs, tile = right, 1, 1
        samples = min(SAMPLES, triton.next_power_of_2(max(1, len(right) // (clients * pieces))))
        across = min(1024, NUMBERS // samples, _power(width))
    else:
        left, outputs, samples = block.left, block.left.shape[1], SAMPLES
        tile, across = min(OUTER_ROWS, _power(outputs)), min(OUTER_COLUMNS, _power(width))
    tiles = triton.cdiv(outputs, tile) * triton.cdiv(width, across)
    _sums_kernel[(clients * tiles, pieces)](
        factors, left, right, bounds, parts, clients, *left.stride(), *right.stride(), outputs,
        width, parts.stride(1), parts.stride(0), LEFT=block.left is not None, OUTPUTS=tile,
        WIDTH=across, SAMPLES=samples, num_warps=4,
    )  # fmt: skip


def _power(count: int) -> int:
    """The next power of two, at least as wide as tiles have to be."""
    return max(16, int(triton.next_power_of_2(count)))
