"""Numbers as fields of a few bits, rounded at random: what QSGD and random signs have in common.

Compiled loops do the work on a CPU. Tensor operations give the same bits elsewhere, and where
there was no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tacit.compression import quantization
from tacit.core.native import codecs


@dataclass(frozen=True)
class Fields:
    """A field is ⌊factor·u/d + offset + U⌋, and stands for (scale·field + shift)·d.

    U is uniform in [0, 1), and d is a number per row.

    Args:
        bits: Bits of a field: 1, 2, 4, 8 or 16. Fields of one bit are 0 or 1; others are in two's
            complement and have no shift.
        factor: See above, like `offset`, `scale` and `shift`.
        otherwise: Every field of a row whose d is not positive.
    """

    bits: int
    factor: float
    scale: float
    offset: float = 0.0
    shift: float = 0.0
    otherwise: int = 0

    def write(self, rows: Tensor, words: Tensor, divisor: Tensor, out: Tensor) -> None:
        """Write packed fields to the bytes `out` [n, Q], for rows and words [n, P], d [n, 1]."""
        words = _narrow(words)
        if codecs.supports(rows, words):
            codecs.quantize(rows, words, divisor, self._quantizer, out)
            return
        fields = self._rounded(rows, words, divisor)
        if self.bits == 16:
            out.copy_(fields.view(torch.uint8))
        else:
            mask = (1 << self.bits) - 1
            out.copy_(quantization.pack(fields.view(torch.uint8) & mask, self.bits))

    def read(self, packed: Tensor, divisor: Tensor, width: int) -> Tensor:
        """The numbers [n, width] that packed fields uint8 [n, Q] stand for."""
        out = torch.empty(packed.shape[0], width, dtype=divisor.dtype, device=packed.device)
        if codecs.supports(out):
            codecs.restore(packed, divisor, self._quantizer, out)
            return out
        if self.bits == 16:
            kind = packed.clone(memory_format=torch.contiguous_format).view(torch.int16)
        else:
            kind = packed if self.bits == 1 else packed.view(torch.int8)
            kind = quantization.unpack(kind, self.bits, width)
        return self._restored(kind, divisor, out)

    def received(self, rows: Tensor, words: Tensor, divisor: Tensor) -> Tensor:
        """`read` of `write`, without the bytes."""
        out = torch.empty_like(rows, memory_format=torch.contiguous_format)
        words = _narrow(words)
        if codecs.supports(rows, words):
            codecs.received(rows, words, divisor, self._quantizer, out)
            return out
        return self._restored(self._rounded(rows, words, divisor), divisor, out)

    def _rounded(self, rows: Tensor, words: Tensor, divisor: Tensor) -> Tensor:
        """The fields as int8 or int16 [n, P]."""
        dtype = torch.int16 if self.bits == 16 else torch.int8
        fields = torch.empty(rows.shape, dtype=dtype, device=rows.device)
        for band, part in quantization.blocks(*rows.shape):
            share = quantization.quotients(rows[band, part], divisor[band], self.factor)
            fields[band, part] = quantization.round_randomly(share, words[band, part], self.offset)
        degenerate = ~(divisor > 0).squeeze(1)
        if bool(degenerate.any()):
            fields[degenerate] = self.otherwise
        return fields

    def _restored(self, fields: Tensor, divisor: Tensor, out: Tensor) -> Tensor:
        for band, part in quantization.blocks(*fields.shape):
            numbers = out[band, part].copy_(fields[band, part])
            numbers.mul_(self.scale).add_(self.shift).mul_(divisor[band])
        return out

    @cached_property
    def _quantizer(self) -> codecs.Quantizer:
        return codecs.Quantizer(
            *(self.factor, self.offset, self.scale, self.shift),
            *(self.bits, self.otherwise),
        )


def _narrow(words: Tensor) -> Tensor:
    """Words in the type that compiled loops read; tensor operations take either."""
    return words.to(torch.uint32) if words.is_cpu else words
