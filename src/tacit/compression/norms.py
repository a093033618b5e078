"""Norms of rows, the same to the last bit however many rows are measured together.

A library's sum may add in an order that depends on the shape, the device and the threads. Here a
maximum is used, which has no order, or additions in an order that depends on the width only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.compression.blocks import blocks, row_blocks

# Squares this far apart are added first.
STRIDE = 1 << 17


def extremes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """min|uᵢ| and max|uᵢ| of each row, both [n, 1]; the second NaN if a number is not finite."""
    low = rows.new_full((len(rows), 1), torch.inf)
    high = rows.new_zeros(len(rows), 1)
    for band, part in blocks(*rows.shape):
        sizes = rows[band, part].abs()
        low[band] = torch.minimum(low[band], sizes.amin(dim=1, keepdim=True))
        high[band] = torch.maximum(high[band], sizes.amax(dim=1, keepdim=True))
    return low, _finite_or_nan(high)


def euclidean(rows: Tensor) -> Tensor:
    """‖u‖₂ of each row, [n, 1]; NaN if a number is not finite or the norm overflows.

    Despite rounding, it is not smaller than the largest number, whose square is exact.
    """
    norms = torch.empty(len(rows), 1, dtype=torch.float64, device=rows.device)
    unit = None
    # The squares of float32 neither overflow nor vanish in float64. Others are measured in units of
    # the largest number, so that no square overflows and only zero rows have norm zero.
    if rows.dtype != torch.float32:
        unit = extremes(rows)[1]
        unit = torch.where(unit == 0, 1.0, unit)
    for band in row_blocks(len(rows), min(rows.shape[1], STRIDE)):
        if unit is None:
            norms[band] = _sum_of_squares(rows[band]).sqrt_()
        else:
            norms[band] = _sum_of_squares(rows[band], unit[band]).sqrt_().mul_(unit[band])
    return _finite_or_nan(norms.to(rows.dtype))


def _sum_of_squares(rows: Tensor, unit: Tensor | None = None) -> Tensor:
    """Σ(uᵢ/unit)² of each row in float64, [n, 1].

    Squares a STRIDE apart are added first; then the second half is added to the first, repeatedly.
    """

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
