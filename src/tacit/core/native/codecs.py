"""Compiled loops for codecs: the bits of the tensor operations in `tacit.compression`.

Work is shared by the current pool, in ranges of columns: of the numbers of a row, or of its bytes.

Tensor operations take 2 to 20 times as long on a CPU, by `tacit bench codec`: they pass over the
memory for each operation, of which rounding a number at random needs a dozen.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core import native
from tacit.core.native import SUFFIX, Argument, call, strided
from tacit.core.workers import current_pool

# Below this many numbers, one thread is faster.
SMALL = 1 << 16
# Columns that are added to each other while squares are added, at most 2³.
PARTS = 8


class Quantizer(ctypes.Structure):
    """How numbers become fields of a few bits and back; in the order of the struct in C.

    A field is ⌊factor·x/divisor + offset + word/2³²⌋, and stands for (field·scale + shift)·divisor.
    In rows whose divisor is not positive, every field is `otherwise`. Fields of one bit are 0 or 1;
    others are in two's complement and have no shift.
    """

    _fields_ = (
        ("factor", ctypes.c_double),
        ("offset", ctypes.c_double),
        ("scale", ctypes.c_double),
        ("shift", ctypes.c_double),
        ("bits", ctypes.c_int64),
        ("otherwise", ctypes.c_int64),
    )


def supports(rows: Tensor, *words: Tensor) -> bool:
    """Whether there are compiled loops for rows, and for words uint32 of the same layout."""
    return native.supports(rows) and all(
        part.dtype == torch.uint32 and part.stride(1) == 1 and part.is_cpu for part in words
    )


def quantize(x: Tensor, words: Tensor, divisor: Tensor, how: Quantizer, out: Tensor) -> None:
    """Write the packed fields of rows x [n, P] to the bytes `out` [n, Q].

    Args:
        x: The rows; each is contiguous.
        words: A word per number, uint32 [n, P]; each row is contiguous.
        divisor: One number per row, of the type of `x`, [n, 1], contiguous.
        how: The quantizer.
        out: Where to write, uint8; each row is contiguous.
    """
    columns = x.shape[1] if how.bits == 16 else out.shape[1]
    _check(x, words, divisor, out, how)
    _shared(
        f"tacit_quantize_{SUFFIX[x.dtype]}",
        (*strided(x), *strided(words), divisor, how, *strided(out), x.shape[1]),
        (x.shape[0], columns),
        x.numel(),
    )


def restore(packed: Tensor, divisor: Tensor, how: Quantizer, out: Tensor) -> None:
    """Write the numbers that packed fields uint8 [n, Q] stand for to rows `out` [n, P]."""
    columns = out.shape[1] if how.bits == 16 else packed.shape[1]
    _check(out, None, divisor, packed, how)
    _shared(
        f"tacit_restore_{SUFFIX[out.dtype]}",
        (*strided(packed), divisor, how, *strided(out), out.shape[1]),
        (out.shape[0], columns),
        out.numel(),
    )


def received(x: Tensor, words: Tensor, divisor: Tensor, how: Quantizer, out: Tensor) -> None:
    """`restore` of `quantize`, without the bytes."""
    _check(x, words, divisor, None, how)
    _shared(
        f"tacit_received_{SUFFIX[x.dtype]}",
        (*strided(x), *strided(words), divisor, how, *strided(out)),
        x.shape,
        x.numel(),
    )


def signs(x: Tensor, out: Tensor) -> None:
    """Pack whether each number of x [n, P] is at least zero into the bytes `out` [n, ⌈P/8⌉]."""
    _shared(
        f"tacit_signs_{SUFFIX[x.dtype]}",
        (*strided(x), *strided(out), x.shape[1]),
        (x.shape[0], out.shape[1]),
        x.numel(),
    )


def extremes(x: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest magnitude of each row, [n, 1].

    The largest is NaN if a number is not finite.
    """
    n, width = x.shape
    low, high = x.new_empty(n, 1), x.new_empty(n, 1)
    name = f"tacit_extremes_{SUFFIX[x.dtype]}"

    def work(rows: slice) -> None:
        call(name, *strided(x), low, high, rows.start, rows.stop, width)

    _run(work, n, x.numel())
    return low, high


