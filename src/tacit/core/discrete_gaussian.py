"""Integer noise that is almost a discrete Gaussian, the same on every machine.

The discrete Gaussian of scale σ takes the value k with probability ∝ ρ_σ(k) = e^{−k²/2σ²}. Noise
is drawn in integer arithmetic from uniform 32-bit words, so no engine or device rounds differently.

**The base distribution**, σ₀ = 1024, is truncated at 13 σ₀. Its thresholds ⌊2¹²⁷ P(|X| ≤ m)⌋ are
computed with Python's integers. The first bit of a uniform 128-bit number is the sign; the
magnitude is the number of thresholds that are at most the other 127 bits. A draw costs one word:
its bits decide unless they are also the first bits of a threshold, and then three further words do.

**Larger scales** are sums Z = aX + Y of two draws with an integer a; Y alone takes one word.
Completing the square,

    P(Z = k) ∝ Σⱼ ρ_σ₀(j) ρ_σ₀(k − aj) = ρ_σ(k) Σⱼ ρ_τ(j − μₖ)

with σ² = σ₀²(a² + 1), τ² = σ₀²/(a² + 1) and μₖ = ak/(a² + 1). By Poisson summation the last sum is

    τ√2π (1 + 2 Σₙ e^{−2π²τ²n²} cos 2πnμₖ),   n = 1, 2, …

a constant up to 1 ± β with β = 2 Σₙ e^{−2π²τ²n²}. So the probabilities are those of the discrete
Gaussian of scale σ up to a factor (1 + β)/(1 − β), and the total variation distance is at most
β/(1 − β): 2·10⁻³⁶ for a = 500.

**The sum of several clients' noise** is almost a discrete Gaussian for the same reason. Adding one
client to m others has τ² = σ²m/(m + 1) ≥ 2¹⁹, so that β < e^{−10⁷}: zero in floating point.

A mechanism is (ε, δ + (1 + e^ε)d)-private if all its noise is within a total variation distance d
of noise that makes it (ε, δ)-private; `DiscreteGaussian.distance` bounds d.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import torch
from torch import Tensor

from tacit.core.checks import check_count, check_number
from tacit.core.errors import Misuse
from tacit.core.native import CELLS, TAIL_CELL, UNDECIDED, integers_of_words, supports_integers

BASE_SCALE = 1024
# The base distribution's largest magnitude.
BASE_LIMIT = 13 * BASE_SCALE
# Beyond it the sum of two draws is no longer close enough to a discrete Gaussian.
MAX_FACTOR = 600
MAGNITUDE_BITS = 127
MAGNITUDE_MASK = 0x7FFFFFFF
# The number of further words that decide a tie.
FURTHER = 3

# (row, position of the word in the row) → its further words
Further = Callable[[int, int], Sequence[int]]


@dataclass(frozen=True)
class DiscreteGaussian:
    """Integer noise aX + Y, where X and Y are discrete Gaussians of scale 1024.

    Args:
        factor: a, from 0 (only Y) to 600.

    Example:
        >>> DiscreteGaussian(3).variance
        10485760
        >>> DiscreteGaussian.at_least(50_000.0)
        DiscreteGaussian(factor=49)
    """

    factor: int

    def __post_init__(self) -> None:
        check_count("The factor of integer noise", self.factor, at_least=0)
        if self.factor > MAX_FACTOR:
            raise Misuse(
                f"The factor of integer noise is {self.factor}.", f"Give at most {MAX_FACTOR}."
            )

    @classmethod
    def at_least(cls, scale: float) -> DiscreteGaussian:
        """The noise of the smallest standard deviation that is at least `scale`."""
        check_number("The scale of integer noise", scale, at_least=0)
        # ⌈(scale/1024)²⌉ ≤ a² + 1, in exact arithmetic.
        squares = math.ceil((Fraction(scale) / BASE_SCALE) ** 2) - 1
        factor = 0 if squares <= 0 else math.isqrt(squares - 1) + 1
        if factor > MAX_FACTOR:
            raise Misuse(
                f"The scale of integer noise is {scale:g}.",
                f"Give at most {cls(MAX_FACTOR).scale:g}: encode with a smaller scale.",
            )
        return cls(factor)

    @property
    def variance(self) -> int:
        """The variance of one number: 1024² (a² + 1)."""
        return BASE_SCALE**2 * (self.factor**2 + 1)

    @property
    def scale(self) -> float:
        """The standard deviation of one number."""
        return math.sqrt(self.variance)

    @property
    def words(self) -> int:
        """Words that a number takes."""
        return 2 if self.factor else 1

    def distance(self, draws: int) -> float:
        """An upper bound on the total variation distance of `draws` numbers to discrete Gaussians.

        It is the sum of what truncation, the 128 bits of the thresholds and the sum aX + Y cost.
        """
        check_count("The number of draws", draws, at_least=0)
        # Σ_{k>L} ρ(k) ≤ ∫_L^∞ ρ, and the sum over all k is at least the integral.
        truncation = math.erfc(BASE_LIMIT / BASE_SCALE / math.sqrt(2))
        # Rounding down moves each of the L + 1 probabilities by less than 2⁻¹²⁷.
        thresholds = (BASE_LIMIT + 1) * 2.0 ** -(MAGNITUDE_BITS + 1)
        distance = truncation + thresholds
        if self.factor:
            distance = 2 * distance + convolution_distance(BASE_SCALE**2 / (self.factor**2 + 1))
        # More than all roundings of these few operations.
        return min(1.0, draws * distance * (1 + 1e-12))

    def numbers(self, words: Tensor, further: Further) -> Tensor:
        """The numbers that words stand for.

        Args:
            words: Uniform 32-bit words, as int64 or as the bits of int32: [rows, width], or with a
                factor [rows, 2·width], where 2c and 2c + 1 are X and Y of a row's number c.
            further: Three further words for a word that ties.

        Returns:
            The numbers, int32 [rows, width].
        """
        words = words.to(torch.int32)
        table = base_table(words.device)
        if supports_integers(words):
            out = words.new_empty(len(words), words.shape[1] // self.words)
            integers_of_words((table.guide, table.words, self.factor), words.contiguous(), out)
        else:
            out = self._by_tensor_operations(words, table)
        for row, column in (out == UNDECIDED).nonzero().tolist():
            *x, y = (
                exact_draw(int(words[row, at]), further(row, at), table)
                for at in range(self.words * column, self.words * (column + 1))
            )
            out[row, column] = self.factor * sum(x) + y
        return out

    def _by_tensor_operations(self, words: Tensor, table: Table) -> Tensor:
        magnitude = words & MAGNITUDE_MASK
        # A number has 127 random bits, and a word holds the first 31. Unless they are those of a
        # threshold, which is one word in 160,000, the others cannot change how many thresholds are
        # below: so they are drawn only where the first thresholds that are not below, and those
        # beyond, differ.
        first, last = (
            torch.searchsorted(table.first_words, magnitude, right=right, out_int32=True)
            for right in (False, True)
        )
        sign = words >> 31
        signed, tied = (last ^ sign) - sign, first != last
        if self.factor:
            signed = self.factor * signed[:, 0::2] + signed[:, 1::2]
            tied = tied[:, 0::2] | tied[:, 1::2]
        return signed.masked_fill_(tied, UNDECIDED)


def exact_draw(word: int, further: Sequence[int], table: Table) -> int:
    """A draw of the base distribution from all 128 bits: a word and its further words."""
    bits = word & MAGNITUDE_MASK
    for later_word in further:
        bits = bits << 32 | later_word
    magnitude = bisect_right(table.thresholds, bits)
    return -magnitude if word & ~MAGNITUDE_MASK else magnitude


def convolution_distance(tau_squared: float) -> float:
    """β/(1 − β), or 1 where that is no bound; see the module's documentation."""
    first = math.exp(-2 * math.pi**2 * tau_squared)
    # n² ≥ 1 + 3(n − 1): a geometric series.
    beta = 2 * first / (1 - first**3)
    return beta / (1 - beta) if beta < 0.5 else 1.0


