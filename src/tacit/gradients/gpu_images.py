"""Convolutions and pooling of images [k, C, H, W, B] on a GPU, with the batch last in memory.

The functions are those of `tacit.core.native.layers` for a CPU. A convolution is a product of
filters [F, taps] and windows [taps, positions · B], where taps = C · height · width of a filter.
These kernels do not store the windows. They read number (tap, position, b) from the image at

    offset of the tap + offset of the position + b,

so that neighbouring threads read neighbouring samples, however few channels there are.

Products are as exact as in float32, or in TF32 where products may use that. Gradients of single
samples are always in float32, because rounding must not make a clipped gradient longer than its
bound. Sums are added in a fixed order, so that the same numbers give the same bits.

The first dimension of a grid has the clients too: CUDA allows 2³¹ programs in it, and 65,535 in the
others. Kernels count in 64 bits where a client has many numbers in a tensor, and else in 32 bits.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.core.native.layers import Geometry, Pair
from tacit.gradients.gpu_convolution import PROGRAMS, product_precision

COLUMNS = 256  # columns of the windows that one program computes, of a few taps each
PIXELS = 1024  # numbers that one program pools
# Numbers up to which 32 bits can count them and the rest of a block behind them.
FEW_NUMBERS = 1 << 30
# Warps of a program that computes gradients of single samples: they read the same numbers.
WARPS = 8
# Fewer warps than this leave a GPU idle at the end.
ENOUGH_WARPS = 8192


@triton.jit
def _forward_kernel(
    x, w, b, y, x_client, w_client, b_client, taps: tl.constexpr, filters: tl.constexpr,
    columns: tl.constexpr, batch: tl.constexpr, out_width: tl.constexpr, row_stride: tl.constexpr,
    column_stride: tl.constexpr, kernel_height: tl.constexpr, kernel_width: tl.constexpr,
    tap_channel: tl.constexpr, tap_row: tl.constexpr, tap_column: tl.constexpr,
    FILTERS: tl.constexpr, COLUMNS: tl.constexpr, TAPS: tl.constexpr, BIAS: tl.constexpr,
    RELU: tl.constexpr, PRECISION: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    blocks: tl.constexpr = (columns + COLUMNS - 1) // COLUMNS
    client = (tl.program_id(0) // blocks).to(tl.int64)
    n = (tl.program_id(0) % blocks).to(INDEX) * COLUMNS + tl.arange(0, COLUMNS)
    f = (tl.program_id(1) * FILTERS + tl.arange(0, FILTERS)).to(INDEX)
    position = n // batch
    row, column = position // out_width, position % out_width
    offset = row * row_stride + column * column_stride + n % batch
    x += client * x_client
    w += client * w_client
    total = tl.zeros((FILTERS, COLUMNS), dtype=tl.float32)
    for low in range(0, taps, TAPS):
        r = (low + tl.arange(0, TAPS)).to(INDEX)
        channel = r // (kernel_height * kernel_width)
        within = r % (kernel_height * kernel_width)
        tap = (
            channel * tap_channel
            + (within // kernel_width) * tap_row
            + (within % kernel_width) * tap_column
        )
        weights = tl.load(
            w + f[:, None] * taps + r[None, :], (f < filters)[:, None] & (r < taps)[None, :], 0.0
        )
        windows = tl.load(
            x + tap[:, None] + offset[None, :], (r < taps)[:, None] & (n < columns)[None, :], 0.0
        )
        total = tl.dot(weights, windows, total, input_precision=PRECISION)
    if BIAS:
        total += tl.load(b + client * b_client + f, f < filters, 0.0)[:, None]
    if RELU:
        total = tl.where(total < 0, 0.0, total)
    y += client * filters * columns
    tl.store(
        y + f[:, None] * columns + n[None, :],
        total,
        (f < filters)[:, None] & (n < columns)[None, :],
    )


@triton.jit
def _weight_gradients_kernel(
    x, dy, out, length, x_client, out_client, out_piece, taps: tl.constexpr,
    filters: tl.constexpr, columns: tl.constexpr, batch: tl.constexpr, out_width: tl.constexpr,
    row_stride: tl.constexpr, column_stride: tl.constexpr, kernel_height: tl.constexpr,
    kernel_width: tl.constexpr, tap_channel: tl.constexpr, tap_row: tl.constexpr,
    tap_column: tl.constexpr, FILTERS: tl.constexpr, COLUMNS: tl.constexpr, TAPS: tl.constexpr,
    PRECISION: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    # The second dimension of the grid is that of pieces of the columns, of this length.
    tap_blocks: tl.constexpr = (taps + TAPS - 1) // TAPS
    blocks: tl.constexpr = tap_blocks * ((filters + FILTERS - 1) // FILTERS)
    client, block = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    piece = tl.program_id(1).to(INDEX)
    r = (block % tap_blocks * TAPS + tl.arange(0, TAPS)).to(INDEX)
    f = (block // tap_blocks * FILTERS + tl.arange(0, FILTERS)).to(INDEX)
    channel = r // (kernel_height * kernel_width)
    within = r % (kernel_height * kernel_width)
    tap = (
        channel * tap_channel
        + (within // kernel_width) * tap_row
        + (within % kernel_width) * tap_column
    )
    x += client * x_client
    dy += client * filters * columns
    total = tl.zeros((FILTERS, TAPS), dtype=tl.float32)
    for low in range(piece * length, (piece + 1) * length, COLUMNS):
        n = low + tl.arange(0, COLUMNS)
        valid = n < columns
        position = n // batch
        row, column = position // out_width, position % out_width
        offset = row * row_stride + column * column_stride + n % batch
        windows = tl.load(
            x + offset[:, None] + tap[None, :], valid[:, None] & (r < taps)[None, :], 0.0
        )
        gradient = tl.load(
            dy + f[:, None] * columns + n[None, :], (f < filters)[:, None] & valid[None, :], 0.0
        )
        total = tl.dot(gradient, windows, total, input_precision=PRECISION)
    out += client * out_client + piece.to(tl.int64) * out_piece
    tl.store(
        out + f[:, None] * taps + r[None, :], total, (f < filters)[:, None] & (r < taps)[None, :]
    )


@triton.jit
def _image_gradients_kernel(
    dy, w, dx, w_client, channels: tl.constexpr, filters: tl.constexpr, height: tl.constexpr,
    width: tl.constexpr, batch: tl.constexpr, out_height: tl.constexpr, out_width: tl.constexpr,
    kernel_height: tl.constexpr, kernel_width: tl.constexpr, down: tl.constexpr,
    across: tl.constexpr, tap_down: tl.constexpr, tap_across: tl.constexpr,
    next_down: tl.constexpr, next_across: tl.constexpr, CHANNELS: tl.constexpr,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    # Pixels whose row and column leave the same remainders by the strides are in the windows of
    # the same taps, which are `next` apart. A program computes pixels of one pair of remainders.
    coarse_width: tl.constexpr = (width + across - 1) // across
    numbers: tl.constexpr = (height + down - 1) // down * coarse_width * batch
    blocks: tl.constexpr = (numbers + COLUMNS - 1) // COLUMNS
    block, group = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    rest, client = group % (down * across), (group // (down * across)).to(tl.int64)
    n = block.to(INDEX) * COLUMNS + tl.arange(0, COLUMNS)
    c = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(INDEX)
    b, pixel = n % batch, n // batch
    row = pixel // coarse_width * down + rest // across
    column = pixel % coarse_width * across + rest % across
    inside = (n < numbers) & (row < height) & (column < width)
    first_i, first_j = kernel_height, kernel_width
    for tap in tl.static_range(kernel_height - 1, -1, -1):
        first_i = tl.where((rest // across - tap * tap_down) % down == 0, tap, first_i)
    for tap in tl.static_range(kernel_width - 1, -1, -1):
        first_j = tl.where((rest % across - tap * tap_across) % across == 0, tap, first_j)
    taps_i = (kernel_height - first_i + next_down - 1) // next_down
    taps_j = (kernel_width - first_j + next_across - 1) // next_across
    outputs: tl.constexpr = out_height * out_width * batch
    taps: tl.constexpr = kernel_height * kernel_width
    depths: tl.constexpr = (filters + DEPTH - 1) // DEPTH
    dy += client * filters * outputs
    w += client * w_client
    total = tl.zeros((CHANNELS, COLUMNS), dtype=tl.float32)
    for step in range(taps_i * taps_j * depths):
        hit = step // depths
        i, j = first_i + hit // taps_j * next_down, first_j + hit % taps_j * next_across
        f = (step % depths * DEPTH + tl.arange(0, DEPTH)).to(INDEX)
        top, left = row - i * tap_down, column - j * tap_across
        valid = inside & (top >= 0) & (left >= 0)
        valid = valid & (top // down < out_height) & (left // across < out_width)
        offset = (top // down * out_width + left // across) * batch + b
        weights = tl.load(
            w + (f[None, :] * channels + c[:, None]) * taps + i * kernel_width + j,
            (f < filters)[None, :] & (c < channels)[:, None], 0.0,
        )  # fmt: skip
        gradient = tl.load(
            dy + f[:, None] * outputs + offset[None, :],
            (f < filters)[:, None] & valid[None, :], 0.0,
        )  # fmt: skip
        total = tl.dot(weights, gradient, total, input_precision=PRECISION)
    dx += client * (channels * height * width * batch)
    pixels = (row * width + column) * batch + b
    tl.store(
        dx + c[:, None] * (height * width * batch) + pixels[None, :], total,
        (c < channels)[:, None] & inside[None, :],
    )  # fmt: skip


@triton.jit
def _pool_kernel(
    x, bias, y, where, numel, b_client, channels: tl.constexpr, height: tl.constexpr,
    width: tl.constexpr, batch: tl.constexpr, out_height: tl.constexpr, out_width: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
    BLOCK: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    inside = index < numel
    b = index % batch
    position = index // batch
    column, row = position % out_width, (position // out_width) % out_height
    image = position // (out_width * out_height)  # client and channel
    corner = x + ((image * height + row * DOWN) * width + column * ACROSS) * batch + b
    largest = tl.load(corner, inside, 0.0)
    argmax = tl.zeros((BLOCK,), dtype=tl.int16)
    for i in tl.static_range(HEIGHT):
        for j in tl.static_range(WIDTH):
            value = tl.load(corner + (i * width + j) * batch, inside, 0.0)
            better = (value > largest) | (value != value)
            largest = tl.where(better, value, largest)
            argmax = tl.where(better, i * WIDTH + j, argmax).to(tl.int16)
    if BIAS:
        client = (image // channels).to(tl.int64)
        largest += tl.load(bias + client * b_client + image % channels, inside, 0.0)
    if RELU:
        # No gradient flows back from a window without a positive number.
        argmax = tl.where(largest <= 0, -1, argmax).to(tl.int16)
        largest = tl.where(largest < 0, 0.0, largest)
    tl.store(y + index, largest, inside)
    tl.store(where + index, argmax, inside)


@triton.jit
def _unpool_kernel(
    dy, where, dx, numel, height: tl.constexpr, width: tl.constexpr, batch: tl.constexpr,
    out_height: tl.constexpr, out_width: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, BLOCK: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    inside = index < numel
    b = index % batch
    pixel = index // batch
    column, row, image = pixel % width, (pixel // width) % height, pixel // (width * height)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    # The windows that a pixel is in, from the last to the first.
    for up in tl.static_range((HEIGHT + DOWN - 1) // DOWN):
        for left in tl.static_range((WIDTH + ACROSS - 1) // ACROSS):
            top, first = row // DOWN - up, column // ACROSS - left
            i, j = row - top * DOWN, column - first * ACROSS
            pooled = inside & (i < HEIGHT) & (j < WIDTH) & (top >= 0) & (first >= 0)
            pooled = pooled & (top < out_height) & (first < out_width)
            source = ((image * out_height + top) * out_width + first) * batch + b
            chosen = tl.load(where + source, pooled, -1)
            gradient = tl.load(dy + source, pooled, 0.0)
            total += tl.where(pooled & (chosen == i * WIDTH + j), gradient, 0.0)
    tl.store(dx + index, total, inside)


@triton.jit
def _filter_gradients_kernel(
    x, dy, out, squares, out_stride, taps: tl.constexpr, filters: tl.constexpr,
    positions: tl.constexpr, batch: tl.constexpr, out_width: tl.constexpr,
    row_stride: tl.constexpr, column_stride: tl.constexpr, kernel_height: tl.constexpr,
    kernel_width: tl.constexpr, tap_channel: tl.constexpr, tap_row: tl.constexpr,
    tap_column: tl.constexpr, BIAS: tl.constexpr, FILTERS: tl.constexpr, TAPS: tl.constexpr,
    WARPS: tl.constexpr, UNROLL: tl.constexpr, INDEX: tl.constexpr,
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
    from_dy = dy + f * (positions * batch) + b
    from_x = x + tap + b
    total = tl.zeros((32 * WARPS, FILTERS, TAPS), dtype=tl.float32)
    by_b = tl.zeros((32 * WARPS, FILTERS, 1), dtype=tl.float32)
    for first in range(0, positions, UNROLL):
        for step in tl.static_range(UNROLL):
            position = tl.full((1, 1, 1), first + step, INDEX)
            inside = position < positions
            offset = position // out_width * row_stride + position % out_width * column_stride
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
        tl.store(own + tl.max_contiguous(filters * taps + f, [1, 1, 1]), by_b, some_dy & once)
    tl.store(squares + tile * batch + b, square, (b < batch) & (tile < tap_blocks * filter_blocks))


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
        b: What is added to each channel, [k, F] with contiguous rows, or None.
        relu: Whether numbers below zero then become zero.
    """
    k, count, taps = filters.shape
    columns = out[0, 0].numel()
    block, width = _block(count, 64), COLUMNS if taps <= 32 else COLUMNS // 2
    bias = filters if b is None else b
    _forward_kernel[(triton.cdiv(columns, width) * k, triton.cdiv(count, block))](
        x, filters, bias, out, x.stride(0), filters.stride(0), bias.stride(0), taps, count,
        columns, *_offsets(geometry, x.shape[4]), FILTERS=block, COLUMNS=width, TAPS=32,
        BIAS=b is not None, RELU=relu, PRECISION=product_precision(),
        INDEX=_index_type(x[0], out[0]), num_warps=4,
    )  # fmt: skip


