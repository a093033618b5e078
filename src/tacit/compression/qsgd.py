"""QSGD: stochastic quantization to few levels (Alistarh et al. 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from tacit.compression import messages, quantization
from tacit.compression.fields import Fields
from tacit.compression.messages import MessageCodec
from tacit.core.codec import Draw
from tacit.core.errors import Misuse

BITS = (2, 4, 8, 16)


@dataclass(frozen=True)
class QSGD(MessageCodec):
    """C(u)ᵢ = ‖u‖₂ · ξᵢ / s with ξᵢ = ⌊s·uᵢ/‖u‖₂ + Uᵢ⌋, U uniform in [0, 1) and s = 2^(bits−1) − 1.

    The paper rounds |uᵢ| and restores the sign; rounding uᵢ itself gives ξ the same distribution.
    β = min(P/s², √P/s) (their Lemma 3.1). On the wire: header, ‖u‖₂ as one number, then the
    integers ξ in two's complement, packed with `bits` bits each.

    A zero row arrives as zero. A row with NaN or infinity, or whose norm overflows, has the norm
    NaN and arrives as NaN everywhere, so that the divergence is noticed.

    Args:
        bits: Bits per number: 2, 4, 8 or 16.

    Example:
        >>> QSGD(bits=4).size(1000, torch.float32)
        512
    """

    bits: int = 4
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if type(self.bits) is not int or self.bits not in BITS:
            raise Misuse(f"The bits of QSGD are {self.bits!r}.", "Give 2, 4, 8 or 16.")

    @property
    def levels(self) -> int:
        """s: the levels on each side of zero."""
        return (1 << (self.bits - 1)) - 1

    def size(self, width: int, dtype: torch.dtype) -> int:
        return messages.HEADER_BYTES + dtype.itemsize + quantization.packed_size(width, self.bits)

    def variance_bound(self, width: int) -> float:
        return min(width / self.levels**2, math.sqrt(width) / self.levels)

    def check_width(self, width: int) -> None:
        messages.check_width(width)

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        messages.check_rows(rows)
        words = draw("levels", rows.shape[1])
        return self._fields.received(rows, words, quantization.euclidean(rows))

    def write(self, rows: Tensor, draw: Draw, wire: Tensor) -> None:
        width = rows.shape[1]
        norm = quantization.euclidean(rows)
        packed = messages.begin(wire, "qsgd", width, rows.dtype, norm, parameter=self.bits)
        self._fields.write(rows, draw("levels", width), norm, packed)

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        size = self.size(width, dtype)
        content = messages.payload(wire, "qsgd", width, dtype, size, parameter=self.bits)
        norm = messages.as_numbers(content[:, : dtype.itemsize], dtype)
        return self._fields.read(content[:, dtype.itemsize :], norm, width)

    @property
    def _fields(self) -> Fields:
        """ξ; zero in rows that are zero (0/0) or not finite.

        No rounding gives |s·u/‖u‖₂| > s, hence |ξ| > s: `euclidean` is never below the maximum. s
        times 1/s is rounded to 1 for each of our s, so that ±s is ±‖u‖₂.
        """
        return _fields(self.bits, self.levels)


@cache
def _fields(bits: int, levels: int) -> Fields:
    return Fields(bits, factor=levels, scale=1 / levels)
