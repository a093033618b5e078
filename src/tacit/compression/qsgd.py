"""QSGD: stochastic quantization to few levels (Alistarh et al. 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tacit.compression import messages, quantization
from tacit.core.codec import Draw
from tacit.core.errors import Misuse

BITS = (2, 4, 8, 16)


@dataclass(frozen=True)
class QSGD:
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
        return self._restored(*self._quantized(rows, draw))

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        norm, xi = self._quantized(rows, draw)
        if self.bits < 16:
            xi = quantization.pack(xi.view(torch.uint8) & (1 << self.bits) - 1, self.bits)
        return messages.make("qsgd", rows.shape[1], rows.dtype, norm, xi, parameter=self.bits)

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        size = self.size(width, dtype)
        content = messages.payload(wire, "qsgd", width, dtype, size, parameter=self.bits)
        norm = messages.as_numbers(content[:, : dtype.itemsize], dtype)
        packed = content[:, dtype.itemsize :]
        if self.bits == 16:
            return self._restored(norm, messages.as_numbers(packed, torch.int16))
        return self._restored(norm, quantization.unpack(packed.view(torch.int8), self.bits, width))

    def _quantized(self, rows: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """The norms [n, 1], rounded as they travel, and ξ [n, P]."""
        messages.check_rows(rows)
        norm = quantization.euclidean(rows)
        words = draw("levels", rows.shape[1])
        dtype = torch.int16 if self.bits == 16 else torch.int8
        xi = torch.empty(rows.shape, dtype=dtype, device=rows.device)
        for band, part in quantization.blocks(*rows.shape):
            # No rounding gives |share| > s, hence |ξ| > s: `euclidean` is never below the maximum.
            share = quantization.quotients(rows[band, part], norm[band], self.levels)
            xi[band, part] = quantization.round_randomly(share, words[band, part])
        # Zero rows (0/0), and rows that are not finite.
        degenerate = ~(norm > 0).squeeze(1)
        if bool(degenerate.any()):
            xi[degenerate] = 0
        return norm, xi

    def _restored(self, norm: Tensor, xi: Tensor) -> Tensor:
        out = torch.empty(xi.shape, dtype=norm.dtype, device=norm.device)
        for band, part in quantization.blocks(*xi.shape):
            # s times 1/s is rounded to 1 for each of our s, so that ±s is ±‖u‖₂.
            out[band, part].copy_(xi[band, part]).mul_(1 / self.levels).mul_(norm[band])
        return out
