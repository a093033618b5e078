"""One bit per number: a random sign with the right mean; exact for rows ±m."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from tacit.compression import messages, quantization
from tacit.compression.fields import Fields
from tacit.compression.messages import Identity, MessageCodec
from tacit.compression.rand_k import RandK
from tacit.core.codec import Codec, Draw

# One for +, zero for −. In rows of zeros (0/0) and NaN any sign will do, if it is always the same.
_FIELDS = Fields(bits=1, factor=0.5, offset=0.5, scale=2.0, shift=-1.0, otherwise=1)


@dataclass(frozen=True)
class SignBits(MessageCodec):
    """C(u)ᵢ = +m with probability (1 + uᵢ/m)/2, else −m, with m = max|uᵢ|; β = P − 1.

    A row whose entries all are ±m, such as a scaled sign vector, arrives exactly and needs no
    random words. On the wire: header, m as one number, one bit per number (1 is +).

    A zero row arrives as zero. A row with NaN or infinity has m = NaN and arrives as NaN.

    Example:
        >>> SignBits().size(1000, torch.float32)
        137
    """

    lossless: ClassVar[bool] = False
    exact: ClassVar[bool] = False

    def size(self, width: int, dtype: torch.dtype) -> int:
        return messages.HEADER_BYTES + dtype.itemsize + quantization.packed_size(width, 1)

    def variance_bound(self, width: int) -> float:
        """P − 1, since ‖C(u)‖² = P·m² ≤ P‖u‖²."""
        return float(width - 1)

    def check_width(self, width: int) -> None:
        messages.check_width(width)

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        messages.check_rows(rows)
        low, m = quantization.extremes(rows)
        # Adding zero turns −0 into 0, as on the wire.
        if self.exact:
            return torch.where(m.isnan(), m, rows + 0.0)
        if torch.equal(low, m):
            return rows + 0.0
        return _FIELDS.received(rows, draw("signs", rows.shape[1]), m)

    def write(self, rows: Tensor, draw: Draw, wire: Tensor) -> None:
        width = rows.shape[1]
        low, m = quantization.extremes(rows)
        packed = messages.begin(wire, "sign", width, rows.dtype, m)
        # Rows ±m keep their signs, whatever the words.
        if self.exact or torch.equal(low, m):
            quantization.pack_signs(rows, packed)
        else:
            _FIELDS.write(rows, draw("signs", width), m, packed)

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        content = messages.payload(wire, "sign", width, dtype, self.size(width, dtype))
        m = messages.as_numbers(content[:, : dtype.itemsize], dtype)
        return _FIELDS.read(content[:, dtype.itemsize :], m, width)


@dataclass(frozen=True)
class ExactSignBits(SignBits):
    """For rows that are known to be ±m, or to have a NaN: neither inspects nor draws."""

    exact: ClassVar[bool] = True


def for_signs(codec: Codec) -> Codec:
    """The same codec for rows ±m: numbers that it would send unchanged become bits."""
    if isinstance(codec, Identity):
        return ExactSignBits()
    if isinstance(codec, RandK):
        return replace(codec, values=for_signs(codec.values))
    return codec