@dataclass(frozen=True, eq=False)
class Table:
    """Thresholds of a distribution of magnitudes, and a guide to find them quickly.

    Args:
        thresholds: Ascending numbers of 127 bits.
        words: Their bits, int32 [count, 4], highest first; the first word has 31 bits.
        first_words: The first column of `words`, int32 [count].
        guide: What the compiled loops look up, int32 [CELLS]; see loops/noise.h.
    """

    thresholds: Sequence[int]
    words: Tensor
    first_words: Tensor
    guide: Tensor

    @classmethod
    def of(cls, thresholds: Sequence[int], device: torch.device | str = "cpu") -> Table:
        """The table of these thresholds on a device."""
        data = b"".join(threshold.to_bytes(16, "big") for threshold in thresholds)
        words = np.frombuffer(data, dtype=">u4").reshape(-1, 1 + FURTHER).astype(np.int64)
        tensors = (words, words[:, 0], _guide(words[:, 0]))
        bits = (torch.from_numpy(part.astype(np.int32)) for part in tensors)
        return cls(thresholds, *(part.to(device) for part in bits))


@cache
def base_table(device: torch.device) -> Table:
    """The table of the base distribution on a device."""
    return Table.of(thresholds(BASE_SCALE, BASE_LIMIT), device)


def thresholds(scale: int, limit: int) -> list[int]:
    """⌊2¹²⁷ P(|X| ≤ m)⌋ for m = 0, …, limit − 1, where |X| ≤ limit and P(X = k) ∝ ρ_scale(k).

    ρ(k) = ρ(k−1) e^{−(2k−1)/2σ²}, and that factor shrinks by e^{−1/σ²} with every k. In fixed point
    with 127 extra bits, the roundings of 2·limit products are far below the last bit of the result.
    """
    point = 2 * MAGNITUDE_BITS
    shrink, step = _exp_minus(1, scale**2, point), _exp_minus(1, 2 * scale**2, point)
    rho, total, cumulative = 1 << point, 1 << point, []
    for _ in range(limit):
        cumulative.append(total)
        rho, step = rho * step >> point, step * shrink >> point
        total += 2 * rho
    return [(part << MAGNITUDE_BITS) // total for part in cumulative]


def _exp_minus(numerator: int, denominator: int, point: int) -> int:
    """exp(−numerator/denominator) in fixed point, by its series."""
    term, total, n = 1 << point, 0, 0
    while term:
        total += term if n % 2 == 0 else -term
        n += 1
        term = term * numerator // (denominator * n)
    return total


def _guide(first: np.ndarray) -> np.ndarray:
    """What to look up for the first 31 bits of a magnitude, by cell; see loops/noise.h."""
    # Narrow cells where thresholds are dense, so that most cells have one threshold at most: a draw
    # is then one look-up and one addition, without a branch that vectors could not take.
    cell = np.arange(CELLS)
    body = cell < TAIL_CELL
    begin = np.where(body, cell << 18, (cell << 14) + (TAIL_CELL << 18) - (TAIL_CELL << 14))
    below = np.searchsorted(first, begin)
    inside = np.searchsorted(first, begin + np.where(body, 1 << 18, 1 << 14)) - below
    low = np.append(first, 0)[below] & (1 << 18) - 1
    # Adding the lowest 18 bits of a magnitude carries into the count if they reach the threshold.
    entry = (below << 18) + np.where(inside == 1, (1 << 18) - low, 0)
    simple = (inside <= 1) & (below + 1 < 1 << 13)
    return np.where(simple, entry, below - (1 << 31))
