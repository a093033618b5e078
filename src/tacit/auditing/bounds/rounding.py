"""Matrix arithmetic that bounds its own rounding.

A `Tracked` matrix carries a bound on what rounding has done to each of its numbers. `is_zero` calls
a sum zero only if rounding explains what is left of it, and only if rounding is small.

The other functions have fixed tolerances that do not depend on units: `clean_product` counts as
zero what is small beside the terms of a sum, and the functions on singular values scale rows to
length one first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.auditing.symbolic.row_space import Matrix

Composite = tuple[Matrix, Matrix]  # a matrix that is a sum, and the sizes of its terms
EPSILON = float(np.finfo(np.float64).eps)
EQUAL = 1e-12  # what counts as zero beside the terms of a sum that cancel
SURE = 1e-6  # rounding beside the terms of a sum, at most, for it to be called zero
SOLVED = 1e-10  # singular values of normalized rows that count as zero


@dataclass(frozen=True, eq=False)
class Tracked:
    """Numbers, and a bound on what rounding has done to each."""

    values: Matrix
    errors: Matrix

    @classmethod
    def exact(cls, values: Matrix) -> Tracked:
        return cls(values, np.zeros_like(values))

    @classmethod
    def sum(cls, *products: tuple[Matrix, Tracked]) -> Tracked:
        """Σ M x."""
        values = np.asarray(sum(matrix @ x.values for matrix, x in products))
        terms = sum(np.abs(matrix) @ np.abs(x.values) for matrix, x in products)
        carried = sum(np.abs(matrix) @ x.errors for matrix, x in products)
        width = sum(matrix.shape[1] for matrix, _ in products)
        return cls(values, np.asarray(carried + 8 * (width + 1) * EPSILON * terms))

    @classmethod
    def sum_of_composites(cls, *products: tuple[Composite, Tracked]) -> Tracked:
        """Σ M x for matrices that are themselves sums, with the terms of which they are made."""
        values = np.asarray(sum(matrix @ x.values for (matrix, _), x in products))
        terms = sum(made @ np.abs(x.values) for (_, made), x in products)
        carried = sum(np.abs(matrix) @ x.errors for (matrix, _), x in products)
        width = sum(matrix.shape[1] for (matrix, _), _ in products)
        return cls(values, np.asarray(carried + 16 * (width + 1) * EPSILON * terms))


def composite(
    outer: Matrix, inner: Matrix, terms: Matrix | None = None, added: Matrix | None = None
) -> Composite:
    """`added` + `outer` · `inner`, and the sum of the sizes of its terms."""
    made = np.abs(outer) @ (np.abs(inner) if terms is None else terms)
    inside: Matrix = outer @ inner
    return (inside, made) if added is None else (added + inside, np.abs(added) + made)


def is_zero(
    matrices: tuple[Matrix, Matrix, Matrix],
    x: tuple[Tracked, Tracked, Tracked],
    scales: tuple[Matrix, Matrix, float],
) -> bool:
    """Whether Σ M x is zero up to rounding, and rounding is small beside what x can be."""
    total = Tracked.sum(*zip(matrices, x, strict=True))
    s, g, z = (np.abs(matrix) for matrix in matrices)
    scale = s @ scales[0] + g @ scales[1] + z.sum(axis=1) * scales[2]
    is_sure = total.errors <= SURE * scale[:, None]
    return bool((np.abs(total.values) <= total.errors).all() and is_sure.all())


def clean_product(matrix: Matrix, x: Matrix) -> Matrix:
    """M x, with what rounding leaves of terms that cancel counted as zero."""
    return clean(matrix @ x, np.abs(matrix) @ np.abs(x))


def clean(total: Matrix, terms: Matrix) -> Matrix:
    """Sums, with those counted as zero that rounding explains beside the sizes of their terms."""
    cleaned: Matrix = np.where(np.abs(total) <= EQUAL * terms, 0.0, total)
    return cleaned


def orthonormal_basis(columns: Matrix) -> Matrix:
    """An orthonormal basis of the span of columns."""
    left, sizes, _ = np.linalg.svd(normalized_rows(columns.T)[0].T, full_matrices=False)
    basis: Matrix = left[:, sizes > SOLVED]
    return basis


def null_space(rows: Matrix) -> Matrix:
    """An orthonormal basis [columns, k] of what all rows map to zero."""
    if not len(rows):
        return np.eye(rows.shape[1])
    _, sizes, right = np.linalg.svd(normalized_rows(rows)[0], full_matrices=True)
    rank = int((sizes > SOLVED).sum())
    basis: Matrix = right[rank:].T
    return basis


def pseudo_inverse(rows: Matrix) -> Matrix:
    """The pseudo-inverse, whatever the units of rows."""
    unit, lengths = normalized_rows(rows)
    inverse: Matrix = np.linalg.pinv(unit, rcond=SOLVED).astype(np.float64)
    # Zeros are exact, so that rounding does not reach clients that nothing reaches.
    return clean(inverse, np.full_like(inverse, np.abs(inverse).max(initial=0.0))) / lengths


def normalized_rows(rows: Matrix) -> tuple[Matrix, Matrix]:
    """Rows divided by their lengths, and the lengths; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1)
    lengths = np.where(lengths > 0, lengths, 1.0)
    return rows / lengths[:, None], lengths
