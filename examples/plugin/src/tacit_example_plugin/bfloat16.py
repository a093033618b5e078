"""Half the bytes: float32 numbers rounded at random to bfloat16, so that their mean is right."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import Misuse
from tacit.compression import Draw


@dataclass(frozen=True)
class BFloat16:
    """The upper 16 bits of each number, rounded up with the probability that the lower bits say."""

    @property
    def lossless(self) -> bool:
        return False

    def size(self, width: int, dtype: torch.dtype) -> int:
        return 2 * width

    def variance_bound(self, width: int) -> float:
        # A rounding error is below 2⁻⁷ of the number.
        return 2.0**-14

    def check_width(self, width: int) -> None:
        """Any width can be sent."""

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        return self.decode(self.encode(rows, draw), rows.shape[1], rows.dtype)

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        bits = rows.float().contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
        dither = draw("rounding", rows.shape[1]) & 0xFFFF
        upper = torch.where(rows.isfinite(), bits + dither, bits) >> 16
        return torch.stack((upper & 0xFF, upper >> 8), dim=2).to(torch.uint8).flatten(1)

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        if wire.shape[1] != 2 * width:
            raise Misuse(
                f"A message of {wire.shape[1]} bytes is not {width} bfloat16 numbers.",
                "Use the same codec at both ends.",
            )
        pairs = wire.view(len(wire), width, 2).to(torch.int64)
        bits = (pairs[..., 0] << 16) | (pairs[..., 1] << 24)
        signed = torch.where(bits >= 1 << 31, bits - (1 << 32), bits)
        return signed.to(torch.int32).view(torch.float32).to(dtype)
