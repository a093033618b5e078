"""What several runs on the same rows reveal together: their Gaussian noise, composed.

Runs compose like iterations, adaptively: the second may depend on the models of the first, as in a
search for good step sizes. Releases of unsampled noise are exactly one with μ² = Σ T/σ²; of sampled
noise, the privacy losses are convolved, those of adding and of removing the unit each by
themselves, because it is added in all runs or removed in all.

Noise that is only within a total variation distance d of Gaussian noise costs (1 + e^ε) d of δ, at
the ε of all runs together. That ε is hence the solution of

    δ(ε) + (1 + e^ε) Σ d = δ

whose left side is convex in e^ε. The smallest solution is the limit of ε ↦ ε(δ − (1 + e^ε) Σ d)
from below; what is returned lies slightly above it and is checked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scipy import special

from tacit.core.checks import check_number
from tacit.privacy.accounting.checks import check_delta
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.privacy.accounting.noise_pair import NoisePair
from tacit.privacy.accounting.sampled_gaussian import (
    LEAST_NOISE,
    MOST_NOISE,
    SMALLEST_TAIL,
    TAIL_OF_ALL,
    TAIL_OF_ONE,
    check_mechanism,
    sampled_gaussian_losses,
)

# What is added to the limit of the iteration, relative to it, and how often it is tried.
MARGIN, TRIES = 1e-6, 200


@dataclass(frozen=True)
class Releases:
    """The sums that one run has released.

    Attributes:
        noise_multiplier: Standard deviation of the noise over the clipping norm, σ.
        sampling_rate: The probability that an iteration uses a unit; 1 uses all.
        steps: The number of iterations.
        distance: The total variation distance of all its noise from Gaussian noise.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    distance: float = 0.0

    def __post_init__(self) -> None:
        check_mechanism(self.noise_multiplier, self.sampling_rate, self.steps)
        check_number("distance", self.distance, at_least=0, at_most=1)


def composed_epsilon(runs: Iterable[Releases], delta: float) -> float:
    """An upper bound on the smallest ε ≥ 0 for which all runs together are (ε, δ)-private.

    Example:
        >>> one = Releases(1.0, sampling_rate=0.01, steps=1000)
        >>> round(composed_epsilon([one], 1e-5), 2), round(composed_epsilon([one, one], 1e-5), 2)
        (1.83, 2.58)
    """
    check_delta(delta)
    runs = [run for run in runs if run.steps]
    if any(run.noise_multiplier < LEAST_NOISE for run in runs):
        return math.inf
    gaussian = _accountant(runs, delta)
    distance = sum(run.distance for run in runs)
    if distance == 0:
        return gaussian(delta)
    epsilon = 0.0
    for _ in range(TRIES):
        left = delta - _cost(epsilon, distance)
        if left <= 0:
            return math.inf
        needed = gaussian(left)
        if needed <= epsilon:
            return epsilon
        epsilon = needed * (1 + MARGIN) + MARGIN
    return math.inf


def _cost(epsilon: float, distance: float) -> float:
    """The part of δ that a distance from Gaussian noise takes at ε."""
    return distance * (1 + math.exp(min(epsilon, 700.0)))


def _accountant(runs: list[Releases], delta: float) -> Callable[[float], float]:
    """The ε of ideal noise at δ and a little below; what is computed once is computed here."""
    mu = math.sqrt(
        sum(run.steps / run.noise_multiplier**2 for run in runs if run.sampling_rate == 1)
    )
    steps: Counter[tuple[float, float]] = Counter()
    for run in runs:
        if run.sampling_rate < 1:
            steps[min(run.noise_multiplier, MOST_NOISE), run.sampling_rate] += run.steps
    if not steps:
        return lambda delta: gaussian_epsilon(delta, mu)
    tail, cut = (
        max(part * delta / len(steps), SMALLEST_TAIL) for part in (TAIL_OF_ONE, TAIL_OF_ALL)
    )
    removed = added = PrivacyLoss.of_pair(_gaussian_pair(mu)) if mu else PrivacyLoss.none()
    for (sigma, rate), count in steps.items():
        pair = sampled_gaussian_losses(sigma, rate, tail)
        removed, added = (
            total.compose(one.self_compose(count, cut))
            for total, one in zip((removed, added), pair, strict=True)
        )
    return lambda delta: max(removed.epsilon(delta), added.epsilon(delta))


def _gaussian_pair(mu: float) -> NoisePair:
    """Noise N(0, 1) with and without a shift by μ."""
    return NoisePair(lambda z: -z * z / 2, lambda z: special.ndtr(-z), mu)
