"""No compression: the numbers as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tacit.compression.codec import Draw, check_rows, check_wide_enough
from tacit.compression.wire import HEADER, message, numbers, payload


@dataclass(frozen=True)
class Identity:
    """C(u) = u; β = 0. On the wire: header, then the numbers, little endian.

    NaN and infinity arrive as they were sent.
    """

    lossless: ClassVar[bool] = True

    def size(self, width: int, dtype: torch.dtype) -> int:
        """8 + P numbers."""
        return HEADER + width * dtype.itemsize

    def variance_bound(self, width: int) -> float:
        """0."""
        return 0.0

    def check_width(self, width: int) -> None:
        """Any width of at least 1."""
        check_wide_enough(width)

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        """A copy of the rows."""
        check_rows(rows)
        self.check_width(rows.shape[1])
        return rows.clone()

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        """Header and numbers."""
        check_rows(rows)
        self.check_width(rows.shape[1])
        return message("identity", rows.shape[1], rows.dtype, rows)

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """The numbers."""
        return numbers(payload(wire, "identity", width, dtype, self.size(width, dtype)), dtype)
