"""How much rounding can change a sum of clipped gradients, and how the bound still holds.

Each clipped gradient is at most C long. The sum of L of them is computed with at most `ROUNDINGS`
roundings to float32 on the way of each: it differs from the exact sum by at most

    e = ROUNDINGS · 2⁻²⁴ · L · C.

So adding or removing a sample changes the computed sum by at most C + 2e, more than C. To make it C
again, sums are multiplied by 1 − 2r, where r = 2e/C for a number L that is never exceeded: the mean
of the binomial distribution and ten standard deviations. r itself changes with the number of
samples, by less than another r in its effect on the sum, which the factor 2 covers.
"""

from __future__ import annotations

import torch
from torch import Tensor

# A product, up to 16 samples added in float32, a sum rounded from float64, and a few for passes.
ROUNDINGS = 24
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
DEVIATIONS = 10


def shortening(sizes: Tensor, rate: float, dtype: torch.dtype) -> Tensor:
    """The factor of each client's sum, [n, 1], for clients with these numbers of samples [n].

    Args:
        sizes: Samples of each client, [n].
        rate: The probability with which each is drawn.
        dtype: Of the gradients.
    """
    mean = rate * sizes.double()
    most = mean + DEVIATIONS * (mean * (1 - rate)).sqrt() + DEVIATIONS
    r = 2 * ROUNDINGS * UNIT[dtype] * most
    return (1 - 2 * r).clamp_(min=0.0).to(dtype)[:, None]
