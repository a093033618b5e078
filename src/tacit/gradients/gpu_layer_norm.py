"""Layer normalisation of many clients on a GPU: each client's vectors with its own weights.

Vectors x are [k, M, C]; weights and biases [k, C]. With n = (x − mean) / deviation, y = w · n + b
and g = w · ∂y, where means are over a vector and sums over the vectors of a client:

    ∂x = (g − mean(g) − n · mean(g · n)) / deviation,   ∂w = Σ ∂y · n,   ∂b = Σ ∂y

A program handles some vectors of one client. Those of the backward pass add up ∂w and ∂b of their
vectors in a fixed order, so that the same numbers give the same bits. The grid has one dimension:
CUDA allows 2³¹ programs in it, and 65,535 in the others.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers that a program holds at a time, and programs that keep a GPU busy.
BLOCK, PROGRAMS = 4096, 528


@triton.jit
def _forward_kernel(
    x, w, b, y, mean, rstd, M, w_client, b_client, eps, C: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(M, ROWS)
    client, block = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    row, c = block * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < M)[:, None] & (c < C)[None, :]
    at = (client * M + row)[:, None] * C + c[None, :]
    value = tl.load(x + at, inside, 0.0).to(tl.float32)
    center = tl.sum(value, 1) / C
    value = tl.where(inside, value - center[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(value * value, 1) / C + eps)
    tl.store(mean + client * M + row, center, row < M)
    tl.store(rstd + client * M + row, scale, row < M)
    weight = tl.load(w + client * w_client + c, c < C, 0.0).to(tl.float32)
    bias = tl.load(b + client * b_client + c, c < C, 0.0).to(tl.float32)
    value = value * scale[:, None] * weight[None, :] + bias[None, :]
    tl.store(y + at, value.to(y.dtype.element_ty), inside)


@triton.jit
def _backward_kernel(
    x, w, dy, mean, rstd, dx, dw, db, M, length, w_client, C: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    parts = tl.cdiv(M, length)
    client, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    c = tl.arange(0, WIDTH)
    weight = tl.load(w + client * w_client + c, c < C, 0.0).to(tl.float32)
    by_weight, by_bias = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for low in range(part * length, (part + 1) * length, ROWS):
        row = low + tl.arange(0, ROWS)
        inside = (row < M)[:, None] & (c < C)[None, :]
        at = (client * M + row)[:, None] * C + c[None, :]
        center = tl.load(mean + client * M + row, row < M, 0.0)
        scale = tl.load(rstd + client * M + row, row < M, 0.0)
        value = (tl.load(x + at, inside, 0.0).to(tl.float32) - center[:, None]) * scale[:, None]
        value = tl.where(inside, value, 0.0)
        gradient = tl.load(dy + at, inside, 0.0).to(tl.float32)
        by_weight += tl.sum(gradient * value, 0)
        by_bias += tl.sum(gradient, 0)
        gradient *= weight[None, :]
        one, two = tl.sum(gradient, 1) / C, tl.sum(gradient * value, 1) / C
        back = (gradient - one[:, None] - value * two[:, None]) * scale[:, None]
        tl.store(dx + at, back.to(dx.dtype.element_ty), inside)
    at = (client * parts + part) * C + c
    tl.store(dw + at, by_weight, c < C)
    tl.store(db + at, by_bias, c < C)


def supports(width: int) -> bool:
    """Whether these kernels handle vectors of so many numbers."""
    return width <= BLOCK


def forward(x: Tensor, w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised vectors in the type of x, and mean and 1/deviation of each [k, M]."""
    k, rows, width = x.shape
    y = torch.empty_like(x)
    mean, rstd = torch.empty(2, k, rows, device=x.device)
    tile = _tile(width)
    _forward_kernel[(triton.cdiv(rows, tile["ROWS"]) * k,)](
        x, w, b, y, mean, rstd, rows, w.stride(0), b.stride(0), eps, C=width, **tile
    )
    return y, mean, rstd


def backward(
    x: Tensor, w: Tensor, dy: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of vectors [k, M, C], weights [k, C] and biases [k, C]."""
    k, rows, width = x.shape
    dx, tile = torch.empty_like(x), _tile(width)
    least = tile["ROWS"]
    length = triton.cdiv(triton.cdiv(rows * k, PROGRAMS), least) * least
    parts = triton.cdiv(rows, length)
    dw, db = torch.empty(2, k, parts, width, device=x.device)
    _backward_kernel[(parts * k,)](
        x, w, dy, mean, rstd, dx, dw, db, rows, length, w.stride(0), C=width, **tile
    )
    return dx, dw.sum(1), db.sum(1)


def _tile(width: int) -> dict[str, int]:
    padded = max(16, triton.next_power_of_2(width))
    return {"WIDTH": padded, "ROWS": max(1, BLOCK // padded), "num_warps": 8}
