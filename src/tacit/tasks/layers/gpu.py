"""Convolutions of many clients on a GPU, without copying windows out of the images.

A convolution is a product of filters [F, taps] and windows [taps, positions · B]. These kernels do
not store the windows. They read number (tap, position, b) from the image at

    offset of the tap + offset of the position + b.

Products are as exact as in float32, or in TF32 where products may use that. Sums over positions are
split into pieces that are added in a fixed order, so that the same numbers give the same bits.

The first dimension of a grid has the clients too: CUDA allows 2³¹ programs in it, and 65,535 in the
others. Kernels count in 64 bits where a client has 2³¹ numbers in a tensor, and else in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.gradients.precision import product_precision

COLUMNS = 256  # columns of the windows that one program computes, of a few taps each
PROGRAMS = 528  # programs that keep a GPU busy


@triton.jit
def _forward_kernel(
    x, w, b, y, x_client, w_client, taps: tl.constexpr, filters: tl.constexpr,
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
        total += tl.load(b + client * w_client + f, f < filters, 0.0)[:, None]
    if RELU:
        total = tl.where(total < 0, 0.0, total)
    y += client * filters * columns
    tl.store(
        y + f[:, None] * columns + n[None, :],
        total,
        (f < filters)[:, None] & (n < columns)[None, :],
    )


@triton.jit
def _filter_gradients_kernel(
    x, dy, out, x_client, taps: tl.constexpr, filters: tl.constexpr, columns: tl.constexpr,
    batch: tl.constexpr, out_width: tl.constexpr, row_stride: tl.constexpr,
    column_stride: tl.constexpr, kernel_height: tl.constexpr, kernel_width: tl.constexpr,
    tap_channel: tl.constexpr, tap_row: tl.constexpr, tap_column: tl.constexpr,
    length: tl.constexpr, FILTERS: tl.constexpr, COLUMNS: tl.constexpr, TAPS: tl.constexpr,
    PRECISION: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    pieces: tl.constexpr = (columns + length - 1) // length
    piece = (tl.program_id(0) % pieces).to(INDEX)
    client = (tl.program_id(0) // pieces).to(tl.int64)
    tap_blocks = (taps + TAPS - 1) // TAPS
    r = ((tl.program_id(1) % tap_blocks) * TAPS + tl.arange(0, TAPS)).to(INDEX)
    f = ((tl.program_id(1) // tap_blocks) * FILTERS + tl.arange(0, FILTERS)).to(INDEX)
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
        valid = (n < columns) & (n < (piece + 1) * length)
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
    out += (client * pieces + piece) * filters * taps
    tl.store(
        out + f[:, None] * taps + r[None, :], total, (f < filters)[:, None] & (r < taps)[None, :]
    )


@triton.jit
def _fold_kernel(
    unfolded, dx, numel, height: tl.constexpr, width: tl.constexpr, batch: tl.constexpr,
    out_height: tl.constexpr, out_width: tl.constexpr, down: tl.constexpr, across: tl.constexpr,
    kernel_height: tl.constexpr, kernel_width: tl.constexpr, dilation_down: tl.constexpr,
    dilation_across: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < numel
    b = index % batch
    pixel = index // batch
    column, row = pixel % width, (pixel // width) % height
    image = pixel // (width * height)  # client and channel
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(kernel_height):
        for j in range(kernel_width):
            top, left = row - i * dilation_down, column - j * dilation_across
            hit = inside & (top >= 0) & (left >= 0) & (top % down == 0) & (left % across == 0)
            hit = hit & (top // down < out_height) & (left // across < out_width)
            tap = (image * kernel_height + i) * kernel_width + j
            source = ((tap * out_height + top // down) * out_width + left // across) * batch + b
            total += tl.load(unfolded + source, hit, 0.0)
    tl.store(dx + index, total, inside)


@triton.jit
def _input_gradient_kernel(
    dy, w, dx, w_client, channels: tl.constexpr, filters: tl.constexpr, height: tl.constexpr,
    width: tl.constexpr, batch: tl.constexpr, out_height: tl.constexpr, out_width: tl.constexpr,
    kernel_height: tl.constexpr, kernel_width: tl.constexpr, CHANNELS: tl.constexpr,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    numbers: tl.constexpr = height * width * batch
    blocks: tl.constexpr = (numbers + COLUMNS - 1) // COLUMNS
    client = (tl.program_id(0) // blocks).to(tl.int64)
    n = (tl.program_id(0) % blocks).to(INDEX) * COLUMNS + tl.arange(0, COLUMNS)
    c = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(INDEX)
    b, pixel = n % batch, n // batch
    row, column = pixel // width, pixel % width
    inside = n < numbers
    outputs: tl.constexpr = out_height * out_width * batch
    taps: tl.constexpr = kernel_height * kernel_width
    depths: tl.constexpr = (filters + DEPTH - 1) // DEPTH
    dy += client * filters * outputs
    w += client * w_client
    total = tl.zeros((CHANNELS, COLUMNS), dtype=tl.float32)
    for step in range(taps * depths):
        tap = step // depths
        f = ((step % depths) * DEPTH + tl.arange(0, DEPTH)).to(INDEX)
        top, left = row - tap // kernel_width, column - tap % kernel_width
        valid = inside & (top >= 0) & (top < out_height) & (left >= 0) & (left < out_width)
        offset = (top * out_width + left) * batch + b
        weights = tl.load(
            w + (f[None, :] * channels + c[:, None]) * taps + tap,
            (f < filters)[None, :] & (c < channels)[:, None], 0.0,
        )  # fmt: skip
        gradient = tl.load(
            dy + f[:, None] * outputs + offset[None, :],
            (f < filters)[:, None] & valid[None, :], 0.0,
        )  # fmt: skip
        total = tl.dot(weights, gradient, total, input_precision=PRECISION)
    dx += client * channels * numbers
    tl.store(
        dx + c[:, None] * numbers + n[None, :], total,
        (c < channels)[:, None] & inside[None, :],
    )  # fmt: skip


@triton.jit
def _pool_kernel(
    x, y, where, numel, height: tl.constexpr, width: tl.constexpr, batch: tl.constexpr,
    out_height: tl.constexpr, out_width: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, BLOCK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < numel
    b = index % batch
    position = index // batch
    column, row = position % out_width, (position // out_width) % out_height
    image = position // (out_width * out_height)
    corner = x + ((image * height + row * DOWN) * width + column * ACROSS) * batch + b
    largest = tl.load(corner, inside, 0.0)
    argmax = tl.zeros((BLOCK,), dtype=tl.int16)
    for i in tl.static_range(HEIGHT):
        for j in tl.static_range(WIDTH):
            value = tl.load(corner + (i * width + j) * batch, inside, 0.0)
            better = (value > largest) | (value != value)
            largest = tl.where(better, value, largest)
            argmax = tl.where(better, i * WIDTH + j, argmax).to(tl.int16)
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
    DOWN: tl.constexpr, ACROSS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
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


@dataclass(frozen=True)
class Windows:
    """Geometry of the windows that a convolution takes of padded images [k, C, H, W, B]."""

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    rows: int
    columns: int

    def forward(self, x: Tensor, filters: Tensor, b: Tensor | None, relu: bool) -> Tensor:
        """ReLU of filters [k, F, taps] times the windows of x, plus b [k, F].

        Returns [k, F, rows, columns, B]. Bias and ReLU are optional.
        """
        k, count, taps = filters.shape
        n = self.rows * self.columns * x.shape[4]
        y = x.new_empty(k, count, self.rows, self.columns, x.shape[4])
        block, width = _block(count, 64), COLUMNS if taps <= 32 else COLUMNS // 2
        grid = (triton.cdiv(n, width) * k, triton.cdiv(count, block))
        _forward_kernel[grid](
            x, filters, filters if b is None else b, y, x.stride(0), filters.stride(0),
            taps, count, n, *self.offsets(x), FILTERS=block, COLUMNS=width, TAPS=32,
            BIAS=b is not None, RELU=relu, PRECISION=product_precision(),
            INDEX=index_type(x, y), num_warps=4,
        )  # fmt: skip
        return y

    def write_gradients(self, x: Tensor, dy: Tensor, out: Tensor) -> None:
        """Write dy [k, F, n] times the transposed windows of x into rows [k, F·taps]."""
        k, count, n = dy.shape
        taps = out.shape[1] // count
        block, filters = _block(taps, 64), _block(count, 64)
        blocks = triton.cdiv(taps, block) * triton.cdiv(count, filters)
        pieces = max(1, min(PROGRAMS // (k * blocks), n // 256))
        length = triton.cdiv(triton.cdiv(n, pieces), 32) * 32
        pieces = triton.cdiv(n, length)
        parts = dy.new_empty(k, pieces, count * taps)
        _filter_gradients_kernel[(pieces * k, blocks)](
            x, dy, parts, x.stride(0), taps, count, n, *self.offsets(x), length,
            FILTERS=filters, COLUMNS=32, TAPS=block, PRECISION=product_precision(),
            INDEX=index_type(x, dy), num_warps=2,
        )  # fmt: skip
        torch.sum(parts, 1, out=out)

    def input_gradient(self, filters: Tensor, dy: Tensor, shape: torch.Size) -> Tensor:
        """The gradient of images of this shape, from filters [k, F, taps] and dy [k, F, n]."""
        if self.stride != (1, 1) or self.dilation != (1, 1):
            return self.fold(filters.mT @ dy, shape)
        k, channels, *_, batch = shape
        dx = dy.new_empty(shape)
        block = _block(channels, 64)
        numbers = shape[2] * shape[3] * batch
        grid = (triton.cdiv(numbers, COLUMNS) * k, triton.cdiv(channels, block))
        _input_gradient_kernel[grid](
            dy, filters, dx, filters.stride(0), channels, filters.shape[1], *shape[2:], self.rows,
            self.columns, *self.size, CHANNELS=block, COLUMNS=COLUMNS, DEPTH=32,
            PRECISION=product_precision(), INDEX=index_type(dx, dy), num_warps=4,
        )  # fmt: skip
        return dx

    def fold(self, unfolded: Tensor, shape: torch.Size) -> Tensor:
        """Images of this shape: each number is the sum of its copies in windows [k, taps, n]."""
        dx = unfolded.new_empty(shape)
        _fold_kernel[(triton.cdiv(dx.numel(), 1024),)](
            unfolded, dx, dx.numel(), *shape[2:], self.rows, self.columns, *self.stride,
            *self.size, *self.dilation, BLOCK=1024, num_warps=4,
        )  # fmt: skip
        return dx

    def offsets(self, x: Tensor) -> tuple[Any, ...]:
        """Strides of positions and taps in an image, in the order of the kernels' arguments."""
        s = x.stride()
        return (
            x.shape[4], self.columns, s[2] * self.stride[0], s[3] * self.stride[1], *self.size,
            s[1], s[2] * self.dilation[0], s[3] * self.dilation[1],
        )  # fmt: skip


