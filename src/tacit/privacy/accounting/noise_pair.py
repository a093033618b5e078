"""Symmetric log-concave noise with and without a shift: the pair of every additive mechanism.

With f the density of the noise Z, an output y has the law P of Z + s or the law Q of Z. Its loss

    ℓ(y) = log f(y − s) − log f(y)

does not decrease in y since f is log-concave, so the hockey-stick divergence needs one number y(ε)
with ℓ(y) = ε:

    δ(ε) = P(ℓ > ε) − e^ε Q(ℓ > ε) = F̄(y(ε) − s) − e^ε F̄(y(ε)),   F̄(z) = P(Z > z)

As f is even, ℓ(s − y) = −ℓ(y), so exchanging P and Q gives the same δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Any], Any]

NEGLIGIBLE = 1e-300
# For larger ε, e^ε is close to overflow.
LARGEST_EXPONENT = 600.0


@dataclass(frozen=True)
class NoisePair:
    """Noise given by `log_density` (even, concave) and `tail` F̄, and its shift by `shift` > 0.

    `pure` bounds |ℓ|.
    """

    log_density: Function
    tail: Function
    shift: float
    pure: float = math.inf

    @property
    def reach(self) -> float:
        """A distance that the noise exceeds with negligible probability."""
        distance = 1.0
        while self.tail(distance) > NEGLIGIBLE:
            distance *= 2
        return distance

    def loss(self, y: Array) -> Array:
        """ℓ(y), elementwise."""
        return np.asarray(self.log_density(y - self.shift) - self.log_density(y), dtype=np.float64)

    def crossing(self, epsilon: Array) -> Array:
        """y(ε): the largest output whose loss is at most ε, by bisection within `reach`."""
        reach = self.reach
        low = np.full(np.shape(epsilon), -reach)
        high = np.full(np.shape(epsilon), self.shift + reach)
        for _ in range(70):
            middle = (low + high) / 2
            below = self.loss(middle) <= epsilon
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return low

    def mass(self, low: Array, high: Array) -> Array:
        """P(low < Z ≤ high), from the nearer tail so that small masses keep their digits."""
        right = self.tail(low) - self.tail(high)
        left = self.tail(-high) - self.tail(-low)
        return np.asarray(np.maximum(np.where(low >= 0, right, left), 0.0))

    def delta(self, epsilon: float) -> float:
        """δ(ε), the smallest δ for which the pair is (ε, δ)-indistinguishable."""
        if epsilon >= self.pure:
            return 0.0
        y = float(self.crossing(np.array(epsilon)))
        under_p = float(self.tail(y - self.shift))
        if epsilon > LARGEST_EXPONENT:
            # An upper bound: the subtrahend is left out.
            return under_p
        return max(under_p - math.exp(epsilon) * float(self.tail(y)), 0.0)
