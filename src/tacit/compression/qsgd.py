"""Stochastic quantization (Alistarh et al. 2017, QSGD): few levels, rounded at random to either neighbour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tacit.compression.bands import bands
from tacit.compression.codec import Draw, check_rows, check_wide_enough
from tacit.compression.magnitudes import euclidean
from tacit.compression.packing import pack, packed_size, unpack
from tacit.compression.rounding import quotients, rounded_at_random
from tacit.compression.wire import HEADER, message, numbers, payload
from tacit.core.errors import Misuse

WIDTHS = (2, 4, 8, 16)


@dataclass(frozen=True)
class QSGD:
    """C(u)ᵢ = ‖u‖₂ · ξᵢ / s with ξᵢ = ⌊s·uᵢ/‖u‖₂ + Uᵢ⌋, U uniform in [0, 1) and s = 2^(bits−1) − 1.

    The paper rounds |uᵢ| and puts the sign back; rounding uᵢ itself gives ξ the same law. β = min(P/s², √P/s)
    (their Lemma 3.1). On the wire: header, ‖u‖₂ as one number, then the integers ξ in two's complement, `bits`
    bits each (packing.py; 16 bits: one after the other).

    A zero row arrives as zero. A row with NaN or infinity, or with a norm beyond its kind of number, has the
    norm NaN and arrives as NaN everywhere, so that whoever watches for divergence sees it.
    """

    bits: int = 4
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if type(self.bits) is not int or self.bits not in WIDTHS:
            raise Misuse(f"The bits of QSGD are {self.bits!r}.", "Give 2, 4, 8 or 16.")

    @property
    def levels(self) -> int:
        """s: the levels on each side of zero."""
        return (1 << (self.bits - 1)) - 1

    def size(self, width: int, dtype: torch.dtype) -> int:
        """8 + one number + P·bits/8, rounded up."""
        return HEADER + dtype.itemsize + packed_size(width, self.bits)

    def variance_bound(self, width: int) -> float:
        """min(P/s², √P/s)."""
        return min(width / self.levels**2, math.sqrt(width) / self.levels)

    def check_width(self, width: int) -> None:
        """Any width of at least 1."""
        check_wide_enough(width)

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        """‖u‖₂ · ξ / s."""
        return self._restored(*self._quantized(rows, draw))

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        """Header, norm and integers."""
        norm, xi = self._quantized(rows, draw)
        if self.bits < 16:
            xi = pack(xi.view(torch.uint8) & (1 << self.bits) - 1, self.bits)
        return message("qsgd", rows.shape[1], rows.dtype, norm, xi, parameter=self.bits)

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """‖u‖₂ · ξ / s, from the bytes."""
        size = self.size(width, dtype)
        content = payload(wire, "qsgd", width, dtype, size, parameter=self.bits)
        norm = numbers(content[:, : dtype.itemsize], dtype)
        packed = content[:, dtype.itemsize :]
        if self.bits == 16:
            return self._restored(norm, numbers(packed, torch.int16))
        return self._restored(norm, unpack(packed.view(torch.int8), self.bits, width))

    def _quantized(self, rows: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """The norms [n, 1], rounded as they travel, and ξ [n, P]."""
        check_rows(rows)
        self.check_width(rows.shape[1])
        norm = euclidean(rows)
        words = draw("levels", rows.shape[1])
        xi = torch.empty(
            rows.shape, dtype=torch.int16 if self.bits == 16 else torch.int8, device=rows.device
        )
        for band, part in bands(*rows.shape):
            # No rounding gives |share| > s, hence |ξ| > s: `euclidean` is never below the largest number.
            share = quotients(rows[band, part], norm[band], self.levels)
            xi[band, part] = rounded_at_random(share, words[band, part])
        odd = ~(norm > 0).squeeze(1)
        if bool(odd.any()):
            xi[odd] = 0  # 0/0, and rows that are not finite
        return norm, xi

    def _restored(self, norm: Tensor, xi: Tensor) -> Tensor:
        out = torch.empty(xi.shape, dtype=norm.dtype, device=norm.device)
        for band, part in bands(*xi.shape):
            # s times 1/s is rounded to 1 for each of our s, so that ±s is ±‖u‖₂.
            out[band, part].copy_(xi[band, part]).mul_(1 / self.levels).mul_(norm[band])
        return out
