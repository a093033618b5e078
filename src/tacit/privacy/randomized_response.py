"""Randomized response on signs: each coordinate tells its sign, or with some probability the other one.

    s̃ₖ = sign(vₖ) with probability p = e^ε/(1 + e^ε), −sign(vₖ) otherwise;   RR(v) = s̃/(2p − 1)

(Xiu et al. 2026, Algorithm 3.) E[RR(v)] = sign(v), where sign(0) = +1, or 0 if a fair coin decides for zeros. Each
coordinate is ε-locally differentially private, so a vector of d coordinates is dε-private and T of them Tdε: the
paper's ε is per coordinate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.core.arguments import is_number
from tacit.core.errors import Misuse
from tacit.core.here import Here

WORDS = 2**32


@dataclass(frozen=True)
class RandomizedResponse:
    """Signs that are kept with probability e^ε/(1 + e^ε) and scaled so that their mean is right."""

    epsilon: float
    zeros: Literal["plus", "coin"] = "plus"  # how zero is told: as +1, or by a fair coin

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.zeros not in ("plus", "coin"):
            raise Misuse(f"zeros is {self.zeros!r}.", 'Choose "plus" (as published) or "coin".')

    @property
    def threshold(self) -> int:
        """A sign is kept when its random word is below this: p in units of 2⁻³², rounded to the private side."""
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
            told = plus.to(v.dtype).mul_(2 * self.scale).sub_(self.scale)  # ± scale, exactly
            return torch.where(v.isnan(), v, told)  # a run that diverged shall be seen to

        return here.nonlinear(tag, response, rows, epsilon=self.epsilon)


def check_epsilon(epsilon: float) -> None:
    """Refuse a privacy budget that is not a positive number, or too small for 32 random bits."""
    if not (is_number(epsilon) and epsilon >= 1e-6):
        raise Misuse(
            f"epsilon is {epsilon!r}.",
            "Give a number above zero (at least 1e-6), the budget of one coordinate, e.g. epsilon = 4.0.",
        )
