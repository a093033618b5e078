"""An orthonormal basis of the messages, built in the order they were sent.

    A = L Q,   Q Qᵀ = I,   L lower triangular in the pivot rows

A row of A is one message over the hidden unknowns, scaled to length one. The part that is new
compared with all earlier rows comes from two passes of classical Gram–Schmidt in block products;
a row with a new part below `TOLERANCE` of its length adds nothing at the precision of any
message. A vector c is a combination of the messages if and only if ‖Qc‖ = ‖c‖, and a triangular
system over the pivot rows gives the combination.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import linalg
from scipy.linalg import lapack

# New part that a message needs, relative to its size: well below the rounding of what is sent.
TOLERANCE = 1e-9
# New part that a row needs, relative to the other rows of its block, to be added along with them.
WELL_CONDITIONED = 1e-3
ZERO = 1e-8  # numbers below this are zero, in bases of unit rows

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class RowSpace:
    """The span of rows that are added block by block."""

    def __init__(self, columns: int) -> None:
        self._basis: Matrix = np.zeros((64, columns))
        self._lower: Matrix = np.zeros((64, 64))
        self.rank = 0
        self.pivots: list[int] = []  # numbers of the rows that increased the rank
        self.sizes: list[float] = []  # lengths of these rows
        self._added = 0

    @property
    def basis(self) -> Matrix:
        """Q [rank, columns]: orthonormal rows."""
        return self._basis[: self.rank]

    def add(self, rows: Matrix) -> None:
        """Add rows [k, columns], or [k, fewer] if the remaining columns are zero."""
        sizes = np.linalg.norm(rows, axis=1)
        nonzero = np.flatnonzero(sizes > 0)
        numbers, lengths = self._added + nonzero, sizes[nonzero]
        pending = rows[nonzero] / lengths[:, None]
        self._added += len(rows)
        while len(pending):
            coordinates, rest = self._orthogonalize(pending)
            amount = np.linalg.norm(rest, axis=1)
            # Most messages add nothing to what is known: they are dropped here.
            new = amount > TOLERANCE
            numbers, lengths, pending = numbers[new], lengths[new], pending[new]
            if not len(pending):
                return
            chosen = self._extend(coordinates[new], rest[new], amount[new])
            self.pivots += numbers[chosen].tolist()
            self.sizes += lengths[chosen].tolist()
            # The others add little to those chosen. The next pass measures how much, without
            # cancellation.
            others = np.setdiff1d(np.arange(len(pending)), chosen)
            numbers, lengths, pending = numbers[others], lengths[others], pending[others]

    def _orthogonalize(self, rows: Matrix) -> tuple[Matrix, Matrix]:
        """Coordinates [k, rank] of rows in the basis, and the rest [k, columns]: two passes."""
        basis = self._basis[: self.rank, : rows.shape[1]]
        coordinates = rows @ basis.T
        rest = rows - coordinates @ basis
        doubtful = np.linalg.norm(rest, axis=1) > TOLERANCE
        again = rest[doubtful] @ basis.T
        rest[doubtful] -= again @ basis
        coordinates[doubtful] += again
        return coordinates, rest

    def _extend(self, coordinates: Matrix, rest: Matrix, amount: Matrix) -> Indices:
        """Extend the basis by a well-conditioned choice of rows; returns which rows these are.

        A pivoted Cholesky factorization of the Gram matrix makes the choice. All long products are
        matrix products, which are fast; orthogonalizing twice makes the basis exact.
        """
        unit = rest / amount[:, None]
        _, order, new, _ = lapack.dpstrf(unit @ unit.T, tol=WELL_CONDITIONED**2, lower=1)
        chosen: Indices = order[:new].astype(np.int64) - 1
        added = unit[chosen]
        lower = np.eye(new)
        for _ in range(2):
            triangle = np.linalg.cholesky(added @ added.T)
            added = linalg.solve_triangular(triangle, added, lower=True, check_finite=False)
            lower = lower @ triangle
        low, high = self.rank, self.rank + new
        if high > len(self._basis):
            more = max(len(self._basis), high - len(self._basis))
            self._basis = np.pad(self._basis, ((0, more), (0, 0)))
            self._lower = np.pad(self._lower, (0, more))
        self._basis[low:high, : added.shape[1]] = added
        self._lower[low:high, :low] = coordinates[chosen]
        self._lower[low:high, low:high] = amount[chosen, None] * lower
        self.rank = high
        return chosen

    def combination(self, coordinates: Matrix) -> Matrix:
        """Coefficients [c, rank] of the pivot rows for vectors with coordinates [c, rank]."""
        lower = self._lower[: self.rank, : self.rank]
        solved = linalg.solve_triangular(lower.T, coordinates.T, lower=False)
        coefficients: Matrix = solved.T / np.asarray(self.sizes)
        return coefficients


def reduced_echelon(rows: Matrix) -> Matrix:
    """The reduced row echelon form of rows of full rank: combinations of few columns.

    Pivots are chosen by a QR factorization, the column with the largest new part first.
    """
    _, triangle, order = linalg.qr(rows, mode="economic", pivoting=True)
    reduced = linalg.solve_triangular(triangle[:, : len(rows)], triangle)
    echelon = np.zeros_like(rows)
    echelon[:, order] = np.where(np.abs(reduced) > ZERO, reduced, 0.0)
    return echelon
