"""How much rounding can change a sum of clipped gradients, and how the bound still holds.

Products and sums are computed in double precision. On its way into a sum of L gradients of norm C,
each is rounded at most `ROUNDINGS` times to single precision together with others: in a part of the
sum, a pass, and the sum itself. So the sum differs from the exact one by at most

    e = ROUNDINGS · 2⁻²⁴ · L · C,

and adding or removing a sample changes it by at most C + 2e. To make that the bound, gradients are
clipped to a little less: C = (1 − 2e/C) · bound. The share must not depend on how many samples a
client really has, or one more would change all gradients; so it is computed from public numbers,
for a number L that is exceeded never.
"""

from __future__ import annotations

import math

ROUNDINGS = 4
UNIT = 2.0**-24
DEVIATIONS = 10
# By default: enough for sums over 1,700 samples.
ROUNDING = 2.0**-10


def rounding_share(expected: float, rate: float) -> float:
    """The share of a bound that rounding may take, for sums over so many samples on average.

    Args:
        expected: The expected number of samples in a sum.
        rate: The probability with which each is drawn.
    """
    most = expected + DEVIATIONS * math.sqrt(expected * (1 - rate)) + DEVIATIONS
    return 2 * ROUNDINGS * UNIT * most
