"""Why a guarantee of continuous Gaussian noise holds for the integer noise that is really added.

The discrete Gaussian of scale s takes the integer k with probability ∝ ρ_s(k) = e^{−k²/2s²}. Let y
be continuous Gaussian noise of scale √(s² − τ²), and round it at random to k with probability
ρ_τ(k − y)/Σⱼ ρ_τ(j − y). By Poisson summation the denominator is τ√2π up to a factor 1 ± β with
β = 2 Σₙ e^{−2π²τ²n²}, n = 1, 2, …, and without it the result has exactly the law ∝ ρ_s. So rounding
gives the discrete Gaussian of scale s up to a total variation distance of β/(1 − β).

Rounding a sum of integers plus y is rounding y and adding the integers, whatever they are. Hence
integers with discrete Gaussian noise of scale s are, up to that distance, computed from the same
integers with continuous noise of scale √(s² − τ²), and reveal no more: of any composition, under
any sampling, by any measure. Rényi divergences of whole orders would show as much for Rényi
accounting only.

With τ = 4 the distance is below 10⁻¹³⁶ per number, and for s ≥ 1024 the scale shrinks by less than
one part in 100,000.
"""

from __future__ import annotations

import math

from tacit.core.checks import check_count, check_number

# τ, the scale of the random rounding.
TAU = 4.0


def continuous_scale(scale: float) -> float:
    """The scale of continuous Gaussian noise that discrete Gaussian noise of `scale` follows from.

    Example:
        >>> round(1 - continuous_scale(1024.0) / 1024.0, 7)
        7.6e-06
    """
    check_number("scale", scale, at_least=TAU, hint="of integer noise, a standard deviation")
    return math.sqrt((scale - TAU) * (scale + TAU))


def rounding_distance(numbers: int) -> float:
    """An upper bound on the total variation distance, for that many rounded numbers."""
    check_count("numbers", numbers, at_least=0)
    first = math.exp(-2 * math.pi**2 * TAU**2)
    # The terms after the first are smaller than it by more than 400 orders of magnitude.
    beta = 2 * first * (1 + 1e-12)
    return min(1.0, numbers * beta / (1 - beta))
