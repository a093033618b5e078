"""Means and deviations of columns over all clients, from sums and counts alone.

Each client adds up its own training rows: of each column the count of values, their sum and the sum
of their squares, as exact fixed-point integers. Integers add up to the same total in any order, so
a simulation and real nodes get the same bits. Nodes add them up in a masked sum of 32-bit words,
which carry a few bits each (see `to_words`), and learn nothing but the total of each word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

FRACTION_BITS = 112
LARGEST_VALUE = 2.0**40
# With 16 bits in a word, totals of 2¹⁴ clients stay below 2³⁰.
WORD_BITS = 16
# For totals up to 2¹¹²: 2³² squares of the largest value.
WORDS = 2 * FRACTION_BITS // WORD_BITS + 1
# Below this share of the squared mean, a variance is rounding of a constant column.
CONSTANT = 1e-12


@dataclass(frozen=True)
class ColumnSums:
    """Count, sum and sum of squares of each column, in units of 2⁻¹¹².

    Attributes:
        values: One integer per column for the counts, then for the sums, then for the squares.
    """

    values: tuple[int, ...]

    @classmethod
    def of(cls, x: NDArray[np.float64]) -> ColumnSums:
        """The sums of the columns of x [n, k]; NaN is left out."""
        totals: list[list[float]] = [[], [], []]
        for column in x.T:
            known = column[~np.isnan(column)]
            totals[0].append(float(len(known)))
            # Rounded once, whatever the order.
            totals[1].append(math.fsum(known.tolist()))
            totals[2].append(math.fsum((known * known).tolist()))
        return cls(tuple(_fixed(value) for kind in totals for value in kind))

    def __add__(self, other: ColumnSums) -> ColumnSums:
        return ColumnSums(tuple(a + b for a, b in zip(self.values, other.values, strict=True)))

    @property
    def columns(self) -> int:
        return len(self.values) // 3

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each column; 0 and 1 where there is no value.

        A constant column has the deviation 1.
        """
        k, mean, deviation = self.columns, [], []
        for count, total, squares in zip(
            self.values[:k], self.values[k : 2 * k], self.values[2 * k :], strict=True
        ):
            if count <= 0:
                mean.append(0.0)
                deviation.append(1.0)
                continue
            centre = Fraction(total, count)
            variance = float(Fraction(squares, count) - centre * centre)
            mean.append(float(centre))
            constant = variance <= CONSTANT * float(centre) ** 2
            deviation.append(1.0 if constant else math.sqrt(variance))
        return np.array(mean), np.array(deviation)

    def to_words(self) -> NDArray[np.int64]:
        """The integers as words of 16 bits, the lowest first, the highest with a sign.

        Totals of words tell the total of the integers, and of each word how much was carried.
        """
        words = np.empty((len(self.values), WORDS), dtype=np.int64)
        for row, value in zip(words, self.values, strict=True):
            for at in range(WORDS - 1):
                row[at] = value & ((1 << WORD_BITS) - 1)
                value >>= WORD_BITS
            row[-1] = value
        return words.reshape(-1)

    @classmethod
    def from_words(cls, words: NDArray[np.int64]) -> ColumnSums:
        """The integers of a total of words."""
        rows = words.reshape(-1, WORDS).tolist()
        return cls(
            tuple(sum(word << (WORD_BITS * at) for at, word in enumerate(row)) for row in rows)
        )


def _fixed(value: float) -> int:
    return round(Fraction(value) * (1 << FRACTION_BITS))
