"""Random sparsification: k of the P numbers, chosen at random and scaled up."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.compression import messages, subsets
from tacit.compression.messages import Identity, MessageCodec
from tacit.compression.subsets import MAX_WIDTH
from tacit.core.checks import check_count, check_number
from tacit.core.codec import Codec, Draw, check_codec
from tacit.core.errors import Misuse
from tacit.core.randomness import WORD_MASK

SEED_BYTES = 8


@dataclass(frozen=True)
class RandK(MessageCodec):
    """C(u)ᵢ = (P/k)·uᵢ on a random subset of k coordinates, zero elsewhere; β = P/k − 1.

    Every coordinate is kept with probability k/P. The kept numbers are encoded by the codec
    `values`; with its β₂ at width k, β is (1 + β₁)(1 + β₂) − 1.

    On the wire: header, a seed of 64 bits from which both ends compute the subset, then the message
    of `values` with the kept numbers, in the order of `random_subset`. NaN and infinity arrive if
    they are kept.

    Args:
        fraction: The fraction of the numbers to keep, k = max(1, round(fraction·P)).
        k: The count of numbers to keep; give either this or `fraction`.
        values: The codec of the kept numbers.

    Example:
        >>> RandK(fraction=0.1).size(1000, torch.float32)
        424
    """

    fraction: float | None = None
    k: int | None = None
    values: Codec = field(default_factory=Identity)

    def __post_init__(self) -> None:
        if (self.fraction is None) == (self.k is None):
            given = "neither" if self.k is None else "both"
            raise Misuse(
                f"RandK was given {given} of fraction and k.",
                "Give one: fraction = 0.1, or k = 100.",
            )
        if self.fraction is not None:
            check_number("The fraction of RandK", self.fraction, above=0, at_most=1)
        else:
            check_count("The k of RandK", self.k)
        check_codec(self.values, "The `values` of RandK")

    @property
    def lossless(self) -> bool:
        return self.fraction == 1 and self.values.lossless

    @property
    def narrow_words(self) -> bool:
        """As the codec of the kept numbers."""
        return bool(getattr(self.values, "narrow_words", False))

    def kept(self, width: int) -> int:
        """The k for rows of `width` numbers."""
        if self.fraction is None:
            assert self.k is not None
            return self.k
        return max(1, round(self.fraction * width))

    def size(self, width: int, dtype: torch.dtype) -> int:
        self.check_width(width)
        return messages.HEADER_BYTES + SEED_BYTES + self.values.size(self.kept(width), dtype)

    def variance_bound(self, width: int) -> float:
        """(1 + β₁)(1 + β₂) − 1 with β₁ = P/k − 1 and β₂ of `values` at width k."""
        self.check_width(width)
        k = self.kept(width)
        return width / k * (1 + self.values.variance_bound(k)) - 1

    def check_width(self, width: int) -> None:
        messages.check_width(width)
        k = self.kept(width)
        if k > width:
            raise Misuse(
                f"RandK keeps k = {k} of rows with {width} numbers.", f"Give a k up to {width}."
            )
        if width > MAX_WIDTH:
            raise Misuse(
                f"RandK was given rows with {width} numbers.", f"It takes up to {MAX_WIDTH}."
            )
        self.values.check_width(k)

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        messages.check_rows(rows)
        width = rows.shape[1]
        self.check_width(width)
        seed = draw("subset", 2).to(torch.int64)
        kept = self.values.received(self._gathered(seed, rows), _inner(draw))
        return self._spread(seed, kept, width)

    def write(self, rows: Tensor, draw: Draw, wire: Tensor) -> None:
        seed = draw("subset", 2).to(torch.int64)
        # Devices other than the CPU have few operations on uint32.
        words = seed.to(torch.int32)
        inner = messages.begin(wire, "rand-k", rows.shape[1], rows.dtype, words)
        if isinstance(self.values, Identity) and messages.is_aligned(inner, rows.dtype):
            rest = messages.begin(inner, "identity", self.kept(rows.shape[1]), rows.dtype)
            self._gathered(seed, rows, out=rest.view(rows.dtype))
        elif isinstance(self.values, MessageCodec):
            self.values.write(self._gathered(seed, rows), _inner(draw), inner)
        else:
            inner.copy_(self.values.encode(self._gathered(seed, rows), _inner(draw)))

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        content = messages.payload(wire, "rand-k", width, dtype, self.size(width, dtype))
        seed = messages.as_numbers(content[:, :SEED_BYTES], torch.int32).to(torch.int64) & WORD_MASK
        inner, k = content[:, SEED_BYTES:], self.kept(width)
        if isinstance(self.values, Identity) and messages.is_aligned(inner, dtype):
            size = self.values.size(k, dtype)
            kept = messages.payload(inner, "identity", k, dtype, size).view(dtype)
        else:
            kept = self.values.decode(inner, k, dtype)
        return self._spread(seed, kept, width)

    def _gathered(self, seed: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The numbers in the columns that the seeds [n, 2] choose, [n, k]."""
        return subsets.gathered(seed, rows, self.kept(rows.shape[1]), out)

    def _spread(self, seed: Tensor, kept: Tensor, width: int) -> Tensor:
        return subsets.spread(seed, kept, width, width / kept.shape[1])


def _inner(draw: Draw) -> Draw:
    """Random words for the codec `values`."""
    return lambda purpose, count: draw(f"values/{purpose}", count)
