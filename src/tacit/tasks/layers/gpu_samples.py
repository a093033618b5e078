"""Gradients of single samples on a GPU: convolutions, norms, and clipped sums of clients.

All kernels have a fixed amount of work, whatever the samples are, so that they can be captured:
which samples belong to a client is read on the device. Products are always in full float32, because
rounding must not make a clipped gradient longer than its bound. Sums are added in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.privacy.clipping import margin
from tacit.tasks.layers.gpu import PROGRAMS, Windows
from tacit.tasks.sample_gradients import OuterProducts

# Filters, taps and samples of which one program computes the gradients: each thread has one sample.
FILTERS, TAPS, SAMPLES = 8, 8, 64
# Samples and weights that one program adds up at a time.
ROWS, COLUMNS = 16, 128


@triton.jit
def _filter_gradients_kernel(
    x, dy, out, squares, out_stride, taps: tl.constexpr, filters: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, batch: tl.constexpr, row_stride: tl.constexpr,
    column_stride: tl.constexpr, kernel_height: tl.constexpr, kernel_width: tl.constexpr,
    tap_channel: tl.constexpr, tap_row: tl.constexpr, tap_column: tl.constexpr,
    BIAS: tl.constexpr, FILTERS: tl.constexpr, TAPS: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(1)
    tap_blocks = (taps + TAPS - 1) // TAPS
    b = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)
    r = (tile % tap_blocks) * TAPS + tl.arange(0, TAPS)
    f = (tile // tap_blocks) * FILTERS + tl.arange(0, FILTERS)
    channel = r // (kernel_height * kernel_width)
    within = r % (kernel_height * kernel_width)
    tap = (
        channel * tap_channel
        + (within // kernel_width) * tap_row
        + (within % kernel_width) * tap_column
    )
    sample = b[None, None, :]
    some_dy = (f < filters)[:, None, None] & (sample < batch)
    some_x = (r < taps)[None, :, None] & (sample < batch)
    from_dy = dy + f[:, None, None] * (rows * columns * batch) + sample
    from_x = x + tap[None, :, None] + sample
    total = tl.zeros((FILTERS, TAPS, SAMPLES), dtype=tl.float32)
    for row in range(rows):
        for column in range(columns):
            gradient = tl.load(from_dy + (row * columns + column) * batch, some_dy, 0.0)
            window = tl.load(from_x + row * row_stride + column * column_stride, some_x, 0.0)
            total += gradient * window
    exact = total.to(tl.float64)
    square = tl.sum(tl.sum(exact * exact, 0), 0)
    own = out + b.to(tl.int64) * out_stride
    tl.store(
        own[None, None, :] + f[:, None, None] * taps + r[None, :, None],
        total,
        some_dy & some_x,
    )
    if BIAS:  # noqa: SIM102 (known when compiling, unlike the other)
        if tile % tap_blocks == 0:
            by_b = tl.zeros((FILTERS, SAMPLES), dtype=tl.float32)
            for position in range(rows * columns):
                by_b += tl.load(
                    dy + (f[:, None] * (rows * columns) + position) * batch + b[None, :],
                    (f < filters)[:, None] & (b < batch)[None, :],
                    0.0,
                )
            tl.store(
                own[None, :] + filters * taps + f[:, None],
                by_b,
                (f < filters)[:, None] & (b < batch)[None, :],
            )
            exact_b = by_b.to(tl.float64)
            square += tl.sum(exact_b * exact_b, 0)
    tl.store(squares + tile * batch + b, square, b < batch)


@triton.jit
def _add_squares_kernel(
    norms, left, right, left_b, left_o, right_b, right_i, outputs, width, batch,
    LEFT: tl.constexpr, SQUARED: tl.constexpr, FIRST: tl.constexpr, SAMPLES: tl.constexpr,
    NUMBERS: tl.constexpr,
):  # fmt: skip
    b = (tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
    inside = (b < batch)[None, :]
    step = tl.arange(0, NUMBERS).to(tl.int64)
    total = tl.zeros((NUMBERS, SAMPLES), dtype=tl.float64)
    for low in range(0, width, NUMBERS):
        i = (low + step)[:, None]
        number = tl.load(right + i * right_i + b[None, :] * right_b, inside & (i < width), 0.0)
        exact = number.to(tl.float64)
        total += exact if SQUARED else exact * exact
    square = tl.sum(total, 0)
    if LEFT:
        other = tl.zeros((NUMBERS, SAMPLES), dtype=tl.float64)
        for low in range(0, outputs, NUMBERS):
            o = (low + step)[:, None]
            number = tl.load(left + o * left_o + b[None, :] * left_b, inside & (o < outputs), 0.0)
            exact = number.to(tl.float64)
            other += exact * exact
        square *= tl.sum(other, 0)
    if not FIRST:
        square += tl.load(norms + b, b < batch, 0.0)
    tl.store(norms + b, square, b < batch)


@triton.jit
def _factors_kernel(norms, factors, bound, margin, batch, SAMPLES: tl.constexpr):
    b = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)
    square = tl.load(norms + b, b < batch, 0.0)
    # Infinite for a gradient of zero.
    share = bound / tl.sqrt(square)
    share = tl.where(share < 1.0 + margin, share * (1.0 - margin), 1.0)
    # Below the smallest normal number, factors have too few digits; that excludes infinity too.
    share = tl.where((square == square) & (share >= 1.1754943508222875e-38), share, 0.0)
    tl.store(factors + b, share.to(tl.float32), b < batch)


@triton.jit
def _weighted_sums_kernel(
    factors, right, bounds, out, right_b, right_i, width, out_client, out_piece,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    client, piece, pieces = tl.program_id(0), tl.program_id(2), tl.num_programs(2)
    low, high = tl.load(bounds + client), tl.load(bounds + client + 1)
    length = (high - low + pieces - 1) // pieces
    low += piece * length
    high = tl.minimum(high, low + length)
    i = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for first in range(low, high, ROWS):
        b = first + tl.arange(0, ROWS)
        factor = tl.load(factors + b, b < high, 0.0)
        # Samples with the factor zero may have gradients that are not finite.
        some = ((b < high) & (factor != 0))[:, None] & (i < width)[None, :]
        gradient = tl.load(right + b[:, None] * right_b + i[None, :] * right_i, some, 0.0)
        total += factor[:, None] * gradient
    own = out + client.to(tl.int64) * out_client + piece.to(tl.int64) * out_piece
    tl.store(own + i, tl.sum(total, 0), i < width)


@triton.jit
def _outer_sums_kernel(
    factors, left, right, bounds, out, left_b, left_o, right_b, right_i, outputs, width,
    out_client, out_piece, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    client, piece, pieces = tl.program_id(0), tl.program_id(2), tl.num_programs(2)
    low, high = tl.load(bounds + client), tl.load(bounds + client + 1)
    length = (high - low + pieces - 1) // pieces
    low += piece * length
    high = tl.minimum(high, low + length)
    blocks = (width + WIDTH - 1) // WIDTH
    i = (tl.program_id(1) % blocks) * WIDTH + tl.arange(0, WIDTH)
    o = (tl.program_id(1) // blocks) * OUTPUTS + tl.arange(0, OUTPUTS)
    total = tl.zeros((OUTPUTS, WIDTH), dtype=tl.float32)
    for first in range(low, high, SAMPLES):
        b = first + tl.arange(0, SAMPLES)
        factor = tl.load(factors + b, b < high, 0.0)
        some = (b < high) & (factor != 0)
        by_output = tl.load(
            left + o[:, None] * left_o + b[None, :] * left_b,
            (o < outputs)[:, None] & some[None, :],
            0.0,
        )
        given = tl.load(
            right + b[:, None] * right_b + i[None, :] * right_i,
            some[:, None] & (i < width)[None, :],
            0.0,
        )
        total = tl.dot(by_output * factor[None, :], given, total, input_precision="ieee")
    own = out + client.to(tl.int64) * out_client + piece.to(tl.int64) * out_piece
    tl.store(
        own + o[:, None] * width + i[None, :],
        total,
        (o < outputs)[:, None] & (i < width)[None, :],
    )


def filter_gradients(
    windows: Windows, x: Tensor, dy: Tensor, bias: bool
) -> tuple[OuterProducts, Callable[[], None]]:
    """The gradient of each sample by the filters of a convolution, and then by b.

    Args:
        windows: The geometry.
        x: Images with padding, [1, C, H, W, B].
        dy: Gradient of the output, [1, F, positions · B].
        bias: Whether there is a b.

    Returns:
        The gradients, and the work that writes them, which may run on another stream.
    """
    _, channels, _, _, batch = x.shape
    filters, taps = dy.shape[1], channels * windows.size[0] * windows.size[1]
    out = x.new_empty(batch, filters * (taps + bias))
    tiles = triton.cdiv(taps, TAPS) * triton.cdiv(filters, FILTERS)
    squares = torch.empty(tiles, batch, dtype=torch.float64, device=x.device)
    _, _, row_stride, column_stride, *rest = windows._offsets(x)

    def write() -> None:
        _filter_gradients_kernel[(triton.cdiv(batch, SAMPLES), tiles)](
            x, dy, out, squares, out.stride(0), taps, filters, windows.rows, windows.columns,
            batch, row_stride, column_stride, *rest, BIAS=bias, FILTERS=FILTERS, TAPS=TAPS,
            SAMPLES=SAMPLES, num_warps=SAMPLES // 32,
        )  # fmt: skip

    return OuterProducts(out, squares=squares.T), write


def write_clipped_sums(
    products: Sequence[OuterProducts], bound: float, bounds: Tensor, out: Tensor
) -> None:
    """Clip the gradient of each sample to the norm `bound`, and sum those of each client.

    Args:
        products: The gradients of B samples by all weights, block by block.
        bound: The largest norm.
        bounds: Samples bounds[i] to bounds[i + 1] are client i's, int64 [n + 1], on the GPU.
        out: Where to write, [n, P].
    """
    factors = _factors(products, bound)
    low = 0
    for block in products:
        _write_sums(block, factors, bounds, out[:, low : low + block.width])
        low += block.width


def _factors(products: Sequence[OuterProducts], bound: float) -> Tensor:
    """The factor of each sample, [B]."""
    batch = len(products[0].right)
    norms = torch.empty(batch, dtype=torch.float64, device=products[0].right.device)
    for number, block in enumerate(products):
        known = block.squares is not None
        right = block.squares if block.squares is not None else block.right
        left = right if block.left is None else block.left
        _add_squares_kernel[(triton.cdiv(batch, 32),)](
            norms, left, right, *left.stride(), *right.stride(), left.shape[1], right.shape[1],
            batch, LEFT=block.left is not None, SQUARED=known, FIRST=number == 0, SAMPLES=32,
            NUMBERS=32, num_warps=4,
        )  # fmt: skip
    factors = torch.empty(batch, dtype=torch.float32, device=norms.device)
    _factors_kernel[(triton.cdiv(batch, 128),)](
        norms, factors, bound, margin(torch.float32), batch, SAMPLES=128, num_warps=4
    )
    return factors


def _write_sums(block: OuterProducts, factors: Tensor, bounds: Tensor, out: Tensor) -> None:
    n, right, left = len(bounds) - 1, block.right, block.left
    width = right.shape[1]
    outputs = 1 if left is None else left.shape[1]
    # Blocks of weights: as many programs as keep a GPU busy, by cutting clients' samples too.
    tile, across = (1, COLUMNS) if left is None else (max(16, min(32, _power(outputs))), 64)
    blocks = triton.cdiv(outputs, tile) * triton.cdiv(width, across)
    pieces = max(1, min(PROGRAMS // (n * blocks), len(right) // (64 * n)))
    parts = out[None] if pieces == 1 else out.new_empty(pieces, n, outputs * width)
    grid = (n, blocks, pieces)
    strides = (parts.stride(1), parts.stride(0))
    if left is None:
        _weighted_sums_kernel[grid](
            factors, right, bounds, parts, *right.stride(), width, *strides,
            ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4,
        )  # fmt: skip
    else:
        _outer_sums_kernel[grid](
            factors, left, right, bounds, parts, *left.stride(), *right.stride(), outputs, width,
            *strides, OUTPUTS=tile, WIDTH=across, SAMPLES=32, num_warps=4,
        )  # fmt: skip
    if pieces > 1:
        torch.sum(parts, 0, out=out)


def _power(count: int) -> int:
    return int(triton.next_power_of_2(count))
