"""Randomized response on signs: each coordinate's sign is kept or, with some probability, flipped.

    s̃ₖ = sign(vₖ) with probability p = e^ε/(1 + e^ε), −sign(vₖ) otherwise;   RR(v) = s̃/(2p − 1)

(Xiu et al. 2026, Algorithm 3.) E[RR(v)] = sign(v), where sign(0) = +1, or 0 if a fair coin decides
for zeros. Each coordinate is ε-locally differentially private, so a vector of d coordinates is
dε-private and T of them Tdε: the paper's ε is per coordinate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.core.checks import check_choice, check_number
from tacit.core.here import Here

WORDS = 2**32


@dataclass(frozen=True)
class RandomizedResponse:
    """Signs that are kept with probability e^ε/(1 + e^ε) and scaled to have the right mean.

    Args:
        epsilon: ε of one coordinate.
        zeros: How zero responds: as +1 ("plus", as published) or by a fair coin ("coin").
    """

    epsilon: float
    zeros: Literal["plus", "coin"] = "plus"

    def __post_init__(self) -> None:
        # A smaller ε does not fit 32 random bits.
        hint = "the budget of one coordinate"
        check_number("epsilon", self.epsilon, at_least=1e-6, example=4.0, hint=hint)
        check_choice("zeros", self.zeros, {"plus": "as published", "coin": ""})

    @property
    def threshold(self) -> int:
        """Keep the sign if the word is below this: p in units of 2⁻³², rounded to the safe side."""
        return min(int(WORDS / (1.0 + math.exp(-self.epsilon))), WORDS - 1)

    @property
    def scale(self) -> float:
        """1/(2p − 1), the size of every coordinate of the response."""
        return WORDS / (2 * self.threshold - WORDS)

    def respond(self, tag: str, rows: Tensor, here: Here) -> Tensor:
        """RR(v) for each hosted client's row v [n, P]."""

        def response(v: Tensor) -> Tensor:
            drawn = here.words(tag, v.shape[1])
            plus = (v < 0) ^ (drawn < self.threshold)
            if self.zeros == "coin":
                plus = torch.where(v == 0, drawn % 2 == 0, plus)
            # ± scale, exactly, also for a NaN: its sign counts as +, and it is not sent.
            return plus.to(v.dtype).mul_(2 * self.scale).sub_(self.scale)

        return here.nonlinear(tag, response, rows, epsilon=self.epsilon)
