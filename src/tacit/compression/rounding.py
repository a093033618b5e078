"""Rounding at random, to the integer below or above, so that the mean is the number itself.

A uniform 32-bit word is made the last 32 bits of a float64 between BASE and BASE + 1, whose last bit is worth 2⁻³².
A number added to it is thereby rounded to a multiple of 2⁻³², and then all is exact: for an integer a and a uniform
word, ⌊(a + word)/2³²⌋ has the mean a/2³². Every step is one operation that all devices round alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 1.5 * 2.0**20
_BITS_OF_BASE = 0x4138 << 48


def based(words: Tensor) -> Tensor:
    """BASE + word/2³², exactly, in float64."""
    return (words | _BITS_OF_BASE).view(torch.float64)


def quotients(rows: Tensor, divisors: Tensor, times: float) -> Tensor:
    """`times`·rows/divisors in float64, in new memory: [n, P] for divisors [n, 1]."""
    divisors = divisors.to(torch.float64)
    if rows.dtype == torch.float32:
        return rows.to(torch.float64).mul_(times / divisors)  # three times as fast as a division
    return (rows / divisors).mul_(times)  # the inverse of a tiny float64 would overflow


def rounded_at_random(numbers: Tensor, words: Tensor) -> Tensor:
    """⌊x + U⌋ for float64 x with |x| < 2¹⁹ and U = word/2³², plus BASE, as int32. Overwrites `numbers`.

    BASE is a multiple of 2¹⁶ and vanishes where the result is cut to 8 or 16 bits.
    """
    return numbers.add_(based(words)).to(torch.int32)
