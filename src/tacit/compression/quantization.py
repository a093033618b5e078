"""What quantizing codecs share: norms of rows, random rounding, and packing, block by block.

Norms: the same to the last bit however many rows are measured together. A library's sum may add in
an order that depends on the shape, the device and the threads. Here a maximum is used, which has no
order, or additions in an order that depends on the width only.

Rounding: a uniform 32-bit word becomes the last 32 bits of a float64 between BASE and BASE + 1,
whose last bit is worth 2⁻³². A number added to it is thereby rounded to a multiple of 2⁻³², and
then all is exact: for an integer a and a uniform word, ⌊(a + word)/2³²⌋ has the mean a/2³². Every
step is one operation that all devices round alike.

Packing: P fields of b bits take Q = ⌈P·b/8⌉ bytes. Byte j holds the fields j, j + Q, j + 2Q, …, the
first in its lowest bits; unused bits are zero. Fields that are far apart share a byte so that
packing is a few shifts of long contiguous pieces, on any device.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from tacit.core.native import codecs

# Numbers at a time, so that codecs need little memory. On a CPU, blocks that fit in its cache lose
# more by calls than they gain.
BLOCK = 1 << 22
# Squares this far apart are added first.
STRIDE = 1 << 17
# The bits of BASE = 1.5 · 2²⁰ as a float64.
_BITS_OF_BASE = 0x4138 << 48


def blocks(rows: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Cut `rows` rows of `width` numbers into blocks of at most BLOCK numbers."""
    for band in row_blocks(rows, width):
        for left in range(0, width, BLOCK):
            yield band, slice(left, min(width, left + BLOCK))


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Cut `rows` rows into slices of at most BLOCK numbers, but at least one row each."""
    height = max(1, BLOCK // max(1, width))
    for top in range(0, rows, height):
        yield slice(top, min(rows, top + height))


def extremes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """min|uᵢ| and max|uᵢ| of each row, both [n, 1]; the second NaN if a number is not finite."""
    if codecs.supports(rows):
        return codecs.extremes(rows)
    low = rows.new_full((len(rows), 1), torch.inf)
    high = rows.new_zeros(len(rows), 1)
    for band, part in blocks(*rows.shape):
        sizes = rows[band, part].abs()
        low[band] = torch.minimum(low[band], sizes.amin(dim=1, keepdim=True))
        high[band] = torch.maximum(high[band], sizes.amax(dim=1, keepdim=True))
    return low, _finite_or_nan(high)


def euclidean(rows: Tensor) -> Tensor:
    """‖u‖₂ of each row, [n, 1]; NaN if a number is not finite or the norm overflows.

    Despite rounding, it is not smaller than the largest number, whose square is exact.
    """
    unit = None
    # The squares of float32 neither overflow nor vanish in float64. Others are measured in units of
    # the largest number, so that no square overflows and only zero rows have norm zero.
    if rows.dtype != torch.float32:
        unit = extremes(rows)[1]
        unit = torch.where(unit == 0, 1.0, unit)
    bands = list(row_blocks(rows.shape[0], min(rows.shape[1], STRIDE)))
    if len(bands) == 1:
        return _norms(rows, unit)
    norms = (_norms(rows[band], None if unit is None else unit[band]) for band in bands)
    return torch.cat([rows.new_empty(0, 1), *norms])


def _norms(rows: Tensor, unit: Tensor | None) -> Tensor:
    if codecs.supports(rows):
        return codecs.norms(rows, unit, STRIDE)
    roots = _rounded_root(_sum_of_squares(rows, unit))
    return _finite_or_nan((roots if unit is None else roots * unit).to(rows.dtype))


def _rounded_root(x: Tensor) -> Tensor:
    """The root, rounded correctly; torch's on x86-64 is MKL's, which may be off by one bit."""
    if x.device.type != "cpu":
        return x.sqrt_()
    return torch.from_numpy(np.sqrt(x.detach().numpy()))


def _sum_of_squares(rows: Tensor, unit: Tensor | None = None) -> Tensor:
    """Σ(uᵢ/unit)² of each row in float64, [n, 1].

    Squares a STRIDE apart are added first; then the second half is added to the first, repeatedly.
    """

    def squares(part: Tensor) -> Tensor:
        wide = part.to(torch.float64, copy=True) if unit is None else part / unit
        return wide.square_()

    width = min(rows.shape[1], STRIDE)
    total = squares(rows[:, :width])
    for left in range(STRIDE, rows.shape[1], STRIDE):
        part = rows[:, left : left + STRIDE]
        total[:, : part.shape[1]] += squares(part)
    while width > 1:
        half = (width + 1) // 2
        total[:, : width - half] += total[:, half:width]
        width = half
    return total[:, :1]


def _finite_or_nan(sizes: Tensor) -> Tensor:
    return torch.where(torch.isfinite(sizes), sizes, torch.nan)


def quotients(rows: Tensor, divisors: Tensor, factor: float) -> Tensor:
    """`factor`·rows/divisors in float64, in new memory: [n, P] for divisors [n, 1]."""
    divisors = divisors.to(torch.float64)
    if rows.dtype == torch.float32:
        # Three times as fast as a division.
        return rows.to(torch.float64).mul_(factor / divisors)
    # The inverse of a tiny float64 would overflow.
    return (rows / divisors).mul_(factor)


def round_randomly(numbers: Tensor, words: Tensor, offset: float = 0.0) -> Tensor:
    """⌊x + offset + word/2³²⌋ plus BASE as int32, for float64 x. Overwrites `numbers`.

    BASE is a multiple of 2¹⁶ and vanishes where the result is cut to 8 or 16 bits. |x| must be
    below 2¹⁹, and the offset a multiple of 2⁻³².
    """
    based = words.to(torch.int64) + (_BITS_OF_BASE + int(offset * 2.0**32))
    return numbers.add_(based.view(torch.float64)).to(torch.int32)


def packed_size(width: int, bits: int) -> int:
    """Bytes that `width` fields of `bits` bits take."""
    return -(-width * bits // 8)


def pack(fields: Tensor, bits: int) -> Tensor:
    """Pack fields below 2^bits, uint8 [n, P], into bytes, uint8 [n, Q]; bits is 1, 2, 4 or 8."""
    step = packed_size(fields.shape[1], bits)
    packed = fields[:, :step].clone(memory_format=torch.contiguous_format)
    for plane in range(1, 8 // bits):
        part = fields[:, plane * step : (plane + 1) * step]
        packed[:, : part.shape[1]].add_(part, alpha=1 << plane * bits)
    return packed


def pack_signs(rows: Tensor, out: Tensor) -> None:
    """Write whether each number of rows [n, P] is at least zero to the bytes `out` [n, ⌈P/8⌉]."""
    if codecs.supports(rows):
        codecs.signs(rows, out)
    else:
        out.copy_(pack((rows >= 0).view(torch.uint8), 1))


def unpack(packed: Tensor, bits: int, width: int) -> Tensor:
    """Undo `pack`: [n, width] of uint8, or signed fields of bytes given as int8."""
    step = packed.shape[1]
    fields = packed.new_empty(len(packed), width)
    for plane in range(8 // bits):
        part = fields[:, plane * step : (plane + 1) * step]
        # Shifting a field to the top of its byte and down again removes the others.
        top = packed[:, : part.shape[1]] << 8 - (plane + 1) * bits
        torch.bitwise_right_shift(top, 8 - bits, out=part)
    return fields
