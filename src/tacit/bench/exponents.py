"""How cost grows with size: the exponent b of cost ≈ a·sizeᵇ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Exponent:
    """A fitted exponent with its standard error, which says how far from a power law the costs are."""

    value: float
    error: float


def fit_exponent(sizes: Sequence[float], costs: Sequence[float]) -> Exponent:
    """Least squares of log cost on log size; three sizes or more, for there must be something left to err."""
    if len(sizes) != len(costs) or len(set(sizes)) < 3:
        raise ValueError(
            f"{len(sizes)} sizes and {len(costs)} costs: three different sizes at least"
        )
    x, y = np.log(sizes), np.log(costs)
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residual = y - y.mean() - slope * centred
    variance = float(residual @ residual) / (len(x) - 2)
    return Exponent(slope, float(np.sqrt(variance / (centred @ centred))))