def pool(
    x: Tensor, size: tuple[int, int], stride: tuple[int, int], relu: bool
) -> tuple[Tensor, Tensor]:
    """The largest number of each window of images [k, C, H, W, B], and its index in the window.

    With `relu`, numbers that are not positive become zero, with index -1.
    """
    k, channels, height, width, batch = x.shape
    rows, columns = (height - size[0]) // stride[0] + 1, (width - size[1]) // stride[1] + 1
    y = x.new_empty(k, channels, rows, columns, batch)
    where = torch.empty(y.shape, dtype=torch.int16, device=x.device)
    _pool_kernel[(triton.cdiv(y.numel(), 1024),)](
        x, y, where, y.numel(), height, width, batch, rows, columns, *size, *stride,
        RELU=relu, BLOCK=1024, num_warps=4,
    )  # fmt: skip
    return y, where


def unpool(
    dy: Tensor, where: Tensor, shape: torch.Size, size: tuple[int, int], stride: tuple[int, int]
) -> Tensor:
    """The gradient of images of this shape, from the gradient of the pooled images."""
    dx = dy.new_empty(shape)
    _unpool_kernel[(triton.cdiv(dx.numel(), 1024),)](
        dy, where, dx, dx.numel(), *shape[2:], *dy.shape[2:4], *size, *stride,
        BLOCK=1024, num_warps=4,
    )  # fmt: skip
    return dx


@contextmanager
def concurrently(work: Callable[[], None], device: torch.device) -> Iterator[None]:
    """Run work on a second CUDA stream next to the body; both are complete at the end."""
    main, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        work()
    try:
        yield
    finally:
        main.wait_stream(side)


def index_type(*tensors: Tensor) -> Any:
    """The type that counts the numbers of one client in these tensors [k, ...]."""
    return tl.int32 if all(t[0].numel() < 2**31 for t in tensors) else tl.int64


def _block(count: int, most: int) -> int:
    """The power of two from 16 to `most` that holds `count`, if there is one; else `most`."""
    return max(16, min(most, int(triton.next_power_of_2(count))))