def weight_gradients(x: Tensor, dy: Tensor, geometry: Geometry, out: Tensor) -> None:
    """Write the gradients of filters [k, filters, taps], from those of the output of `convolve`."""
    k, count, taps = out.shape
    columns = dy[0, 0].numel()
    block, filters = _block(taps, 64), _block(count, 64)
    blocks = triton.cdiv(taps, block) * triton.cdiv(count, filters)
    # Programs share the columns of a client where there are few clients.
    pieces = max(1, min(PROGRAMS // (k * blocks), columns // 256))
    length = triton.cdiv(triton.cdiv(columns, pieces), 32) * 32
    pieces = triton.cdiv(columns, length)
    parts = out[:, None] if pieces == 1 else out.new_empty(k, pieces, count, taps)
    _weight_gradients_kernel[(blocks * k, pieces)](
        x, dy, parts, length, x.stride(0), parts.stride(0), parts.stride(1), taps, count, columns,
        *_offsets(geometry, x.shape[4]), FILTERS=filters, COLUMNS=32, TAPS=block,
        PRECISION=product_precision(), INDEX=_index_type(x[0], dy[0]), num_warps=2,
    )  # fmt: skip
    if pieces > 1:
        torch.sum(parts, 1, out=out)


def image_gradients(dy: Tensor, filters: Tensor, geometry: Geometry, out: Tensor) -> None:
    """Write the gradients of padded images, from those of the output of `convolve`."""
    channels, height, width = geometry.image
    # Where the next window is beyond the image, there is only one, however far away the next is.
    down, across = (min(s, n) for s, n in zip(geometry.stride, (height, width), strict=True))
    spread = geometry.dilation
    apart = down // math.gcd(down, spread[0]), across // math.gcd(across, spread[1])
    batch, block = out.shape[4], _block(channels, 64)
    numbers = triton.cdiv(height, down) * triton.cdiv(width, across) * batch
    programs = triton.cdiv(numbers, COLUMNS) * down * across * len(out)
    _image_gradients_kernel[(programs, triton.cdiv(channels, block))](
        dy, filters, out, filters.stride(0), channels, geometry.filters, height, width, batch,
        *geometry.output, *geometry.size, down, across, *spread, *apart, CHANNELS=block,
        COLUMNS=COLUMNS, DEPTH=32, PRECISION=product_precision(),
        INDEX=_index_type(out[0], dy[0]), num_warps=4,
    )  # fmt: skip


def pool(
    x: Tensor, size: Pair, stride: Pair, b: Tensor | None, relu: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The largest number of each window, plus b, at least zero with ReLU.

    Args:
        x: Images [k, F, height, width, B], contiguous.
        size: Height and width of a window.
        stride: The distance of windows, which may overlap.
        b: [k, F] with contiguous rows, or None.
        relu: Whether numbers below zero become zero.

    Returns:
        Images [k, F, rows, columns, B], and what `unpool` needs: the places of the largest numbers
        in their windows, −1 where ReLU made them zero.
    """
    k, channels, height, width, batch = x.shape
    rows, columns = ((n - s) // d + 1 for n, s, d in zip(x.shape[2:4], size, stride, strict=True))
    y = x.new_empty(k, channels, rows, columns, batch)
    where = torch.empty(y.shape, dtype=torch.int16, device=x.device)
    bias = x if b is None else b
    _pool_kernel[(triton.cdiv(y.numel(), PIXELS),)](
        x, bias, y, where, y.numel(), bias.stride(0), channels, height, width, batch, rows,
        columns, *size, *stride, BLOCK=PIXELS, BIAS=b is not None, RELU=relu,
        INDEX=_index_type(x), num_warps=4,
    )  # fmt: skip
    return y, (where,)


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
        size: As in `pool`, like `stride`.
        stride: See there.
        relu: Not used: it is in `pooled`.
        b_gradient: Where to write the gradient of b, [k, F] with contiguous rows, or None.
    """
    dy = dy.contiguous()
    dx = dy.new_empty(shape)
    _unpool_kernel[(triton.cdiv(dx.numel(), PIXELS),)](
        dy, pooled[0], dx, dx.numel(), *shape[2:], *dy.shape[2:4], *size, *stride,
        BLOCK=PIXELS, INDEX=_index_type(dx), num_warps=4,
    )  # fmt: skip
    if b_gradient is not None:
        torch.sum(dx, (2, 3, 4), out=b_gradient)
    return dx


def filter_gradients(
    x: Tensor, dy: Tensor, geometry: Geometry, out: Tensor, squares: Tensor
) -> None:
    """Write the gradient of each sample by the filters, and then by b if there is a b.

    Args:
        x: Images with padding [channels, height, width, B], contiguous.
        dy: Gradient of the output [filters, rows, columns, B], contiguous.
        geometry: The convolution.
        out: Where to write, [B, weights], each row contiguous.
        squares: Where to write the sum of squares of each gradient by the filters, float64 [B].
    """
    batch, taps = len(out), geometry.taps
    few, many, unroll = _tile(geometry.filters, taps, batch)
    tiles = triton.cdiv(geometry.filters, few) * triton.cdiv(taps, many)
    parts = torch.empty(tiles, batch, dtype=torch.float64, device=x.device)
    _filter_gradients_kernel[(triton.cdiv(tiles, WARPS) * triton.cdiv(batch, 32),)](
        x, dy, out, parts, out.stride(0), taps, geometry.filters, math.prod(geometry.output),
        *_offsets(geometry, batch), BIAS=geometry.bias, FILTERS=few, TAPS=many, WARPS=WARPS,
        UNROLL=unroll, INDEX=_index_type(x, dy), num_warps=WARPS,
    )  # fmt: skip
    torch.sum(parts, 0, out=squares)


def _tile(filters: int, taps: int, batch: int) -> tuple[int, int, int]:
    """Filters and taps of which a thread computes the gradients, and positions at a time.

    Larger tiles read less, smaller ones make more warps.
    """
    warps = triton.cdiv(filters, 8) * triton.cdiv(taps, 4) * triton.cdiv(batch, 32)
    return (8, 4, 2) if warps >= ENOUGH_WARPS else (4, 4, 4)


def _offsets(g: Geometry, batch: int) -> tuple[int, ...]:
    """How far positions and taps are apart in an image, in the order of the kernels' arguments."""
    _, height, width = g.image
    row, column = width * batch, batch
    return (
        batch, g.output[1], row * g.stride[0], column * g.stride[1], *g.size,
        height * row, row * g.dilation[0], column * g.dilation[1],
    )  # fmt: skip


def _index_type(*tensors: Tensor) -> Any:
    """The type that counts the numbers of these tensors."""
    return tl.int32 if all(x.numel() <= FEW_NUMBERS for x in tensors) else tl.int64


def _block(count: int, most: int) -> int:
    """The power of two from 16 to `most` that holds `count`, if there is one; else `most`."""
    return max(16, min(most, int(triton.next_power_of_2(count))))
