"""Unbiased random rounding to integers, and small integers packed into bytes.

Rounding: a uniform 32-bit word becomes the last 32 bits of a float64 between BASE and BASE + 1,
whose last bit is worth 2⁻³². A number added to it is thereby rounded to a multiple of 2⁻³², and
then all is exact: for an integer a and a uniform word, ⌊(a + word)/2³²⌋ has the mean a/2³². Every
step is one operation that all devices round alike.

Packing: P fields of b bits take Q = ⌈P·b/8⌉ bytes. Byte j holds the fields j, j + Q, j + 2Q, …, the
first in its lowest bits; unused bits are zero. Fields that are far apart share a byte so that
packing is a few shifts of long contiguous pieces, on any device.
"""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 1.5 * 2.0**20
_BITS_OF_BASE = 0x4138 << 48


def quotients(rows: Tensor, divisors: Tensor, factor: float) -> Tensor:
    """`factor`·rows/divisors in float64, in new memory: [n, P] for divisors [n, 1]."""
    divisors = divisors.to(torch.float64)
    if rows.dtype == torch.float32:
        # Three times as fast as a division.
        return rows.to(torch.float64).mul_(factor / divisors)
    # The inverse of a tiny float64 would overflow.
    return (rows / divisors).mul_(factor)


def round_randomly(numbers: Tensor, words: Tensor) -> Tensor:
    """⌊x + word/2³²⌋ plus BASE as int32, for float64 x with |x| < 2¹⁹. Overwrites `numbers`.

    BASE is a multiple of 2¹⁶ and vanishes where the result is cut to 8 or 16 bits.
    """
    based = (words | _BITS_OF_BASE).view(torch.float64)
    return numbers.add_(based).to(torch.int32)


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
