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
from dataclasses import dataclass, replace

from tacit.core.discrete_gaussian import MAX_FACTOR, DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.fixed_point import LARGEST_TOTAL, FixedPoint
from tacit.core.rounded_sums import rounding_share
from tacit.privacy.accounting.integer_noise import continuous_scale, rounding_distance
from tacit.privacy.guarantee import Budget, Privacy, Unit
from tacit.privacy.population import Population

# √P/(s·C) to aim for: the share of the noise that rounding costs.
OVERHEAD = 1e-3
# What is still acceptable where integers of 32 bits have no room for more.
MOST_OVERHEAD = 0.1
# The largest share of the bound that is left to rounding of sums.
MOST_ROUNDING = 0.1
# Without clipping: the largest gradient of a sample by one parameter that sums must have room for.
LARGEST_GRADIENT = 16.0


@dataclass(frozen=True)
class PrivateSum:
    """How one sum per iteration is made.

    Attributes:
        unit: Whose data the guarantee protects: a "sample", or all data of a "client".
        bound: The largest norm of one unit's contribution, C; infinite without clipping.
        sampling_rate: The probability with which each sample is drawn; 1 for clients.
        expected: The expected number of contributions, by which the sum is divided.
        code: Scale and noise of the integers.
        budget: What a run spends.
        rounding: The share of the bound that rounding of sums may take.
        facts: What all this was computed for.
    """

    unit: Unit
    bound: float
    sampling_rate: float
    expected: float
    code: FixedPoint
    budget: Budget
    rounding: float = 0.0
    facts: Population | None = None


def private_sum(promise: Privacy, bound: float, facts: Population) -> PrivateSum:
    """The sum that keeps a promise with the least noise.

    Args:
        promise: The guarantee.
        bound: The largest norm of one unit's contribution; infinite for no bound.
        facts: What the guarantee depends on.

    Raises:
        Misuse: If the promise does not fit the clients and samples, or nothing is clipped.
    """
    promise.check(samples=facts.samples, clients=facts.clients)
    is_client = promise.unit == "client"
    rate = 1.0 if is_client else min(1.0, facts.batch / facts.samples)
    expected = float(facts.clients) if is_client else rate * facts.samples
    # A run without iterations would need no noise, which is no mechanism.
    steps = max(1, facts.steps)
    budget = promise.budget(rate, steps, clients=facts.clients)
    # Integers per contribution that have room in the sum.
    room = LARGEST_TOTAL / _most(expected, rate)
    if math.isinf(promise.epsilon):
        scale = room / min(bound, LARGEST_GRADIENT)
        # Together less than 3·2³⁰, so that a total out of range is always noticed.
        limit = min(2**31, 3 * LARGEST_TOTAL // facts.clients) - 1
        code = FixedPoint(scale, limit=limit)
        return PrivateSum(promise.unit, bound, rate, expected, code, budget)
    if math.isinf(bound):
        raise Misuse(
            "Without clipping one sample can change the sum by any amount, and no noise hides it.",
            "Give a clipping bound, e.g. clip = 1.0, or epsilon = inf.",
        )
    multiplier, root = budget.noise_multiplier, math.sqrt(facts.parameters)
    clients = math.sqrt(budget.honest)

    def integers_per_bound(noise: DiscreteGaussian) -> float:
        """s·C, for which this is the noise."""
        return continuous_scale(noise.scale * clients) / multiplier - root

    # Enough integers for a small overhead, if they have room.
    wanted, largest = min(root / OVERHEAD, room), DiscreteGaussian(MAX_FACTOR).scale
    noise = DiscreteGaussian.at_least(min(multiplier * (wanted + root) / clients, largest))
    if noise.factor and integers_per_bound(noise) > room:
        noise = DiscreteGaussian(noise.factor - 1)
    per_bound = integers_per_bound(noise)
    if not root / MOST_OVERHEAD <= per_bound <= room:
        raise Misuse(
            f"Sums of about {expected:.0f} gradients of {facts.parameters:,} parameters with noise "
            f"of {multiplier:.3g} times the clipping bound do not fit into integers of 32 bits.",
            "Lower the batch size, or train fewer parameters; or promise another epsilon.",
        )
    draws = facts.parameters * steps * facts.clients
    budget = budget.with_distance(noise.distance(draws) + rounding_distance(draws))
    code = FixedPoint(per_bound / bound, noise)
    rounding = 0.0 if is_client else rounding_of(expected, rate)
    facts = replace(facts, steps=steps)
    return PrivateSum(promise.unit, bound, rate, expected, code, budget, rounding, facts)


def rounding_of(expected: float, rate: float) -> float:
    """The share of a bound that rounding may take, in sums over so many samples on average.

    Raises:
        Misuse: If it is a large part of the bound.
    """
    share = rounding_share(expected, rate)
    if share > MOST_ROUNDING:
        raise Misuse(
            f"Sums over {expected:,.0f} samples lose too many digits in single precision: "
            f"{share:.0%} of the clipping bound.",
            "Lower the batch size.",
        )
    return share


def _most(expected: float, rate: float) -> float:
    """More contributions than are ever drawn: six standard deviations above the mean."""
    return expected + 6 * math.sqrt(expected * (1 - rate)) + 6
