"""Convolutions of many clients on a GPU: each client's images with its own filters.

Images are [k, B, H, W, C] in memory, channels last, and filters [k, taps, C, F] or [k, taps, F, C]
with taps = height · width of a filter. A convolution is a product of windows [B · positions,
taps · C] and filters [taps · C, F]. These kernels read the windows from the images and never store
them, and they compute one client after the other along the first dimension of their grid: CUDA
allows 2³¹ programs in it, and 65,535 in the others. Where images have few channels, a block of a
product has numbers of several taps: number r is channel r mod C of tap r // C.

Sums are added in a fixed order, so that the same numbers give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.core.devices import tf32_allowed

# Programs that keep a GPU busy; sums over positions are split until there are as many.
PROGRAMS = 528
# Channels below which blocks of one tap would be empty for the most part.
FEW = 32


@triton.jit
def _forward_kernel(
    x, w, bias, y, H, W, OH, OW, M, x_client, w_client, b_client, C: tl.constexpr,
    F: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
    TOP: tl.constexpr, LEFT: tl.constexpr, BIAS: tl.constexpr, CHANNELS_LAST: tl.constexpr,
    FEW_CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tiles: tl.constexpr = (F + COLUMNS - 1) // COLUMNS
    blocks = tl.cdiv(M, ROWS) * tiles
    client, block = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    m = (block // tiles) * ROWS + tl.arange(0, ROWS)
    f = (block % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    image, position = m // (OH * OW), m % (OH * OW)
    top, left = (position // OW) * DOWN - TOP, (position % OW) * ACROSS - LEFT
    x += client * x_client
    w += client * w_client
    depths: tl.constexpr = (C + DEPTH - 1) // DEPTH
    steps: tl.constexpr = (KH * KW * C + DEPTH - 1) // DEPTH if FEW_CHANNELS else KH * KW * depths
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(steps):
        if FEW_CHANNELS:
            r = step * DEPTH + tl.arange(0, DEPTH)
            tap, c = r // C, r % C
            i, j = top[:, None] + (tap // KW)[None, :], left[:, None] + (tap % KW)[None, :]
            some = (m < M)[:, None] & (r < KH * KW * C)[None, :]
            some = some & (i >= 0) & (i < H) & (j >= 0) & (j < W)
            pixels = ((image[:, None] * H + i) * W + j) * C
            windows = tl.load(x + pixels + c[None, :], some, 0.0)
            inside_filters = (r < KH * KW * C)[:, None] & (f < F)[None, :]
            filters = tl.load(w + r[:, None] * F + f[None, :], inside_filters, 0.0)
        else:
            tap = step // depths
            c = (step % depths) * DEPTH + tl.arange(0, DEPTH)
            row, column = top + tap // KW, left + tap % KW
            inside = (m < M) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            pixel = ((image * H + row) * W + column) * C
            if CHANNELS_LAST:
                at = (tap * F + f)[None, :] * C + c[:, None]
            else:
                at = (tap * C + c)[:, None] * F + f[None, :]
            if C % DEPTH == 0 and F % COLUMNS == 0:
                windows = tl.load(x + pixel[:, None] + c[None, :], inside[:, None], 0.0)
                filters = tl.load(w + at)
            else:
                some = inside[:, None] & (c < C)[None, :]
                windows = tl.load(x + pixel[:, None] + c[None, :], some, 0.0)
                filters = tl.load(w + at, (c < C)[:, None] & (f < F)[None, :], 0.0)
        total = tl.dot(windows, filters, total, input_precision=PRECISION)
    if BIAS:
        total += tl.load(bias + client * b_client + f, f < F, 0.0).to(tl.float32)[None, :]
    y += client * M * F
    tl.store(
        y + m[:, None] * F + f[None, :], total.to(y.dtype.element_ty),
        (m < M)[:, None] & (f < F)[None, :],
    )  # fmt: skip


@triton.jit
def _input_gradient_kernel(
    dy, w, dx, H, W, OH, OW, HEIGHT, WIDTH, M, C: tl.constexpr, F: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
    TOP: tl.constexpr, LEFT: tl.constexpr, CHANNELS_LAST: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # Pixels whose row and column leave the same remainders by the strides are in the windows of
    # the same taps. The second dimension of the grid is that of the remainders.
    down, across = tl.program_id(1) // ACROSS, tl.program_id(1) % ACROSS
    tiles: tl.constexpr = (C + COLUMNS - 1) // COLUMNS
    blocks = tl.cdiv(M, ROWS) * tiles
    client, block = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    m = (block // tiles) * ROWS + tl.arange(0, ROWS)
    c = (block % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    image, position = m // (HEIGHT * WIDTH), m % (HEIGHT * WIDTH)
    row, column = (position // WIDTH) * DOWN + down, (position % WIDTH) * ACROSS + across
    first_i, first_j = (down + TOP) % DOWN, (across + LEFT) % ACROSS
    taps_i, taps_j = (KH - first_i + DOWN - 1) // DOWN, (KW - first_j + ACROSS - 1) // ACROSS
    inside = (m < M) & (row < H) & (column < W)
    client_outputs = (M // (HEIGHT * WIDTH)) * OH * OW * F
    dy += client * client_outputs
    w += client * (KH * KW * C * F)
    depths: tl.constexpr = (F + DEPTH - 1) // DEPTH
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(taps_i * taps_j * depths):
        tap = step // depths
        f = (step % depths) * DEPTH + tl.arange(0, DEPTH)
        i, j = first_i + (tap // taps_j) * DOWN, first_j + (tap % taps_j) * ACROSS
        up, left = (row + TOP - i) // DOWN, (column + LEFT - j) // ACROSS
        valid = inside & (row + TOP >= i) & (column + LEFT >= j) & (up < OH) & (left < OW)
        output = ((image * OH + up) * OW + left) * F
        if CHANNELS_LAST:
            at = ((i * KW + j) * F + f)[:, None] * C + c[None, :]
        else:
            at = ((i * KW + j) * C + c)[None, :] * F + f[:, None]
        if F % DEPTH == 0 and C % COLUMNS == 0:
            gradient = tl.load(dy + output[:, None] + f[None, :], valid[:, None], 0.0)
            filters = tl.load(w + at)
        else:
            some = valid[:, None] & (f < F)[None, :]
            gradient = tl.load(dy + output[:, None] + f[None, :], some, 0.0)
            filters = tl.load(w + at, (f < F)[:, None] & (c < C)[None, :], 0.0)
        total = tl.dot(gradient, filters, total, input_precision=PRECISION)
    pixel = ((client * (M // (HEIGHT * WIDTH)) + image) * H + row) * W + column
    tl.store(
        dx + (pixel * C)[:, None] + c[None, :], total.to(dx.dtype.element_ty),
        inside[:, None] & (c < C)[None, :],
    )  # fmt: skip


@triton.jit
def _filter_gradient_kernel(
    x, dy, out, H, W, OH, OW, M, length, x_client, C: tl.constexpr, F: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
    TOP: tl.constexpr, LEFT: tl.constexpr, FEW_CHANNELS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    # Rows of a part: channels of one tap, or of several.
    height: tl.constexpr = KH * KW * C if FEW_CHANNELS else C
    row_tiles: tl.constexpr = (height + ROWS - 1) // ROWS
    column_tiles: tl.constexpr = (F + COLUMNS - 1) // COLUMNS
    tiles: tl.constexpr = row_tiles * column_tiles * (1 if FEW_CHANNELS else KH * KW)
    client, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    f = (tile % column_tiles) * COLUMNS + tl.arange(0, COLUMNS)
    r = (tile // column_tiles % row_tiles) * ROWS + tl.arange(0, ROWS)
    first_tap = tile // (column_tiles * row_tiles)
    x += client * x_client
    dy += client * M * F
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for low in range(tl.program_id(1) * length, (tl.program_id(1) + 1) * length, DEPTH):
        m = low + tl.arange(0, DEPTH)
        image, position = m // (OH * OW), m % (OH * OW)
        if FEW_CHANNELS:
            tap, c = r // C, r % C
            row = ((position // OW) * DOWN - TOP)[:, None] + (tap // KW)[None, :]
            column = ((position % OW) * ACROSS - LEFT)[:, None] + (tap % KW)[None, :]
            pixel = ((image[:, None] * H + row) * W + column) * C + c[None, :]
            valid = (m < M)[:, None] & (r < height)[None, :]
            valid = valid & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            windows = tl.load(x + pixel, valid, 0.0)
        else:
            row = (position // OW) * DOWN + first_tap // KW - TOP
            column = (position % OW) * ACROSS + first_tap % KW - LEFT
            inside = (m < M) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            pixel = ((image * H + row) * W + column) * C
            some = inside[:, None] & (r < C)[None, :]
            windows = tl.load(x + pixel[:, None] + r[None, :], some, 0.0)
        gradient = tl.load(
            dy + m[:, None] * F + f[None, :], (m < M)[:, None] & (f < F)[None, :], 0.0
        )
        if SPLIT:
            # Leading and remaining digits in bfloat16: more digits than TF32, which is slow here.
            high = windows.to(tl.bfloat16)
            low_part = (windows - high.to(tl.float32)).to(tl.bfloat16)
            top = gradient.to(tl.bfloat16)
            rest = (gradient - top.to(tl.float32)).to(tl.bfloat16)
            total = tl.dot(tl.trans(low_part), top, total)
            total = tl.dot(tl.trans(high), rest, total)
            total = tl.dot(tl.trans(high), top, total)
        else:
            total = tl.dot(tl.trans(windows), gradient, total, input_precision=PRECISION)
    part = client * tl.num_programs(1) + tl.program_id(1)
    out += part * (KH * KW * C * F)
    at = (first_tap * C + r)[:, None] * F + f[None, :]
    tl.store(out + at, total, (r < height)[:, None] & (f < F)[None, :])


@dataclass(frozen=True)
class Geometry:
    """The windows of a convolution: size of the filters, strides and padding."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    @property
    def taps(self) -> int:
        return self.size[0] * self.size[1]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the output for images of this height and width."""
        sizes = zip((height, width), self.size, self.stride, self.padding, strict=True)
        rows, columns = ((n + 2 * p - k) // s + 1 for n, k, s, p in sizes)
        return rows, columns


# A linear layer on every pixel.
POINTWISE = Geometry((1, 1), (1, 1), (0, 0))


def forward(x: Tensor, w: Tensor, bias: Tensor | None, shape: Geometry) -> Tensor:
    """Outputs [k, B, rows, columns, F] of images [k, B, H, W, C] and weights [k, F, C, kh, kw].

    The result has the type of x, in which products are computed. Weights and bias have any type.
    """
    k, batch, height, width, channels = x.shape
    filters = w.shape[1]
    rows, columns = shape.output_size(height, width)
    y = x.new_empty(k, batch, rows, columns, filters)
    few = _has_few_channels(channels, shape)
    last = _depth_contiguous(x) and not few
    in_place = last and shape.taps == 1 and w.dtype == x.dtype and w[0].is_contiguous()
    arranged = w if in_place else _arranged(w, x.dtype, last)
    b, m = bias if bias is not None else w, batch * rows * columns
    tile = _tile(m, filters, x)
    blocks = triton.cdiv(m, tile["ROWS"]) * triton.cdiv(filters, tile["COLUMNS"])
    _forward_kernel[(blocks * k,)](
        x, arranged, b, y, height, width, rows, columns, m, x.stride(0), arranged.stride(0),
        b.stride(0), channels, filters, *shape.size, *shape.stride, *shape.padding,
        BIAS=bias is not None, CHANNELS_LAST=last, FEW_CHANNELS=few, **tile,
    )  # fmt: skip
    return y


def input_gradient(dy: Tensor, w: Tensor, x_shape: torch.Size, shape: Geometry) -> Tensor:
    """The gradient of images of this shape from that of the outputs [k, B, rows, columns, F]."""
    k, batch, height, width, channels = x_shape
    filters = w.shape[1]
    rows, columns = dy.shape[2:4]
    dx = dy.new_empty(x_shape)
    down, across = shape.stride
    coarse = triton.cdiv(height, down), triton.cdiv(width, across)
    last, m = not _depth_contiguous(dy), batch * coarse[0] * coarse[1]
    tile = _tile(m, channels, dy)
    blocks = triton.cdiv(m, tile["ROWS"]) * triton.cdiv(channels, tile["COLUMNS"])
    _input_gradient_kernel[(blocks * k, down * across)](
        dy, _arranged(w, dy.dtype, last), dx, height, width, rows, columns, *coarse, m, channels,
        filters, *shape.size, *shape.stride, *shape.padding, CHANNELS_LAST=last,
        **tile,
    )  # fmt: skip
    return dx


def filter_gradient(x: Tensor, dy: Tensor, shape: Geometry) -> Tensor:
    """The gradient [k, F, C, kh, kw] of the weights, in float32."""
    k, batch, height, width, channels = x.shape
    rows, columns, filters = dy.shape[2:]
    m, taps = batch * rows * columns, shape.taps
    few = _has_few_channels(channels, shape)
    # A part of the product has channels of one tap, or of several.
    parts_of, tall = (1, taps * channels) if few else (taps, channels)
    tile = _tile(tall, filters, x, transposed=True)
    blocks = parts_of * triton.cdiv(tall, tile["ROWS"]) * triton.cdiv(filters, tile["COLUMNS"])
    depth = tile["DEPTH"]
    splits = max(1, min(triton.cdiv(PROGRAMS, blocks * k), m // (4 * depth)))
    length = triton.cdiv(triton.cdiv(m, splits), depth) * depth
    parts = torch.empty(k, splits, taps, channels, filters, device=x.device)
    _filter_gradient_kernel[(blocks * k, splits)](
        x, dy, parts, height, width, rows, columns, m, length, x.stride(0), channels, filters,
        *shape.size, *shape.stride, *shape.padding, FEW_CHANNELS=few, SPLIT=_splits_digits(x),
        **tile,
    )  # fmt: skip
    return parts.sum(1).permute(0, 3, 2, 1).unflatten(3, shape.size)


def _arranged(w: Tensor, dtype: torch.dtype, channels_last: bool) -> Tensor:
    """Weights [k, F, C, kh, kw] as [k, taps, F, C] if `channels_last`, else as [k, taps, C, F]."""
    taps = w.flatten(3).permute(0, 3, 1, 2)
    taps = taps if channels_last else taps.mT
    return torch.empty(taps.shape, dtype=dtype, device=w.device).copy_(taps)


def _has_few_channels(channels: int, shape: Geometry) -> bool:
    """Whether a block of a product has numbers of several taps."""
    return channels < FEW and shape.taps > 1


def _depth_contiguous(x: Tensor) -> bool:
    """Whether filters are read fastest if the summed dimension is contiguous, as TF32 needs it."""
    return x.dtype == torch.float32


def _splits_digits(x: Tensor) -> bool:
    """Whether factors are split: where TF32 is allowed, but slow, as both are transposed."""
    return x.dtype == torch.float32 and product_precision() == "tf32"


def product_precision() -> str:
    """How float32 numbers are multiplied: in TF32 where allowed, else as three products in TF32.

    The three are of leading and remaining digits. Their sum is at least as exact as a sum in
    float32, and several times as fast.
    """
    return "tf32" if tf32_allowed() else "tf32x3"


def _tile(rows: int, columns: int, x: Tensor, transposed: bool = False) -> dict[str, Any]:
    """The part of a product that one program computes, and how: found by trial on an H200.

    A product in float32 is three in TF32, whose sum is at least as exact. If both factors are
    `transposed`, tensor cores are slower than float32 itself.
    """
    precision = product_precision()
    tile: dict[str, Any] = {"ROWS": 128, "COLUMNS": 128 if columns > 64 else 64, "DEPTH": 32}
    if x.dtype == torch.bfloat16:
        tile["DEPTH"] = 64
    elif transposed:
        precision = "ieee" if precision == "tf32x3" else precision
        tile["ROWS"] = tile["COLUMNS"]
    for name, size in (("ROWS", rows), ("COLUMNS", columns)):
        tile[name] = max(16, min(tile[name], int(triton.next_power_of_2(size))))
    warps = 8 if tile["ROWS"] * tile["COLUMNS"] >= 128 * 128 else 4
    return {**tile, "PRECISION": precision, "num_warps": warps, "num_stages": 3}
