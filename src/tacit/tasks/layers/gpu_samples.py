"""Gradients of single samples on a GPU: convolutions, norms, and clipped sums of clients.

All kernels have a fixed amount of work, whatever the samples are, so that they can be captured:
which samples belong to a client is read on the device. Products are always in full float32, because
rounding must not make a clipped gradient longer than its bound. Sums are added in a fixed order and
in float64: see `tacit.core.rounded_sums`. The first dimension of a grid is for numbers that may be
large: CUDA allows 2³¹ programs in it, and 65,535 in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.gradients.products import LARGEST_SQUARE, OuterProducts
from tacit.privacy.clipping import margin
from tacit.tasks.layers.gpu import Windows, index_type

# Warps of a program that computes gradients by filters: they read the same numbers.
WARPS = 8
# Fewer warps than this leave a GPU idle at the end.
ENOUGH_WARPS = 8192
# Programs that keep a GPU busy when clients' samples are added up, and samples for each of them.
ENOUGH_PROGRAMS, FEW_SAMPLES = 1056, 32
# Columns of sums of outer products per program, and samples that it reads at a time.
OUTER_COLUMNS, SAMPLES = 64, 2


@triton.jit
def _filter_gradients_kernel(
    x, dy, out, squares, out_stride, taps: tl.constexpr, filters: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, batch: tl.constexpr, row_stride: tl.constexpr,
    column_stride: tl.constexpr, kernel_height: tl.constexpr, kernel_width: tl.constexpr,
    tap_channel: tl.constexpr, tap_row: tl.constexpr, tap_column: tl.constexpr,
    BIAS: tl.constexpr, FILTERS: tl.constexpr, TAPS: tl.constexpr, WARPS: tl.constexpr,
    UNROLL: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    # Each thread has one sample and one tile of filters and taps, the 32 threads of a warp the same
    # tile. The first dimension is that of the threads, and the others are in registers: no load
    # may be contiguous for the compiler, which would then move numbers between threads.
    thread = tl.arange(0, 32 * WARPS)[:, None, None]
    tap_blocks: tl.constexpr = (taps + TAPS - 1) // TAPS
    filter_blocks: tl.constexpr = (filters + FILTERS - 1) // FILTERS
    programs: tl.constexpr = (tap_blocks * filter_blocks + WARPS - 1) // WARPS
    b = tl.max_contiguous((tl.program_id(0) // programs) * 32 + thread % 32, [1, 1, 1])
    tile = (tl.program_id(0) % programs) * WARPS + thread // 32
    r = (tile % tap_blocks * TAPS + tl.arange(0, TAPS)[None, None, :]).to(INDEX)
    f = (tile // tap_blocks * FILTERS + tl.arange(0, FILTERS)[None, :, None]).to(INDEX)
    within = r % (kernel_height * kernel_width)
    tap = (
        r // (kernel_height * kernel_width) * tap_channel
        + (within // kernel_width) * tap_row
        + (within % kernel_width) * tap_column
    )
    some_dy = (f < filters) & (b < batch)
    some_x = (r < taps) & (b < batch)
    from_dy = dy + f * (rows * columns * batch) + b
    from_x = x + tap + b
    total = tl.zeros((32 * WARPS, FILTERS, TAPS), dtype=tl.float32)
    by_b = tl.zeros((32 * WARPS, FILTERS, 1), dtype=tl.float32)
    for first in range(0, rows * columns, UNROLL):
        for step in tl.static_range(UNROLL):
            position = first + step
            inside = tl.full((1, 1, 1), position, tl.int32) < rows * columns
            offset = position // columns * row_stride + position % columns * column_stride
            gradient = tl.load(from_dy + position * batch, some_dy & inside, 0.0)
            window = tl.load(from_x + offset, some_x & inside, 0.0)
            total += gradient * window
            if BIAS:
                by_b += gradient
    exact = total.to(tl.float64)
    square = tl.sum(tl.sum(exact * exact, 2, keep_dims=True), 1, keep_dims=True)
    own = out + b.to(tl.int64) * out_stride
    tl.store(own + f * taps + r, total, some_dy & some_x)
    if BIAS:
        once = tile % tap_blocks == 0
        exact_b = by_b.to(tl.float64)
        square += tl.where(once, tl.sum(exact_b * exact_b, 1, keep_dims=True), 0.0)
        tl.store(own + tl.max_contiguous(filters * taps + f, [1, 1, 1]), by_b, some_dy & once)
    tl.store(squares + tile * batch + b, square, (b < batch) & (tile < tap_blocks * filter_blocks))


@triton.jit
def _add_squares_kernel(
    norms, left, right, left_b, left_o, right_b, right_i, outputs, width, batch,
    LEFT: tl.constexpr, SQUARED: tl.constexpr, FIRST: tl.constexpr, SAMPLES: tl.constexpr,
    NUMBERS: tl.constexpr, LARGEST: tl.constexpr,
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
        square = tl.where(square > LARGEST, float("inf"), square) * tl.sum(other, 0)
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
    factors, right, bounds, out, clients, right_b, right_i, width, out_client, out_piece,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    client, block = tl.program_id(0) % clients, tl.program_id(0) // clients
    piece, pieces = tl.program_id(1), tl.num_programs(1)
    low, high = tl.load(bounds + client), tl.load(bounds + client + 1)
    length = (high - low + pieces - 1) // pieces
    low += piece * length
    high = tl.minimum(high, low + length)
    i = block * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    for first in range(low, high, ROWS):
        b = first + tl.arange(0, ROWS)
        factor = tl.load(factors + b, b < high, 0.0)
        some = (b < high)[:, None] & (i < width)[None, :]
        gradient = tl.load(right + b[:, None] * right_b + i[None, :] * right_i, some, 0.0)
        # Samples with the factor zero may have gradients that are not finite. Loading only others
        # would mean to wait for the factors first.
        gradient = tl.where(factor[:, None] != 0, gradient, 0.0)
        total += factor[:, None].to(tl.float64) * gradient
    own = out + client.to(tl.int64) * out_client + piece.to(tl.int64) * out_piece
    tl.store(own + i, tl.sum(total, 0).to(tl.float32), i < width)


@triton.jit
def _add_parts_kernel(parts, out, width, out_stride, pieces, clients, COLUMNS: tl.constexpr):
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), dtype=tl.float64)
    for piece in range(pieces):
        total += tl.load(parts + (piece * clients + client) * width + i, i < width, 0.0)
    tl.store(out + client * out_stride + i, total.to(tl.float32), i < width)


@triton.jit
def _outer_sums_kernel(
    factors, left, right, bounds, out, clients, left_b, left_o, right_b, right_i, outputs, width,
    out_client, out_piece, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr,
    SAMPLES: tl.constexpr,
):  # fmt: skip
    client, block = tl.program_id(0) % clients, tl.program_id(0) // clients
    piece, pieces = tl.program_id(1), tl.num_programs(1)
    low, high = tl.load(bounds + client), tl.load(bounds + client + 1)
    length = (high - low + pieces - 1) // pieces
    low += piece * length
    high = tl.minimum(high, low + length)
    blocks = (width + WIDTH - 1) // WIDTH
    i = (block % blocks) * WIDTH + tl.arange(0, WIDTH)
    o = (block // blocks) * OUTPUTS + tl.arange(0, OUTPUTS)
    total = tl.zeros((OUTPUTS, WIDTH), dtype=tl.float64)
    for first in range(low, high, SAMPLES):
        for step in tl.static_range(SAMPLES):
            b = first + step
            inside = b + tl.arange(0, 1) < high
            factor = tl.load(factors + b + tl.arange(0, 1), inside, 0.0)
            by_output = tl.load(left + b * left_b + o * left_o, (o < outputs) & inside, 0.0)
            given = tl.load(right + b * right_b + i * right_i, (i < width) & inside, 0.0)
            # Samples with the factor zero may have gradients that are not finite.
            by_output = tl.where(factor != 0, factor * by_output, 0.0)
            given = tl.where(factor != 0, given, 0.0)
            total += by_output[:, None].to(tl.float64) * given[None, :]
    own = out + client.to(tl.int64) * out_client + piece.to(tl.int64) * out_piece
    tl.store(
        own + o[:, None] * width + i[None, :],
        total.to(tl.float32),
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
    few, many, unroll = tile_of(filters, taps, batch)
    tiles = triton.cdiv(filters, few) * triton.cdiv(taps, many)
    squares = torch.empty(tiles, batch, dtype=torch.float64, device=x.device)
    _, _, row_stride, column_stride, *rest = windows.offsets(x)

    def write() -> None:
        _filter_gradients_kernel[(triton.cdiv(tiles, WARPS) * triton.cdiv(batch, 32),)](
            x, dy, out, squares, out.stride(0), taps, filters, windows.rows, windows.columns,
            batch, row_stride, column_stride, *rest, BIAS=bias, FILTERS=few, TAPS=many,
            WARPS=WARPS, UNROLL=unroll, INDEX=index_type(x, dy), num_warps=WARPS,
        )  # fmt: skip

    return OuterProducts(out, squares=squares.T), write


def tile_of(filters: int, taps: int, batch: int) -> tuple[int, int, int]:
    """Filters and taps of which a thread computes the gradients, and positions at a time.

    Larger tiles read less, smaller ones make more warps.
    """
    warps = triton.cdiv(filters, 8) * triton.cdiv(taps, 4) * triton.cdiv(batch, 32)
    return (8, 4, 2) if warps >= ENOUGH_WARPS else (4, 4, 4)


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
        longest = max(left.shape[1], right.shape[1])
        _add_squares_kernel[(triton.cdiv(batch, 16),)](
            norms, left, right, *left.stride(), *right.stride(), left.shape[1], right.shape[1],
            batch, LEFT=block.left is not None, SQUARED=known, FIRST=number == 0, SAMPLES=16,
            NUMBERS=min(256, _power(longest)), LARGEST=LARGEST_SQUARE, num_warps=4,
        )  # fmt: skip
    factors = torch.empty(batch, dtype=torch.float32, device=norms.device)
    _factors_kernel[(triton.cdiv(batch, 128),)](
        norms, factors, bound, margin(torch.float32), batch, SAMPLES=128, num_warps=4
    )
    return factors


def _write_sums(block: OuterProducts, factors: Tensor, bounds: Tensor, out: Tensor) -> None:
    n, right, left = len(bounds) - 1, block.right, block.left
    average, width = max(1, len(right) // n), right.shape[1]
    outputs = 1 if left is None else left.shape[1]
    rows = min(16, _power(average))
    if left is None:
        tile, across = 1, 2048 // rows
    else:
        tile, across = min(32, max(16, _power(outputs))), OUTER_COLUMNS
    blocks = triton.cdiv(outputs, tile) * triton.cdiv(width, across)
    # Programs share the samples of a client that has many.
    pieces = max(1, min(ENOUGH_PROGRAMS // (n * blocks), average // FEW_SAMPLES))
    parts = out[None] if pieces == 1 else out.new_empty(pieces, n, outputs * width)
    strides = (parts.stride(1), parts.stride(0))
    if left is None:
        _weighted_sums_kernel[(n * blocks, pieces)](
            factors, right, bounds, parts, n, *right.stride(), width, *strides,
            ROWS=rows, COLUMNS=across, num_warps=4,
        )  # fmt: skip
        return _add_up(parts, out)
    operands = (factors, left, right, bounds, parts, n, *left.stride(), *right.stride())
    _outer_sums_kernel[(n * blocks, pieces)](
        *operands, outputs, width, *strides, OUTPUTS=tile, WIDTH=across, SAMPLES=SAMPLES,
        num_warps=4,
    )  # fmt: skip
    return _add_up(parts, out)


def _add_up(parts: Tensor, out: Tensor) -> None:
    pieces, clients, width = parts.shape
    if pieces > 1:
        _add_parts_kernel[(triton.cdiv(width, 128), clients)](
            parts, out, width, out.stride(0), pieces, clients, COLUMNS=128, num_warps=4
        )


def _power(count: int) -> int:
    return int(triton.next_power_of_2(count))
