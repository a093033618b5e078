"""Small unsigned integers, several to a byte.

P fields of b bits take Q = ⌈P·b/8⌉ bytes. Byte j holds the fields j, j + Q, j + 2Q, …, the first in its lowest
bits; what is left over is zero. Fields that lie far apart share a byte so that packing is a few shifts of
long contiguous pieces, on any device, instead of one of every eighth number.
"""

from __future__ import annotations

import torch
from torch import Tensor


def packed_size(width: int, bits: int) -> int:
    """Bytes that `width` fields of `bits` bits take."""
    return -(-width * bits // 8)


def pack(fields: Tensor, bits: int) -> Tensor:
    """Fields below 2^bits, uint8 [n, P] with bits in {1, 2, 4, 8}, as bytes: uint8 [n, Q]."""
    step = packed_size(fields.shape[1], bits)
    packed = fields[:, :step].clone(memory_format=torch.contiguous_format)
    for plane in range(1, 8 // bits):
        part = fields[:, plane * step : (plane + 1) * step]
        packed[:, : part.shape[1]].add_(part, alpha=1 << plane * bits)  # into bits that are zero
    return packed


def unpack(packed: Tensor, bits: int, width: int) -> Tensor:
    """The fields that `pack` made these bytes of: [n, width], uint8, or of bytes given as int8 with their signs."""
    step = packed.shape[1]
    fields = packed.new_empty(len(packed), width)
    for plane in range(8 // bits):
        part = fields[:, plane * step : (plane + 1) * step]
        # Moved to the top of its byte and down again, a field is rid of the others.
        top = packed[:, : part.shape[1]] << 8 - (plane + 1) * bits
        torch.bitwise_right_shift(top, 8 - bits, out=part)
    return fields
