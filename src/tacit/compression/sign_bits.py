"""One bit per number: the sign, drawn so that its mean is the number; exact for vectors of one size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from tacit.compression.bands import bands
from tacit.compression.codec import Codec, Draw, check_rows, check_wide_enough
from tacit.compression.identity import Identity
from tacit.compression.magnitudes import extremes
from tacit.compression.packing import pack, packed_size, unpack
from tacit.compression.rand_k import RandK
from tacit.compression.rounding import quotients, rounded_at_random
from tacit.compression.wire import HEADER, message, numbers, payload


@dataclass(frozen=True)
class SignBits:
    """C(u)ᵢ = +m with probability (1 + uᵢ/m)/2, else −m, with m = max|uᵢ|; β = P − 1.

    A row whose entries all are ±m, such as a scaled sign vector, arrives exactly and needs no random words. On the
    wire: header, m as one number, one bit per number (1 is +; packing.py).

    A zero row arrives as zero. A row with NaN or infinity has m = NaN and arrives as NaN everywhere.
    """

    lossless: ClassVar[bool] = False

    def size(self, width: int, dtype: torch.dtype) -> int:
        """8 + one number + P/8, rounded up."""
        return HEADER + dtype.itemsize + packed_size(width, 1)

    def variance_bound(self, width: int) -> float:
        """P − 1, since ‖C(u)‖² = P·m² ≤ P‖u‖²."""
        return float(width - 1)

    def check_width(self, width: int) -> None:
        """Any width of at least 1."""
        check_wide_enough(width)

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        """±m."""
        low, m = self._extremes(rows)
        if torch.equal(low, m):
            return rows + 0.0  # as they are, but that −0 is 0
        return _restored(m, _drawn(rows, m, draw))

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        """Header, m and bits."""
        low, m = self._extremes(rows)
        # Of rows of one size, any words would give the signs that they have.
        plus = (rows >= 0).view(torch.uint8) if torch.equal(low, m) else _drawn(rows, m, draw)
        return message("sign", rows.shape[1], rows.dtype, m, pack(plus, 1))

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """±m, from the bytes."""
        content = payload(wire, "sign", width, dtype, self.size(width, dtype))
        m = numbers(content[:, : dtype.itemsize], dtype)
        return _restored(m, unpack(content[:, dtype.itemsize :], 1, width))

    def _extremes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The smallest |uᵢ| and the largest, which is m: both [n, 1]."""
        check_rows(rows)
        self.check_width(rows.shape[1])
        return extremes(rows)


@dataclass(frozen=True)
class SignsOfOneSize(SignBits):
    """For rows that are known to be ±m throughout, or to have a NaN: nothing to look at, and nothing to draw."""

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        """As they are, but that −0 is 0; NaN everywhere if m is."""
        _, m = self._extremes(rows)
        return torch.where(m.isnan(), m, rows + 0.0)

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        """Header, m and bits."""
        _, m = self._extremes(rows)
        return message("sign", rows.shape[1], rows.dtype, m, pack((rows >= 0).view(torch.uint8), 1))


def for_signs(codec: Codec) -> Codec:
    """The same codec for vectors whose entries all have one size: numbers sent as they are become bits."""
    if isinstance(codec, Identity):
        return SignsOfOneSize()
    if isinstance(codec, RandK):
        return replace(codec, values=for_signs(codec.values))
    return codec


def _drawn(rows: Tensor, m: Tensor, draw: Draw) -> Tensor:
    """One for each +, zero for each −: uint8 [n, P]."""
    words = draw("signs", rows.shape[1])
    plus = torch.empty(rows.shape, dtype=torch.uint8, device=rows.device)
    for band, part in bands(*rows.shape):
        share = quotients(rows[band, part], m[band], 0.5).add_(0.5)
        plus[band, part] = rounded_at_random(share, words[band, part])
    odd = ~(m > 0).squeeze(1)
    if bool(odd.any()):
        plus[odd] = 1  # 0/0 and NaN: any sign will do, so long as it is always the same
    return plus


def _restored(m: Tensor, plus: Tensor) -> Tensor:
    out = torch.empty(plus.shape, dtype=m.dtype, device=m.device)
    for band, part in bands(*plus.shape):
        out[band, part].copy_(plus[band, part]).mul_(2).sub_(1).mul_(m[band])
    return out
