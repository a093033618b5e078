"""Random sparsification: k of the P numbers, chosen at random, scaled up for those left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.compression.bands import bands
from tacit.compression.codec import Codec, Draw, check_codec, check_rows, check_wide_enough
from tacit.compression.identity import Identity
from tacit.compression.wire import HEADER, message, numbers, payload
from tacit.errors import Misuse
from tacit.randomness import WORD, key_of, tiles, words

SEED = 8  # bytes
WIDEST = 1 << 31  # a column shares 63 bits with a random word
KEY = key_of("rand-k")


@dataclass(frozen=True)
class RandK:
    """C(u)ᵢ = (P/k)·uᵢ on a uniformly random subset of k coordinates, zero elsewhere; β = P/k − 1.

    Give k itself, or the `fraction` of the numbers to keep: k = max(1, round(fraction·P)). The numbers kept
    are encoded by the codec `values` (with its β₂ at width k, β is (1 + β₁)(1 + β₂) − 1).

    On the wire: header, a seed of 64 bits from which both ends compute the subset, then the message of `values`
    with the numbers kept, in ascending order of their coordinates. NaN and infinity arrive if they are kept.
    """

    fraction: float | None = None
    k: int | None = None
    values: Codec = field(default_factory=Identity)

    def __post_init__(self) -> None:
        if (self.fraction is None) == (self.k is None):
            given = "neither" if self.k is None else "both"
            raise Misuse(f"RandK was given {given} of fraction and k.", "Give one, e.g. RandK(fraction=0.1).")
        if self.fraction is not None and not _is_fraction(self.fraction):
            raise Misuse(f"The fraction of RandK is {self.fraction!r}.", "Give a number in (0, 1].")
        if self.k is not None and (type(self.k) is not int or self.k < 1):
            raise Misuse(f"The k of RandK is {self.k!r}.", "Give a whole number of at least 1.")
        check_codec(self.values, "The `values` of RandK")

    def kept(self, width: int) -> int:
        """The k for rows of `width` numbers."""
        if self.fraction is None:
            assert self.k is not None
            return self.k
        return max(1, round(self.fraction * width))

    def size(self, width: int, dtype: torch.dtype) -> int:
        """8 + 8 + the size of the message of `values`."""
        self.check_width(width)
        return HEADER + SEED + self.values.size(self.kept(width), dtype)

    def variance_bound(self, width: int) -> float:
        """(1 + β₁)(1 + β₂) − 1 with β₁ = P/k − 1 and β₂ of `values` at width k."""
        self.check_width(width)
        k = self.kept(width)
        return width / k * (1 + self.values.variance_bound(k)) - 1

    def check_width(self, width: int) -> None:
        """At least k numbers, and a k that `values` can encode."""
        check_wide_enough(width)
        k = self.kept(width)
        if k > width:
            raise Misuse(f"RandK keeps k = {k} of rows with {width} numbers.", f"Give a k up to {width}.")
        if width > WIDEST:
            raise Misuse(f"RandK was given rows with {width} numbers.", f"It takes up to {WIDEST}.")
        self.values.check_width(k)

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        """The kept numbers as `values` delivers them, times P/k."""
        _, columns, kept = self._chosen(rows, draw)
        return self._spread(self.values.received(kept, _for_values(draw)), columns, rows.shape[1])

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        """Header, seed and the message of `values`."""
        seed, _, kept = self._chosen(rows, draw)
        inner = self.values.encode(kept, _for_values(draw))
        joined = seed[:, :1] | seed[:, 1:] << 32
        return message("rand-k", rows.shape[1], rows.dtype, joined, inner)

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """The subset computed anew from its seed, and the numbers put in their places."""
        content = payload(wire, "rand-k", width, dtype, self.size(width, dtype))
        joined = numbers(content[:, :SEED], torch.int64)
        seed = torch.cat([joined & WORD, joined >> 32 & WORD], dim=1)
        k = self.kept(width)
        return self._spread(self.values.decode(content[:, SEED:], k, dtype), subset(seed, width, k), width)

    def _chosen(self, rows: Tensor, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
        """The seeds [n, 2], the coordinates they stand for [n, k], and the numbers there [n, k]."""
        check_rows(rows)
        width = rows.shape[1]
        self.check_width(width)
        seed = draw("subset", 2)
        columns = subset(seed, width, self.kept(width))
        return seed, columns, rows.gather(1, columns)

    def _spread(self, kept: Tensor, columns: Tensor, width: int) -> Tensor:
        out = kept.new_zeros(len(kept), width)
        return out.scatter_(1, columns, kept * (width / columns.shape[1]))


def subset(seed: Tensor, width: int, k: int) -> Tensor:
    """A uniformly random subset of range(width) per seed (two words [n, 2]): its k columns, ascending: [n, k].

    Every column gets a random word, and those with the k smallest are taken. Words may be equal; with the
    column in the lowest bits no two keys are, so that every device takes the same.
    """
    columns = torch.empty(len(seed), k, dtype=torch.int64, device=seed.device)
    every = torch.arange(width, device=seed.device)
    if k == width:
        return columns.copy_(every.expand_as(columns))
    for band in bands(len(seed), width):
        first, second = seed[band].unbind(1)
        keys = torch.empty(len(first), width, dtype=torch.int64, device=seed.device)
        for rows, part in tiles(*keys.shape):
            drawn = words(KEY, 0, first[rows], second[rows], part)
            keys[rows, part.start : part.stop] = drawn << 31 | every[part.start : part.stop]
        # Twice as fast as kthvalue on a CPU, and much more on a GPU.
        last = keys.topk(k, dim=1, largest=False, sorted=False).values.amax(dim=1, keepdim=True)
        columns[band] = (keys <= last).nonzero()[:, 1].view(-1, k)
    return columns


def _for_values(draw: Draw) -> Draw:
    """Words of their own for the inner codec."""
    return lambda purpose, count: draw(f"values/{purpose}", count)


def _is_fraction(value: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 < value <= 1
