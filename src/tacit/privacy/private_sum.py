"""One private sum per iteration: sampling, clipping, noise and encoding for a promised guarantee.

A sample's clipped gradient has norm at most C, so it changes a client's integers by at most
s·C + √P: rounding moves each of P coordinates by at most one. Noise of the honest clients together
has at least the guarantee of Gaussian noise with the standard deviation σ(s·C + √P), where σ is the
noise multiplier that the accountant counts on. Each of h honest clients adds 1/h of the variance.

The noise has one of a family of integer distributions, so σ is met exactly by the choice of s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.core.discrete_gaussian import MAX_FACTOR, DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.fixed_point import LARGEST_TOTAL, FixedPoint
from tacit.privacy.accounting.integer_noise import continuous_scale, rounding_distance
from tacit.privacy.guarantee import Budget, Privacy, Unit
from tacit.privacy.population import Population

# √P/(s·C) to aim for: the share of the noise that rounding costs.
OVERHEAD = 1e-3
# What is still acceptable where integers of 32 bits have no room for more.
MOST_OVERHEAD = 0.1
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
    """

    unit: Unit
    bound: float
    sampling_rate: float
    expected: float
    code: FixedPoint
    budget: Budget


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
    budget = promise.budget(rate, facts.steps, clients=facts.clients)
    if math.isinf(promise.epsilon):
        scale = _largest_scale(min(bound, LARGEST_GRADIENT), _most(expected, rate))
        code = FixedPoint(scale, limit=LARGEST_TOTAL // facts.clients)
        return PrivateSum(promise.unit, bound, rate, expected, code, budget)
    if math.isinf(bound):
        raise Misuse(
            "Without clipping one sample can change the sum by any amount, and no noise hides it.",
            "Give a clipping bound, e.g. clip = 1.0, or epsilon = inf.",
        )
    multiplier, root = budget.noise_multiplier, math.sqrt(facts.parameters)
    clients = math.sqrt(budget.honest)
    # Integers per bound, s·C: enough for a small overhead, if they fit.
    wanted = min(root / OVERHEAD, bound * _largest_scale(bound, _most(expected, rate)))
    largest = DiscreteGaussian(MAX_FACTOR).scale
    noise = DiscreteGaussian.at_least(min(multiplier * (wanted + root) / clients, largest))
    per_bound = continuous_scale(noise.scale * clients) / multiplier - root
    if per_bound < root / MOST_OVERHEAD or per_bound > 2 * wanted:
        raise Misuse(
            f"Sums of about {expected:.0f} gradients of {facts.parameters:,} parameters do not fit "
            "into integers of 32 bits.",
            "Lower the batch size, or train fewer parameters.",
        )
    draws = facts.parameters * facts.steps * facts.clients
    budget = budget.with_distance(noise.distance(draws) + rounding_distance(draws))
    return PrivateSum(
        promise.unit, bound, rate, expected, FixedPoint(per_bound / bound, noise), budget
    )


def _most(expected: float, rate: float) -> float:
    """More contributions than are ever drawn: six standard deviations above the mean."""
    return expected + 6 * math.sqrt(expected * (1 - rate)) + 6


def _largest_scale(size: float, count: float) -> float:
    """The largest scale with which so many numbers of this size fit into the range."""
    return LARGEST_TOTAL / (count * size)
