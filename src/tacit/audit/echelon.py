"""An orthonormal basis of what was said, built in the order in which it was said.

    A = L Q,   Q Qᵀ = I,   L lower triangular in the pivot rows

A row is what one message says over the hidden unknowns, scaled to length one. What it adds to all earlier rows is
orthogonalized twice against them (classical Gram–Schmidt, which is block products, twice is enough); a row that adds
less than `TOLERANCE` of its length says nothing new at the precision of any message. In the rows that do, c is a
combination of the messages if and only if ‖Qc‖ = ‖c‖, and the combination is the solution of a triangular system.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import linalg

TOLERANCE = (
    1e-9  # what a message must add, relative to its size: 2⁻³⁰, well below the rounding of what is sent
)

Matrix = npt.NDArray[np.float64]


class Echelon:
    """The span of rows given block by block."""

    def __init__(self, columns: int) -> None:
        self._basis: Matrix = np.zeros((64, columns))
        self._lower: Matrix = np.zeros((64, 64))
        self._columns = columns
        self.rank = 0
        self.pivots: list[int] = []  # numbers of the rows that added something
        self.sizes: list[float] = []  # and their lengths
        self._given = 0

    @property
    def basis(self) -> Matrix:
        """Q [rank, columns]: orthonormal rows."""
        return self._basis[: self.rank]

    def add(self, rows: Matrix) -> None:
        """Take in more rows [k, columns]."""
        sizes = np.linalg.norm(rows, axis=1)
        told = np.flatnonzero(sizes > 0)
        numbers = self._given + told
        self._given += len(rows)
        if not len(told):
            return
        scaled = rows[told] / sizes[told, None]
        used = scaled.shape[1]  # columns that come later are zero so far
        basis = self._basis[: self.rank, :used]
        first = scaled @ basis.T
        rest = scaled - first @ basis
        again = rest @ basis.T
        rest -= again @ basis
        along = first + again
        directions, triangle, order = linalg.qr(rest.T, mode="economic", pivoting=True)
        new = int(np.count_nonzero(np.abs(np.diagonal(triangle)) > TOLERANCE))
        if new:
            self._grow(new)
            low, high = self.rank, self.rank + new
            self._basis[low:high, :used] = directions[:, :new].T
            self._lower[low:high, :low] = along[order[:new]]
            self._lower[low:high, low:high] = triangle[:new, :new].T
            self.pivots += numbers[order[:new]].tolist()
            self.sizes += sizes[told][order[:new]].tolist()
            self.rank = high

    def combination(self, inside: Matrix) -> Matrix:
        """Coefficients [c, rank] of the pivot rows that give the vectors insideᵀQ, for inside [c, rank]."""
        lower = self._lower[: self.rank, : self.rank]
        solved = linalg.solve_triangular(lower.T, inside.T, lower=False)
        coefficients: Matrix = solved.T / np.asarray(self.sizes)
        return coefficients

    def _grow(self, new: int) -> None:
        if self.rank + new <= len(self._basis):
            return
        size = max(2 * len(self._basis), self.rank + new)
        basis, lower = np.zeros((size, self._columns)), np.zeros((size, size))
        basis[: self.rank] = self._basis[: self.rank]
        lower[: self.rank, : self.rank] = self._lower[: self.rank, : self.rank]
        self._basis, self._lower = basis, lower
