"""The size of each row, the same to the last bit however many rows are measured together.

A library's sum may add in an order that depends on the shape, the device and the threads. Here a maximum is
used, which has no order, or additions in an order that only the width decides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.compression.bands import bands, whole_rows

STRIDE = 1 << 17  # squares this far apart are added first


def largest(rows: Tensor) -> Tensor:
    """max|uᵢ| of each row: [n, 1]; NaN for a row with a number that is not finite."""
    return extremes(rows)[1]


def extremes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """min|uᵢ| and max|uᵢ| of each row: both [n, 1]; the second NaN for a row with a number that is not finite."""
    low = rows.new_full((len(rows), 1), torch.inf)
    high = rows.new_zeros(len(rows), 1)
    for band, part in bands(*rows.shape):
        sizes = rows[band, part].abs()
        low[band] = torch.minimum(low[band], sizes.amin(dim=1, keepdim=True))
        high[band] = torch.maximum(high[band], sizes.amax(dim=1, keepdim=True))
    return low, _finite_or_nan(high)


def euclidean(rows: Tensor) -> Tensor:
    """‖u‖₂ of each row: [n, 1]; NaN for a row with a number that is not finite, or a norm that overflows.

    However it is rounded, it is not smaller than the largest number, whose square is exact.
    """
    norms = torch.empty(len(rows), 1, dtype=torch.float64, device=rows.device)
    if rows.dtype == torch.float32:  # the squares neither overflow nor vanish in float64
        for band in whole_rows(len(rows), min(rows.shape[1], STRIDE)):
            norms[band] = _sum_of_squares(rows[band]).sqrt_()
    else:
        # Measured in units of the largest number, so that no square overflows and no row but zero has norm zero.
        unit = largest(rows)
        unit = torch.where(unit == 0, 1.0, unit)
        for band in whole_rows(len(rows), min(rows.shape[1], STRIDE)):
            norms[band] = _sum_of_squares(rows[band], unit[band]).sqrt_().mul_(unit[band])
    return _finite_or_nan(norms.to(rows.dtype))


def _sum_of_squares(rows: Tensor, unit: Tensor | None = None) -> Tensor:
    """Σ(uᵢ/unit)² of each row in float64: [n, 1]. Those a STRIDE apart are added first, then second half to first."""

    def squares(part: Tensor) -> Tensor:
        wide = part.to(torch.float64, copy=True) if unit is None else part / unit
        return wide.square_()

    width = min(rows.shape[1], STRIDE)
    total = squares(rows[:, :width])
    for left in range(STRIDE, rows.shape[1], STRIDE):
        part = rows[:, left : left + STRIDE]
        total[:, : part.shape[1]] += squares(part)
    while width > 1:
        half = (width + 1) // 2
        total[:, : width - half] += total[:, half:width]
        width = half
    return total[:, :1]


def _finite_or_nan(sizes: Tensor) -> Tensor:
    return torch.where(torch.isfinite(sizes), sizes, torch.nan)
