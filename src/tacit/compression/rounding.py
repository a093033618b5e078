"""Rounding at random, to the integer below or above, so that the mean is the number itself."""

from __future__ import annotations

import torch
from torch import Tensor


def rounded_at_random(numbers: Tensor, words: Tensor) -> Tensor:
    """⌊x + U⌋ for float64 x with |x| < 2²⁰ and U = word/2³², as int64; integers stay. Overwrites `numbers`.

    In units of 2⁻³² all is exact: for an integer a and a uniform word, ⌊(a + word)/2³²⌋ has the mean a/2³².
    """
    return numbers.mul_(2.0**32).round_().to(torch.int64).add_(words).bitwise_right_shift_(32)
