"""Random words, integer noise and permutations on a GPU, in one launch instead of a hundred.

They are the same integers: see `words` in core/randomness.py, `DiscreteGaussian` in
core/discrete_gaussian.py and `_permuted` in compression/subsets.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.core.native import CELLS, TAIL_CELL, Law

# Counters or columns per program.
BLOCK = 256
# Counters of integer noise per program, which is one warp: the fewer, the rarer is doubt in one.
NOISE_BLOCK = 32
# Clients whose noise a program adds up, and rows that it encodes.
CLIENTS_TOGETHER, ROWS_TOGETHER = 32, 32


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
def _guess(word, guide, TAIL_CELL: tl.constexpr):
    # As draw_by_guide in loops/noise.h: how many thresholds are below the magnitude, or doubt.
    magnitude = (word & 0x7FFFFFFF).to(tl.int32)
    cell = tl.maximum(magnitude >> 18, (magnitude >> 14) - 15 * TAIL_CELL)
    entry = tl.load(guide + cell)
    total = entry.to(tl.uint32, bitcast=True) + (word & 0x3FFFF)
    doubt = ((total | ((total & 0x3FFFF) - 1)) >> 31) > 0
    return magnitude, cell, entry, (total >> 18).to(tl.int32), doubt


@triton.jit
def _settled(
    magnitude, cell, entry, below, doubt, position, client, tick, guide, thresholds, count, further,
    CELLS: tl.constexpr
):  # fmt: skip
    # Bisect from the first threshold of the cell to that of the next: how many thresholds have
    # first words below the magnitude.
    following = tl.load(guide + cell + 1, doubt & (cell + 1 < CELLS), -1)
    begin = tl.where(entry < 0, entry & 0x7FFFFFFF, tl.maximum((entry >> 18) - 1, 0))
    end = tl.where(following < 0, following & 0x7FFFFFFF, (following >> 18) + 1)
    low = tl.where(doubt, begin, below)
    end = tl.where(doubt, tl.minimum(end, count), below)
    while tl.max((low < end).to(tl.int32), 0) > 0:
        middle = (low + end) // 2
        first = tl.load(thresholds + 4 * middle, low < end, 0)
        is_below = (low < end) & (first < magnitude)
        end = tl.where(is_below, end, middle)
        low = tl.where(is_below, middle + 1, low)
    ties = tl.load(thresholds + 4 * low, doubt & (low < count), -1) == magnitude
    if tl.max(ties.to(tl.int32), 0) > 0:
        r0, r1, r2, _r3 = tl.philox(further, position, client, tl.zeros_like(client), tick, 10)
        while tl.max(ties.to(tl.int32), 0) > 0:
            t0 = tl.load(thresholds + 4 * low + 1, ties, 0).to(tl.uint32)
            t1 = tl.load(thresholds + 4 * low + 2, ties, 0).to(tl.uint32)
            t2 = tl.load(thresholds + 4 * low + 3, ties, 0).to(tl.uint32)
            at_most = (t0 < r0) | ((t0 == r0) & ((t1 < r1) | ((t1 == r1) & (t2 <= r2))))
            passed = ties & at_most
            low += passed.to(tl.int32)
            ties = tl.load(thresholds + 4 * low, passed & (low < count), -1) == magnitude
    return low


@triton.jit
def _integers_kernel(
    out, stride, tick, source, clients, guide, thresholds, count, factor, width, key, further,
    SUM: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr, CLIENTS: tl.constexpr,
    CELLS: tl.constexpr, TAIL_CELL: tl.constexpr
):  # fmt: skip
    # Four words are 4 // EACH numbers.
    numbers: tl.constexpr = 4 // EACH
    programs_per_row = tl.cdiv(width, numbers * BLOCK)
    begin = (tl.program_id(0) // programs_per_row).to(tl.int64) * CLIENTS
    block = (tl.program_id(0) % programs_per_row) * BLOCK + tl.arange(0, BLOCK)
    c0 = block.to(tl.uint32)
    c3 = tl.load(tick).to(tl.uint32) + tl.zeros_like(c0)
    column = numbers * block
    # 32 clients' numbers are at most 32 · 601 · 13 · 1024, which is below 2³¹.
    s0 = tl.zeros((BLOCK,), dtype=tl.int32)
    s1 = tl.zeros((BLOCK,), dtype=tl.int32)
    s2 = tl.zeros((BLOCK,), dtype=tl.int32)
    s3 = tl.zeros((BLOCK,), dtype=tl.int32)
    for row in range(begin, tl.minimum(begin + CLIENTS, clients)):
        c1 = tl.load(source + row).to(tl.uint32) + tl.zeros_like(c0)
        w0, w1, w2, w3 = tl.philox(key, c0, c1, tl.zeros_like(c0), c3, 10)
        m0, cell0, e0, d0, doubt0 = _guess(w0, guide, TAIL_CELL)
        m1, cell1, e1, d1, doubt1 = _guess(w1, guide, TAIL_CELL)
        m2, cell2, e2, d2, doubt2 = _guess(w2, guide, TAIL_CELL)
        m3, cell3, e3, d3, doubt3 = _guess(w3, guide, TAIL_CELL)
        if tl.max((doubt0 | doubt1 | doubt2 | doubt3).to(tl.int32), 0) > 0:
            d0 = _settled(
                m0, cell0, e0, d0, doubt0, 4 * c0, c1, c3, guide, thresholds, count, further,
                CELLS,
            )  # fmt: skip
            d1 = _settled(
                m1, cell1, e1, d1, doubt1, 4 * c0 + 1, c1, c3, guide, thresholds, count, further,
                CELLS,
            )  # fmt: skip
            d2 = _settled(
                m2, cell2, e2, d2, doubt2, 4 * c0 + 2, c1, c3, guide, thresholds, count, further,
                CELLS,
            )  # fmt: skip
            d3 = _settled(
                m3, cell3, e3, d3, doubt3, 4 * c0 + 3, c1, c3, guide, thresholds, count, further,
                CELLS,
            )  # fmt: skip
        d0 = tl.where((w0 >> 31) > 0, -d0, d0)
        d1 = tl.where((w1 >> 31) > 0, -d1, d1)
        d2 = tl.where((w2 >> 31) > 0, -d2, d2)
        d3 = tl.where((w3 >> 31) > 0, -d3, d3)
        if EACH == 2:
            s0 += factor * d0 + d1
            s1 += factor * d2 + d3
        else:
            s0 += d0
            s1 += d1
            s2 += d2
            s3 += d3
    kind: tl.constexpr = out.dtype.element_ty
    if SUM:
        # Sums of integers do not depend on their order.
        tl.atomic_add(out + column, s0.to(kind), column < width)
        tl.atomic_add(out + column + 1, s1.to(kind), column + 1 < width)
        if EACH == 1:
            tl.atomic_add(out + column + 2, s2.to(kind), column + 2 < width)
            tl.atomic_add(out + column + 3, s3.to(kind), column + 3 < width)
    else:
        # One client per program.
        out += begin * stride + column
        tl.store(out, tl.load(out, column < width) + s0.to(kind), column < width)
        tl.store(out + 1, tl.load(out + 1, column + 1 < width) + s1.to(kind), column + 1 < width)
        if EACH == 1:
            third, last = column + 2 < width, column + 3 < width
            tl.store(out + 2, tl.load(out + 2, third) + s2.to(kind), third)
            tl.store(out + 3, tl.load(out + 3, last) + s3.to(kind), last)


@triton.jit
def _encoded_sum_kernel(
    x, out, stride, rows, width, scale, limit, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    blocks = tl.cdiv(width, COLUMNS)
    column = (tl.program_id(0) % blocks) * COLUMNS + tl.arange(0, COLUMNS)
    first = (tl.program_id(0) // blocks).to(tl.int64) * ROWS
    # Numbers of the host would come in single precision.
    scale, limit = tl.load(scale), tl.load(limit)
    total = tl.zeros((COLUMNS,), dtype=tl.float64)
    for row in range(first, tl.minimum(first + ROWS, rows)):
        value = tl.load(x + row * stride + column, column < width, 0.0).to(tl.float64) * scale
        value = tl.where(value == value, value, limit)
        value = tl.minimum(tl.maximum(value, -limit), limit)
        # To the nearest integer, ties to even: adding 1.5 · 2⁵² leaves no other digits.
        total += (value + 6755399441055744.0) - 6755399441055744.0
    tl.atomic_add(out + column, total.to(tl.int64), column < width)


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
    value = _feistel(tl.where(column < k, column, 0), keys, s, b, ROUNDS)
    while tl.max((value >= width).to(tl.int32), 0) > 0:
        value = tl.where(value >= width, _feistel(value, keys, s, b, ROUNDS), value)
    tl.store(out + row * k + column, value.to(tl.int64), column < k)


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
    law: Law,
    keys: tuple[int, int],
    tick: Tensor,
    source: Tensor,
    onto: Tensor,
    is_sum: bool,
) -> None:
    """Add the integer noise of clients to their rows, or all of it to one row; sums wrap around.

    Args:
        law: The distribution.
        keys: The key, and the key of further words.
        tick: The tick of all rows [1].
        source: The clients, int64 [k].
        onto: Rows int32 or int64 [k, P], or [1, P] for the sum; each is contiguous.
        is_sum: Whether to add all noise to the first row.
    """
    guide, thresholds, factor = law
    count, width, each = len(thresholds), onto.shape[1], 2 if factor else 1
    together = CLIENTS_TOGETHER if is_sum else 1
    if len(source) and width:
        blocks = triton.cdiv(width, 4 // each * NOISE_BLOCK)
        grid = (triton.cdiv(len(source), together) * blocks,)
        with torch.cuda.device_of(onto):
            _integers_kernel[grid](
                onto, onto.stride(0), tick, source.contiguous(), len(source), guide, thresholds,
                count, factor, width, *map(_signed, keys), SUM=is_sum, EACH=each,
                BLOCK=NOISE_BLOCK, CLIENTS=together, CELLS=CELLS, TAIL_CELL=TAIL_CELL, num_warps=1,
            )  # fmt: skip


def encoded_sum(rows: Tensor, scale: float, limit: int) -> Tensor:
    """Σ round(scale · x) over rows float32 [n, P], each limited to ±limit: int64 [P].

    What is not a number counts as the limit.
    """
    count, width = rows.shape
    out = torch.zeros(width, dtype=torch.int64, device=rows.device)
    # Fills, not copies from the host: those would wait for the GPU.
    factor, most = (
        torch.full((1,), float(number), dtype=torch.float64, device=rows.device)
        for number in (scale, limit)
    )
    if rows.numel():
        grid = (triton.cdiv(width, BLOCK) * triton.cdiv(count, ROWS_TOGETHER),)
        with torch.cuda.device_of(rows):
            _encoded_sum_kernel[grid](
                rows, out, rows.stride(0), count, width, factor, most,
                ROWS=ROWS_TOGETHER, COLUMNS=BLOCK, num_warps=4,
            )  # fmt: skip
    return out


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
