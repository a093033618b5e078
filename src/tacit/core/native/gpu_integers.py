"""Integers drawn on a GPU, in one launch where tensor operations take a hundred: random words, and subsets of columns.

They are the same integers: see `words` in randomness.py and `subset` in compression/rand_k.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256  # counters or columns that one program takes


@triton.jit
def _words_kernel(
    out, tick, source, target, first, width, key, ONE_TICK: tl.constexpr, BLOCK: tl.constexpr
):
    programs = tl.cdiv(width, 4 * BLOCK)  # of a row
    row = (tl.program_id(0) // programs).to(tl.int64)
    block = (tl.program_id(0) % programs) * BLOCK + tl.arange(0, BLOCK)
    c0 = (first + block).to(tl.uint32)
    c1 = tl.load(source + row).to(tl.uint32) + tl.zeros_like(c0)
    c2 = tl.load(target + row).to(tl.uint32) + tl.zeros_like(c0)
    if not ONE_TICK:
        tick += row
    c3 = tl.load(tick).to(tl.uint32) + tl.zeros_like(c0)
    w0, w1, w2, w3 = tl.philox(key, c0, c1, c2, c3, 10)
    column = 4 * block
    out += row * width + column
    tl.store(out, w0.to(tl.int64), column < width)
    tl.store(out + 1, w1.to(tl.int64), column + 1 < width)
    tl.store(out + 2, w2.to(tl.int64), column + 2 < width)
    tl.store(out + 3, w3.to(tl.int64), column + 3 < width)


@triton.jit
def _philox_kernel(out, counters, count, key, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    c0 = tl.load(counters + at, inside, 0).to(tl.uint32)
    c1 = tl.load(counters + count + at, inside, 0).to(tl.uint32)
    c2 = tl.load(counters + 2 * count + at, inside, 0).to(tl.uint32)
    c3 = tl.load(counters + 3 * count + at, inside, 0).to(tl.uint32)
    w0, w1, w2, w3 = tl.philox(key, c0, c1, c2, c3, 10)
    out += 4 * at
    tl.store(out, w0.to(tl.int64), inside)
    tl.store(out + 1, w1.to(tl.int64), inside)
    tl.store(out + 2, w2.to(tl.int64), inside)
    tl.store(out + 3, w3.to(tl.int64), inside)


@triton.jit
def _mixed(half, factor, term):
    mixed = half * (factor | 1) + term
    return (mixed ^ (mixed >> 15)) * 0x2C1B3C6D  # rand_k's MULTIPLIER


@triton.jit
def _feistel(number, keys, s: tl.constexpr, b: tl.constexpr, ROUNDS: tl.constexpr):
    left, right = number & ((1 << s) - 1), number >> s
    for at in range(0, 4 * ROUNDS, 4):
        step = _mixed(left, tl.load(keys + at), tl.load(keys + at + 1))
        right += (((step >> 11) | -2097152) * b) >> 21  # −1 · 2²¹
        right += (right >> 31) & b
        flip = _mixed(right, tl.load(keys + at + 2), tl.load(keys + at + 3))
        left ^= (flip >> (32 - s)) & ((1 << s) - 1)
    return (right << s) | left


@triton.jit
def _permuted_kernel(
    out, keys, k, width, s: tl.constexpr, b: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr
):
    programs = tl.cdiv(k, BLOCK)  # of a row
    row = (tl.program_id(0) // programs).to(tl.int64)
    column = (tl.program_id(0) % programs) * BLOCK + tl.arange(0, BLOCK)
    keys += row * 4 * ROUNDS
    found = _feistel(tl.where(column < k, column, 0), keys, s, b, ROUNDS)
    while tl.max((found >= width).to(tl.int32), 0) > 0:
        found = tl.where(found >= width, _feistel(found, keys, s, b, ROUNDS), found)
    tl.store(out + row * k + column, found.to(tl.int64), column < k)


def philox(counters: Tensor, key: int) -> Tensor:
    """The four words [n, 4] of each of the counters [4, n]."""
    count = counters.shape[1]
    out = torch.empty(count, 4, dtype=torch.int64, device=counters.device)
    if count:
        with torch.cuda.device_of(out):
            _philox_kernel[(triton.cdiv(count, BLOCK),)](
                out, counters.contiguous(), count, _signed(key), BLOCK=BLOCK
            )
    return out


def words(key: int, tick: Tensor, source: Tensor, target: Tensor, columns: range) -> Tensor:
    """Philox words [rows, len(columns)] of the rows (source, target) at one tick [1], or each at its own [rows]."""
    out = torch.empty(len(source), len(columns), dtype=torch.int64, device=source.device)
    if out.numel():
        grid = (len(source) * triton.cdiv(len(columns), 4 * BLOCK),)
        where = (tick.contiguous(), source.contiguous(), target.contiguous())
        with torch.cuda.device_of(out):
            _words_kernel[grid](
                out,
                *where,
                columns.start // 4,
                len(columns),
                _signed(key),
                ONE_TICK=len(tick) == 1,
                BLOCK=BLOCK,
            )
    return out


def permuted(keys: Tensor, width: int, k: int, s: int, b: int) -> Tensor:
    """The first k values of a permutation of range(width) per row of keys, by a Feistel network on b·2^s numbers."""
    out = torch.empty(len(keys), k, dtype=torch.int64, device=keys.device)
    if out.numel():
        grid = (len(keys) * triton.cdiv(k, BLOCK),)
        with torch.cuda.device_of(out):
            _permuted_kernel[grid](
                out, keys.contiguous(), k, width, s=s, b=b, ROUNDS=keys.shape[1] // 4, BLOCK=BLOCK
            )
    return out


def _signed(key: int) -> int:
    """The same 64 bits, as the type of all of a kernel's numbers has them."""
    return key - (1 << 64) if key >> 63 else key
