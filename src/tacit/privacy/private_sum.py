"""One private sum per iteration: sampling, clipping, noise and encoding for a promised guarantee.

A sample changes a client's sum by at most C (see `rounded_sums`), and its integers by at most
s·C + √P: rounding to integers moves each of P coordinates by at most one. Noise of the honest
clients together has at least the guarantee of Gaussian noise with the standard deviation
σ(s·C + √P), where σ is the noise multiplier that the accountant counts on. Each of h honest clients
adds 1/h of the variance.

The noise has one of a family of integer distributions, so σ is met exactly by the choice of s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tacit.core.discrete_gaussian import MAX_FACTOR, DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.fixed_point import LARGEST_TOTAL, FixedPoint
from tacit.privacy.accounting.integer_noise import continuous_scale, rounding_distance
from tacit.privacy.guarantee import Budget
from tacit.privacy.mechanism import Mechanism, rounding_of

# √P/(s·C) to aim for: the share of the noise that rounding costs.
OVERHEAD = 1e-3
# What is still acceptable where integers of 32 bits have no room for more.
MOST_OVERHEAD = 0.1
# Without clipping: the largest gradient of a sample by one parameter that sums must have room for.
LARGEST_GRADIENT = 16.0


@dataclass(frozen=True)
class PrivateSum(Mechanism):
    """One sum per iteration, with the least noise that keeps the promise.

    Attributes:
        code: Scale and noise of the integers.

    Raises:
        Misuse: If the promise does not fit the clients and samples, or sums do not fit integers.
    """

    code: FixedPoint = field(init=False)

    def __post_init__(self) -> None:
        budget = self.calibrated_budget()
        # Integers per contribution that have room in the sum.
        room = LARGEST_TOTAL / _most(self.expected, self.sampling_rate)
        if math.isinf(self.promise.epsilon):
            code = self._code_without_noise(room)
            self._compute(budget=budget, rounding=0.0, code=code)
            return
        noise, per_bound = self._noise(budget, room)
        facts = self.facts
        draws = facts.parameters * facts.steps * facts.clients
        budget = budget.with_distance(noise.distance(draws) + rounding_distance(draws))
        code = FixedPoint(per_bound / self.bound, noise)
        is_client = self.unit == "client"
        rounding = 0.0 if is_client else rounding_of(self.expected, self.sampling_rate)
        self._compute(budget=budget, rounding=rounding, code=code)

    def _code_without_noise(self, room: float) -> FixedPoint:
        scale = room / min(self.bound, LARGEST_GRADIENT)
        # Together less than 3·2³⁰, so that a total out of range is always noticed.
        limit = min(2**31, 3 * LARGEST_TOTAL // self.facts.clients) - 1
        return FixedPoint(scale, limit=limit)

    def _noise(self, budget: Budget, room: float) -> tuple[DiscreteGaussian, float]:
        """The noise of one client, and s·C, the integers per bound, for which it is the noise."""
        facts, multiplier = self.facts, budget.noise_multiplier
        root, clients = math.sqrt(facts.parameters), math.sqrt(budget.honest)

        def integers_per_bound(noise: DiscreteGaussian) -> float:
            return continuous_scale(noise.scale * clients) / multiplier - root

        # Enough integers for a small overhead, if they have room.
        wanted, largest = min(root / OVERHEAD, room), DiscreteGaussian(MAX_FACTOR).scale
        noise = DiscreteGaussian.at_least(min(multiplier * (wanted + root) / clients, largest))
        if noise.factor and integers_per_bound(noise) > room:
            noise = DiscreteGaussian(noise.factor - 1)
        per_bound = integers_per_bound(noise)
        if not root / MOST_OVERHEAD <= per_bound <= room:
            raise Misuse(
                f"Sums of about {self.expected:.0f} gradients of {facts.parameters:,} parameters "
                f"with noise of {multiplier:.3g} times the clipping bound do not fit into integers "
                "of 32 bits.",
                "Lower the batch size, or train fewer parameters; or promise another epsilon.",
            )
        return noise, per_bound


def _most(expected: float, rate: float) -> float:
    """More contributions than are ever drawn: six standard deviations above the mean."""
    return expected + 6 * math.sqrt(expected * (1 - rate)) + 6
