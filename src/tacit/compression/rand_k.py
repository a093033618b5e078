"""Random sparsification: k of the P numbers, chosen at random, scaled up for those left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.compression.bands import bands, whole_rows
from tacit.compression.codec import Codec, Draw, check_codec, check_rows, check_wide_enough
from tacit.compression.identity import Identity
from tacit.compression.wire import HEADER, message, numbers, payload
from tacit.core.errors import Misuse
from tacit.core.native.on_gpu import usable
from tacit.core.randomness import WORD, key_of, tiles, words

SEED = 8  # bytes
WIDEST = 1 << 31  # columns are computed in 32 bits
NARROW = 256  # fewer columns are drawn, not permuted: a Feistel network of so few is not uniform (seen up to 8)
ROUNDS = 4  # pairs of them; with three, 40 columns are not uniform, and would not be with any round function
KEY = key_of("rand-k")
MULTIPLIER = 0x2C1B3C6D  # an odd number that mixes well (Wellons 2018, triple32)


@dataclass(frozen=True)
class RandK:
    """C(u)ᵢ = (P/k)·uᵢ on a random subset of k coordinates, zero elsewhere; β = P/k − 1.

    Every coordinate is kept with probability k/P (`subset` says how they are chosen).

    Give k itself, or the `fraction` of the numbers to keep: k = max(1, round(fraction·P)). The numbers kept
    are encoded by the codec `values` (with its β₂ at width k, β is (1 + β₁)(1 + β₂) − 1).

    On the wire: header, a seed of 64 bits from which both ends compute the subset, then the message of `values`
    with the numbers kept, in the order in which `subset` names their coordinates. NaN and infinity arrive if
    they are kept.
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
        if self.fraction is not None and not _is_fraction(self.fraction):
            raise Misuse(f"The fraction of RandK is {self.fraction!r}.", "Give a number in (0, 1].")
        if self.k is not None and (type(self.k) is not int or self.k < 1):
            raise Misuse(f"The k of RandK is {self.k!r}.", "Give a whole number of at least 1.")
        check_codec(self.values, "The `values` of RandK")

    @property
    def lossless(self) -> bool:
        """Only where everything is kept, and arrives as it is."""
        return self.fraction == 1 and self.values.lossless

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
            raise Misuse(
                f"RandK keeps k = {k} of rows with {width} numbers.", f"Give a k up to {width}."
            )
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
        return self._spread(
            self.values.decode(content[:, SEED:], k, dtype), subset(seed, width, k), width
        )

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
    """A pseudorandom subset of range(width) per seed (two words [n, 2]): its k columns, all different: [n, k].

    Below NARROW columns, every column gets a random word, and those with the k smallest are taken: uniform over all
    subsets, as far as the words are. From there on they are the first k values of a pseudorandom permutation with the
    seed as its key (or all but the first P − k, where that is less work), in time proportional to k. A column is then
    in the subset with probability k/P, and a pair as often as it should be, as far as our tests can tell; that is
    measured, not proved, there are only 2⁶⁴ seeds, and it is no cipher.

    The columns ascend if they are below NARROW or more than half of all; else they come as the permutation has them.
    """
    if k == width:
        return torch.arange(width, device=seed.device).expand(len(seed), k)
    if width < NARROW:
        return _smallest_words(seed, width, k)
    if 2 * k <= width:
        return _permuted(seed, width, k)
    columns = torch.empty(len(seed), k, dtype=torch.int64, device=seed.device)
    for band in whole_rows(len(seed), width):
        kept = torch.ones(len(seed[band]), width, dtype=torch.bool, device=seed.device)
        kept.scatter_(1, _permuted(seed[band], width, width - k), False)
        columns[band] = kept.nonzero()[:, 1].view(-1, k)
    return columns


def _smallest_words(seed: Tensor, width: int, k: int) -> Tensor:
    """The columns with the k smallest of `width` random words, ascending: [n, k].

    Words may be equal; with the column in the lowest bits no two keys are, so that every device takes the same.
    """
    columns = torch.empty(len(seed), k, dtype=torch.int64, device=seed.device)
    for band, _ in tiles(len(seed), width):
        drawn = words(KEY, 0, seed[band, 0], seed[band, 1], range(width))
        keys = drawn << 31 | torch.arange(width, device=seed.device)
        smallest = keys.topk(k, dim=1, largest=False, sorted=False).values
        columns[band] = (smallest & (1 << 31) - 1).sort(dim=1).values
    return columns


