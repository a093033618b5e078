"""Group normalisation of many clients on a GPU, for images whose channels are last in memory.

A program handles one image: it adds up its numbers channel by channel, joins the channels of a
group, and reads the image once more to write the result.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers that a program reads at a time.
BLOCK = 4096


@triton.jit
def _forward_kernel(
    x, w, b, y, mean, rstd, positions, batch, w_client, b_client, eps, C: tl.constexpr,
    G: tl.constexpr, AFFINE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, C)
    x += image * positions * C
    y += image * positions * C
    # Means and sums of squares of deviations from them: those of a block, joined with those of the
    # blocks before it (Chan, Golub and LeVeque 1983). Nothing cancels, even if the first pixel is
    # far from the others, and differences from earlier ones lose no digits if all are large.
    own, squares = tl.load(x + c).to(tl.float32), tl.zeros((C,), dtype=tl.float32)
    for low in range(0, positions, ROWS):
        row = low + tl.arange(0, ROWS)
        inside = (row < positions)[:, None]
        at = row[:, None] * C + c[None, :]
        value = tl.load(x + at, inside, 0.0).to(tl.float32) - own[None, :]
        count = tl.minimum(positions - low, ROWS).to(tl.float32)
        share, apart = count / (low + count), tl.sum(tl.where(inside, value, 0.0), 0) / count
        value = tl.where(inside, value - apart[None, :], 0.0)
        own += share * apart
        squares += tl.sum(value * value, 0) + low * share * apart * apart
    center = tl.sum(tl.reshape(own, (G, C // G)), 1) / (C // G)
    spread = tl.reshape(own, (G, C // G)) - center[:, None]
    variance = tl.reshape(squares, (G, C // G)) / positions + spread * spread
    scale = 1 / tl.sqrt(tl.sum(variance, 1) / (C // G) + eps)
    g = tl.arange(0, G)
    tl.store(mean + image * G + g, center)
    tl.store(rstd + image * G + g, scale)
    shift = tl.reshape(tl.broadcast_to(center[:, None], (G, C // G)), (C,))
    factor = tl.reshape(tl.broadcast_to(scale[:, None], (G, C // G)), (C,))
    if AFFINE:
        client = image // batch
        weight = tl.load(w + client * w_client + c).to(tl.float32)
        bias = tl.load(b + client * b_client + c).to(tl.float32)
    for low in range(0, positions, ROWS):
        row = low + tl.arange(0, ROWS)
        inside = (row < positions)[:, None]
        at = row[:, None] * C + c[None, :]
        value = (tl.load(x + at, inside, 0.0).to(tl.float32) - shift[None, :]) * factor[None, :]
        if AFFINE:
            value = value * weight[None, :] + bias[None, :]
        tl.store(y + at, value.to(y.dtype.element_ty), inside)


@triton.jit
def _backward_kernel(
    x, w, dy, mean, rstd, dx, dw, db, positions, batch, w_client, C: tl.constexpr,
    G: tl.constexpr, AFFINE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    c, g = tl.arange(0, C), tl.arange(0, G)
    x += image * positions * C
    dy += image * positions * C
    dx += image * positions * C
    center, scale = tl.load(mean + image * G + g), tl.load(rstd + image * G + g)
    shift = tl.reshape(tl.broadcast_to(center[:, None], (G, C // G)), (C,))
    factor = tl.reshape(tl.broadcast_to(scale[:, None], (G, C // G)), (C,))
    by_bias, by_weight = tl.zeros((C,), dtype=tl.float32), tl.zeros((C,), dtype=tl.float32)
    for low in range(0, positions, ROWS):
        row = low + tl.arange(0, ROWS)
        inside = (row < positions)[:, None]
        at = row[:, None] * C + c[None, :]
        value = (tl.load(x + at, inside, 0.0).to(tl.float32) - shift[None, :]) * factor[None, :]
        gradient = tl.load(dy + at, inside, 0.0).to(tl.float32)
        by_bias += tl.sum(gradient, 0)
        by_weight += tl.sum(gradient * value, 0)
    tl.store(db + image * C + c, by_bias)
    tl.store(dw + image * C + c, by_weight)
    if AFFINE:
        weight = tl.load(w + (image // batch) * w_client + c).to(tl.float32)
    else:
        weight = tl.full((C,), 1.0, tl.float32)
    numbers = positions * (C // G)
    one = tl.sum(tl.reshape(weight * by_bias, (G, C // G)), 1) / numbers
    two = tl.sum(tl.reshape(weight * by_weight, (G, C // G)), 1) / numbers
    ones = tl.reshape(tl.broadcast_to(one[:, None], (G, C // G)), (C,))
    twos = tl.reshape(tl.broadcast_to(two[:, None], (G, C // G)), (C,))
    for low in range(0, positions, ROWS):
        row = low + tl.arange(0, ROWS)
        inside = (row < positions)[:, None]
        at = row[:, None] * C + c[None, :]
        value = (tl.load(x + at, inside, 0.0).to(tl.float32) - shift[None, :]) * factor[None, :]
        gradient = tl.load(dy + at, inside, 0.0).to(tl.float32)
        back = weight[None, :] * gradient - ones[None, :] - value * twos[None, :]
        tl.store(dx + at, (factor[None, :] * back).to(dx.dtype.element_ty), inside)


def supports(channels: int, groups: int) -> bool:
    """Whether these kernels handle so many channels in so many groups: powers of two."""
    powers = channels & (channels - 1) == 0 and groups & (groups - 1) == 0
    return powers and channels <= BLOCK


def forward(
    x: Tensor, w: Tensor | None, b: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised images, and mean and 1/deviation of each group [k · B, G].

    Images x are [k, B, positions, C]; weights and biases [k, C], both or none.
    """
    k, batch, positions, channels = x.shape
    y = torch.empty_like(x)
    mean, rstd = torch.empty(2, k * batch, groups, device=x.device)
    weight, bias = (x, x) if w is None or b is None else (w, b)
    _forward_kernel[(k * batch,)](
        x, weight, bias, y, mean, rstd, positions, batch, weight.stride(0), bias.stride(0), eps,
        C=channels, G=groups, AFFINE=w is not None, ROWS=_rows(channels), num_warps=8,
    )  # fmt: skip
    return y, mean, rstd


def backward(
    x: Tensor, w: Tensor | None, dy: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of images [k, B, positions, C], weights [k, C] and biases [k, C]."""
    k, batch, positions, channels = x.shape
    dx = torch.empty_like(x)
    dw, db = torch.empty(2, k, batch, channels, device=x.device)
    weight = x if w is None else w
    _backward_kernel[(k * batch,)](
        x, weight, dy, mean, rstd, dx, dw, db, positions, batch, weight.stride(0), C=channels,
        G=mean.shape[1], AFFINE=w is not None, ROWS=_rows(channels), num_warps=8,
    )  # fmt: skip
    return dx, dw.sum(1), db.sum(1)


def _rows(channels: int) -> int:
    return max(1, BLOCK // channels)
