"""The size of each row, the same to the last bit however many rows are measured together.

A library's sum may add in an order that depends on the shape, the device and the threads. Here a maximum is
used, which has no order, or additions in an order that only the width decides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.compression.bands import bands


def largest(rows: Tensor) -> Tensor:
    """max|uᵢ| of each row: [n, 1]; NaN for a row with a number that is not finite."""
    return _finite_or_nan(rows.abs().amax(dim=1, keepdim=True))


def euclidean(rows: Tensor) -> Tensor:
    """‖u‖₂ of each row: [n, 1]; NaN for a row with a number that is not finite, or a norm that overflows.

    However it is rounded, it is not smaller than the largest number, whose square is counted as 1.
    """
    unit = largest(rows).to(torch.float64)
    # Measured in units of the largest number, so that no square overflows and no row but zero has norm zero.
    unit = torch.where(unit == 0, 1.0, unit)
    norms = torch.empty_like(unit)
    for band in bands(*rows.shape):
        squares = (rows[band].to(torch.float64) / unit[band]).square_()
        norms[band] = _fold(squares).sqrt_().mul_(unit[band])
    return _finite_or_nan(norms.to(rows.dtype))


def _fold(terms: Tensor) -> Tensor:
    """Sums of the rows [n, 1], the second half added to the first until one column is left; overwrites them."""
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return terms[:, :1]


def _finite_or_nan(sizes: Tensor) -> Tensor:
    return torch.where(torch.isfinite(sizes), sizes, torch.nan)
