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
from scipy.linalg import lapack

TOLERANCE = (
    1e-9  # what a message must add, relative to its size: well below the rounding of what is sent
)

CLEAR = 1e-3  # what it must add to the others of its block, relative to what they add, to be taken in with them

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


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
        waiting = rows[told] / sizes[told, None]
        lengths = sizes[told]
        while len(waiting):
            along, rest = self._innovation(waiting)
            amount = np.linalg.norm(rest, axis=1)
            news = amount > TOLERANCE  # most messages repeat what is known: they end here
            numbers, lengths, waiting = numbers[news], lengths[news], waiting[news]
            if not len(waiting):
                return
            along, rest, amount = along[news], rest[news], amount[news]
            chosen = self._take(along, rest, amount)
            self.pivots += numbers[chosen].tolist()
            self.sizes += lengths[chosen].tolist()
            # The others hardly add to those chosen; how much it is, the next turn sees without cancellation.
            others = np.setdiff1d(np.arange(len(waiting)), chosen)
            numbers, lengths, waiting = numbers[others], lengths[others], waiting[others]

    def _innovation(self, rows: Matrix) -> tuple[Matrix, Matrix]:
        """Coordinates [k, rank] of rows in the basis, and what is left of them: twice is enough."""
        basis = self._basis[: self.rank, : rows.shape[1]]
        along = rows @ basis.T
        rest = rows - along @ basis
        doubtful = np.linalg.norm(rest, axis=1) > TOLERANCE
        again = rest[doubtful] @ basis.T
        rest[doubtful] -= again @ basis
        along[doubtful] += again
        return along, rest

    def _take(self, along: Matrix, rest: Matrix, amount: Matrix) -> Indices:
        """Take in a well-conditioned choice of rows: a pivoted Cholesky factorization of their Gram matrix.

        All long products are matrix products, which are fast; orthogonalizing twice makes the basis exact.
        """
        unit = rest / amount[:, None]
        _, order, new, _ = lapack.dpstrf(unit @ unit.T, tol=CLEAR**2, lower=1)
        chosen: Indices = order[:new].astype(np.int64) - 1
        fresh = unit[chosen]
        lower = np.eye(new)
        for _ in range(2):
            triangle = np.linalg.cholesky(fresh @ fresh.T)
            fresh = linalg.solve_triangular(triangle, fresh, lower=True, check_finite=False)
            lower = lower @ triangle
        self._grow(new)
        low, high = self.rank, self.rank + new
        self._basis[low:high, : fresh.shape[1]] = fresh
        self._lower[low:high, :low] = along[chosen]
        self._lower[low:high, low:high] = amount[chosen, None] * lower
        self.rank = high
        return chosen

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