def _permuted(seed: Tensor, width: int, k: int) -> Tensor:
    """π(0), …, π(k − 1) for a permutation π of range(width) per seed: [n, k].

    A generalized Feistel network (Black and Rogaway 2002) permutes the numbers below b·2^s ≥ width, and is applied
    again to what falls beyond the width, until it does not (cycle walking). Where a number beyond ends is found for
    all of them at once, by steps that double: few are beyond, and nobody has to ask how many.
    """
    s, b = halves(width)
    keys = words(KEY, 0, seed[:, 0], seed[:, 1], range(4 * ROUNDS)).to(torch.int32)
    if usable(seed.device):
        from tacit.core.native import gpu_integers

        return gpu_integers.permuted(keys, width, k, s, b)
    columns = torch.empty(len(seed), k, dtype=torch.int64, device=seed.device)
    end = _ends(keys, width, s, b)
    for band, part in bands(len(seed), k):
        every = torch.arange(part.start, part.stop, dtype=torch.int32, device=seed.device)
        found = _feistel(every[None], keys[band], s, b)
        columns[band, part] = found if end is None else _walked(found, end[band], width)
    return columns


def halves(width: int) -> tuple[int, int]:
    """The s and b of the network: b·2^s is the width or a little more, halves of about one size, b at most 2¹⁰."""
    bits = (width - 1).bit_length()
    s = max(bits // 2, bits - 10)
    return s, -(-width >> s)


def _ends(keys: Tensor, width: int, s: int, b: int) -> Tensor | None:
    """Where each of the numbers width, …, b·2^s − 1 comes back below the width: [n, b·2^s − width].

    Those that never do are on cycles of their own: nothing below the width leads to them.
    """
    beyond = (b << s) - width
    if beyond == 0:
        return None
    end = _feistel(
        torch.arange(width, b << s, dtype=torch.int32, device=keys.device)[None], keys, s, b
    )
    for _ in range(beyond.bit_length()):
        end = _walked(end, end, width)
    return end


def _walked(found: Tensor, end: Tensor, width: int) -> Tensor:
    """Numbers with those beyond the width replaced by their ends."""
    beyond = found > width - 1  # ≥ width, were 2³¹ a number of 32 bits
    place = (found - width).clamp_(0).long()
    return torch.where(beyond, end.gather(1, place), found)


def _feistel(numbers: Tensor, keys: Tensor, s: int, b: int) -> Tensor:
    """A permutation of the numbers below b·2^s, int32 [n or 1, w], for each row of keys [n, 4·ROUNDS]: [n, w].

    A number is R·2^s + L. In turn, R is moved on by a function of L modulo b, and L is XORed with one of R. Products
    wrap at 32 bits. With b ≤ 2¹⁰, 21 random bits times b fit, and choose every residue with the same
    probability but for one part in 2¹¹.
    """
    left, right = numbers & (1 << s) - 1, numbers >> s
    for at in range(0, 4 * ROUNDS, 4):
        step = _mixed(left, keys[:, at, None], keys[:, at + 1, None])
        step = step.bitwise_right_shift_(11).bitwise_or_(-1 << 21).mul_(b).bitwise_right_shift_(21)
        right = step.add_(right)  # between −b and b − 2
        right += (right >> 31).bitwise_and_(b)
        flip = _mixed(right, keys[:, at + 2, None], keys[:, at + 3, None])
        left = flip.bitwise_right_shift_(32 - s).bitwise_and_((1 << s) - 1).bitwise_xor_(left)
    return right.bitwise_left_shift_(s).bitwise_or_(left)


def _mixed(half: Tensor, factor: Tensor, term: Tensor) -> Tensor:
    """32 bits of which the highest depend on all of `half`, the factor (made odd) and the term."""
    mixed = (half * (factor | 1)).add_(term)
    return mixed.bitwise_xor_(mixed >> 15).mul_(MULTIPLIER)


def _for_values(draw: Draw) -> Draw:
    """Words of their own for the inner codec."""
    return lambda purpose, count: draw(f"values/{purpose}", count)


def _is_fraction(value: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 < value <= 1
