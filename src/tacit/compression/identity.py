"""No compression: the numbers as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tacit.compression import messages
from tacit.core.codec import Draw


@dataclass(frozen=True)
class Identity:
    """C(u) = u; β = 0. On the wire: header, then the numbers, little endian.

    NaN and infinity arrive as they were sent.

    Example:
        >>> Identity().size(1000, torch.float32)
        4008
    """

    lossless: ClassVar[bool] = True

    def size(self, width: int, dtype: torch.dtype) -> int:
        return messages.HEADER_BYTES + width * dtype.itemsize

    def variance_bound(self, width: int) -> float:
        return 0.0

    def check_width(self, width: int) -> None:
        messages.check_width(width)

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        messages.check_rows(rows)
        return rows.clone()

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        messages.check_rows(rows)
        return messages.make("identity", rows.shape[1], rows.dtype, rows)

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        return messages.as_numbers(
            messages.payload(wire, "identity", width, dtype, self.size(width, dtype)), dtype
        )