def norms(x: Tensor, unit: Tensor | None, stride: int) -> Tensor:
    """unit·√Σ(uᵢ/unit)² of each row, [n, 1]; NaN if that is not finite.

    Args:
        x: The rows; each is contiguous.
        unit: Units [n, 1] of float64 rows; none for float32.
        stride: Squares this far apart are added first, in float64. Then the second half is added to
            the first, again and again.
    """
    n, numbers = x.shape
    stride = min(stride, numbers)
    # The first loop also halves up to three times, where the halves are equal.
    parts = math.gcd(PARTS, stride)
    width = stride // parts
    totals = torch.empty(n, width, dtype=torch.float64)
    lengths = x.new_empty(n, 1)
    squares, roots = f"tacit_squares_{SUFFIX[x.dtype]}", f"tacit_norms_{SUFFIX[x.dtype]}"
    summands = (*strided(x), unit, totals, width, stride, parts, numbers)
    sums = (totals, width, width, unit, lengths)

    def add_up(rows: slice) -> None:
        call(roots, *sums, rows.start, rows.stop)

    def work(rows: slice) -> None:
        call(squares, *summands, rows.start, rows.stop, 0, width)
        add_up(rows)

    if x.numel() >= SMALL and n % current_pool().size:
        # All threads work on each row.
        _shared(squares, summands, (n, width), x.numel())
        _run(add_up, n, totals.numel() // 4)
    else:
        _run(work, n, x.numel())
    return lengths


@dataclass(frozen=True)
class Permutation:
    """A permutation of range(width) per row; see `tacit.compression.subsets`.

    Args:
        seed: Two words per row, int64 [n, 2], contiguous.
        key: The key of the words that the seeds address.
        width: The count of numbers that are permuted.
        s: Bits of the left half of a number.
        b: Count of right halves.
    """

    seed: Tensor
    key: int
    width: int
    s: int
    b: int

    def arguments(self) -> tuple[Argument, ...]:
        seed = self.seed
        if not (seed.dtype == torch.int64 and seed.is_contiguous() and seed.shape[1] == 2):
            raise ValueError(f"seeds {seed.dtype} {tuple(seed.shape)} of a permutation")
        return seed, self.key, self.width, self.s, self.b


def permuted(by: Permutation, out: Tensor) -> None:
    """Write where 0, 1, … go to int64 [n, k]."""
    _shared("tacit_permuted", (*by.arguments(), *strided(out)), out.shape, out.numel())


def gather(by: Permutation, x: Tensor, out: Tensor) -> None:
    """Write the numbers of x [n, width] where 0, 1, … go to `out` [n, k]."""
    arguments = (*by.arguments(), *strided(x), *strided(out))
    _shared(f"tacit_gather_{SUFFIX[x.dtype]}", arguments, out.shape, out.numel())


def spread(by: Permutation, kept: Tensor, factor: float, out: Tensor) -> None:
    """Write factor·kept [n, k] to the columns of `out` where 0, 1, … go, and zero to the others."""
    arguments = (*by.arguments(), *strided(kept), float(factor), *strided(out))
    name = f"tacit_spread_{SUFFIX[kept.dtype]}"
    n, k = kept.shape
    pool = current_pool()
    if out.numel() >= SMALL and n % pool.size:
        # All threads work on each row, after it was cleared.
        out.zero_()
        _shared(name, (*arguments, 0), kept.shape, kept.numel())
        return

    def work(rows: slice) -> None:
        call(name, *arguments, 1, rows.start, rows.stop, 0, k)

    _run(work, n, out.numel())


def _check(
    x: Tensor, words: Tensor | None, divisor: Tensor, packed: Tensor | None, how: Quantizer
) -> None:
    n, width = x.shape
    fits = divisor.shape == (n, 1) and divisor.dtype == x.dtype and divisor.is_contiguous()
    if words is not None:
        fits = fits and words.shape == x.shape and words.dtype == torch.uint32
    if packed is not None:
        size = -(-width * how.bits // 8)
        fits = fits and packed.shape == (n, size) and packed.dtype == torch.uint8
        fits = fits and (packed.stride(1) == 1 or size == 1)
    if not fits:
        raise ValueError(f"fields of {how.bits} bits of rows {x.dtype} {tuple(x.shape)}")


def _shared(
    name: str, arguments: tuple[Argument, ...], shape: tuple[int, ...] | torch.Size, work: int
) -> None:
    """Call a loop for ranges of columns of all rows; `work` is how many numbers it handles."""
    rows, columns = shape

    def run(part: slice) -> None:
        call(name, *arguments, 0, rows, part.start, part.stop)

    _run(run, columns, work)


def _run(work: Callable[[slice], None], count: int, numbers: int) -> None:
    if numbers < SMALL:
        work(slice(0, count))
        return
    pool = current_pool()
    pool.run_with_caller(work, pool.split(count))
