"""Random words, integer noise and permutations on a GPU, in one launch instead of a hundred.

They are the same integers: see `words` in core/randomness.py, `DiscreteGaussian` in
core/discrete_gaussian.py and `_permuted` in compression/subsets.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Counters or columns per program.
BLOCK = 256


@triton.jit
def _words_kernel(
    out, tick, source, target, first, width, key, ONE_TICK: tl.constexpr, BLOCK: tl.constexpr
):
    programs_per_row = tl.cdiv(width, 4 * BLOCK)
    row = (tl.program_id(0) // programs_per_row).to(tl.int64)
    block = (tl.program_id(0) % programs_per_row) * BLOCK + tl.arange(0, BLOCK)
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
def _drawn(word, position, client, tick, thresholds, count, further, STEPS: tl.constexpr):
    magnitude = (word & 0x7FFFFFFF).to(tl.int32)
    # Bisect: how many thresholds have first words below the magnitude.
    below = tl.zeros_like(magnitude)
    end = below + count
    for _ in range(STEPS):
        middle = (below + end) // 2
        first = tl.load(thresholds + 4 * middle, below < end, 0)
        is_below = (below < end) & (first < magnitude)
        end = tl.where(is_below, end, middle)
        below = tl.where(is_below, middle + 1, below)
    ties = tl.load(thresholds + 4 * below, below < count, -1) == magnitude
    if tl.max(ties.to(tl.int32), 0) > 0:
        r0, r1, r2, _r3 = tl.philox(further, position, client, tl.zeros_like(client), tick, 10)
        while tl.max(ties.to(tl.int32), 0) > 0:
            t0 = tl.load(thresholds + 4 * below + 1, ties, 0).to(tl.uint32)
            t1 = tl.load(thresholds + 4 * below + 2, ties, 0).to(tl.uint32)
            t2 = tl.load(thresholds + 4 * below + 3, ties, 0).to(tl.uint32)
            at_most = (t0 < r0) | ((t0 == r0) & ((t1 < r1) | ((t1 == r1) & (t2 <= r2))))
            passed = ties & at_most
            below += passed.to(tl.int32)
            following = tl.load(thresholds + 4 * below, passed & (below < count), -1)
            ties = following == magnitude
    return tl.where((word >> 31) > 0, -below, below)


@triton.jit
def _integers_kernel(
    out, stride, tick, source, thresholds, count, factor, width, key, further,
    SUM: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    programs_per_row = tl.cdiv(width, 2 * BLOCK)
    row = (tl.program_id(0) // programs_per_row).to(tl.int64)
    block = (tl.program_id(0) % programs_per_row) * BLOCK + tl.arange(0, BLOCK)
    c0 = block.to(tl.uint32)
    c1 = tl.load(source + row).to(tl.uint32) + tl.zeros_like(c0)
    c3 = tl.load(tick).to(tl.uint32) + tl.zeros_like(c0)
    w0, w1, w2, w3 = tl.philox(key, c0, c1, tl.zeros_like(c0), c3, 10)
    x0 = _drawn(w0, 4 * c0, c1, c3, thresholds, count, further, STEPS)
    y0 = _drawn(w1, 4 * c0 + 1, c1, c3, thresholds, count, further, STEPS)
    x1 = _drawn(w2, 4 * c0 + 2, c1, c3, thresholds, count, further, STEPS)
    y1 = _drawn(w3, 4 * c0 + 3, c1, c3, thresholds, count, further, STEPS)
    column = 2 * block
    z0 = (factor * x0 + y0).to(out.dtype.element_ty)
    z1 = (factor * x1 + y1).to(out.dtype.element_ty)
    if SUM:
        # Sums of integers do not depend on their order.
        tl.atomic_add(out + column, z0, column < width)
        tl.atomic_add(out + column + 1, z1, column + 1 < width)
    else:
        out += row * stride + column
        tl.store(out, tl.load(out, column < width) + z0, column < width)
        tl.store(out + 1, tl.load(out + 1, column + 1 < width) + z1, column + 1 < width)


@triton.jit
def _hashed(half, factor, term):
    mixed = half * (factor | 1) + term
    # The MULTIPLIER of compression/subsets.py.
    return (mixed ^ (mixed >> 15)) * 0x2C1B3C6D


@triton.jit
def _feistel(number, keys, s: tl.constexpr, b: tl.constexpr, ROUNDS: tl.constexpr):
    left, right = number & ((1 << s) - 1), number >> s
    for at in range(0, 4 * ROUNDS, 4):
        step = _hashed(left, tl.load(keys + at), tl.load(keys + at + 1))
        # −2097152 is −1 · 2²¹.
        right += (((step >> 11) | -2097152) * b) >> 21
        right += (right >> 31) & b
        flip = _hashed(right, tl.load(keys + at + 2), tl.load(keys + at + 3))
        left ^= (flip >> (32 - s)) & ((1 << s) - 1)
    return (right << s) | left


@triton.jit
def _permuted_kernel(
    out, keys, k, width, s: tl.constexpr, b: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr
):
    programs_per_row = tl.cdiv(k, BLOCK)
    row = (tl.program_id(0) // programs_per_row).to(tl.int64)
    column = (tl.program_id(0) % programs_per_row) * BLOCK + tl.arange(0, BLOCK)
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
    """Philox words [rows, len(columns)] of the rows (source, target).

    Args:
        key: The key.
        tick: One tick [1], or one per row [rows].
        source: The first address of each row, int64 [rows].
        target: The second address of each row, int64 [rows].
        columns: Which columns; they start at a multiple of 4.
    """
    out = torch.empty(len(source), len(columns), dtype=torch.int64, device=source.device)
    if out.numel():
        grid = (len(source) * triton.cdiv(len(columns), 4 * BLOCK),)
        addresses = (tick.contiguous(), source.contiguous(), target.contiguous())
        with torch.cuda.device_of(out):
            numbers = (columns.start // 4, len(columns), _signed(key))
            _words_kernel[grid](out, *addresses, *numbers, ONE_TICK=len(tick) == 1, BLOCK=BLOCK)
    return out


def add_integers(
    thresholds: Tensor,
    factor: int,
    keys: tuple[int, int],
    tick: Tensor,
    source: Tensor,
    onto: Tensor,
    is_sum: bool,
) -> None:
    """Add the integer noise of clients to their rows, or all of it to one row; sums wrap around.

    Args:
        thresholds: The words of the thresholds, int32 [count, 4].
        factor: The factor of the first word of a pair.
        keys: The key, and the key of further words.
        tick: The tick of all rows [1].
        source: The clients, int64 [k].
        onto: Rows int32 or int64 [k, P], or [1, P] for the sum; each is contiguous.
        is_sum: Whether to add all noise to the first row.
    """
    count, width = len(thresholds), onto.shape[1]
    if len(source) and width:
        grid = (len(source) * triton.cdiv(width, 2 * BLOCK),)
        with torch.cuda.device_of(onto):
            _integers_kernel[grid](
                onto, onto.stride(0), tick, source.contiguous(), thresholds, count,
                factor, width, *map(_signed, keys),
                SUM=is_sum, STEPS=count.bit_length(), BLOCK=BLOCK,
            )  # fmt: skip


def permuted(keys: Tensor, width: int, k: int, s: int, b: int) -> Tensor:
    """The first k values of a permutation of range(width) per row of keys.

    Args:
        keys: Keys of the rounds, int32 [n, 4·rounds].
        width: The length of the permutation.
        k: How many of its values to compute.
        s: The Feistel network permutes b·2^s numbers.
        b: See `s`.

    Returns:
        The values, int64 [n, k].
    """
    out = torch.empty(len(keys), k, dtype=torch.int64, device=keys.device)
    if out.numel():
        grid = (len(keys) * triton.cdiv(k, BLOCK),)
        with torch.cuda.device_of(out):
            _permuted_kernel[grid](
                out, keys.contiguous(), k, width, s=s, b=b, ROUNDS=keys.shape[1] // 4, BLOCK=BLOCK
            )
    return out


def _signed(key: int) -> int:
    """The same 64 bits as a signed integer, which Triton expects."""
    return key - (1 << 64) if key >> 63 else key
