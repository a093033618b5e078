"""Bounds for sums over Poisson samples: y = S G + N ξ with Gaussian noise, per sample.

G [T, P] are a victim's sums of clipped gradients. A sample is in each of them with probability q,
and changes it by at most C, plus √P/(s·a) where a times the sum is rounded to multiples of 1/s.
With Gaussian noise of standard deviations D, all that is seen is equivalent to F G + F^½ z,

    F = Sᵀ(N D² Nᵀ)⁺S,   z standard normal.

If F is diagonal, these are T Poisson-sampled Gaussian mechanisms one after the other, each with the
noise multiplier σₜ = 1/(C √Fₜₜ), and the guarantee is that of their composition. The integer noise
of a total has the same guarantee as Gaussian noise: see `tacit.core.discrete_gaussian`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.auditing.bounds.added_noise import IDEAL_NOISE, Bound, fisher_information
from tacit.auditing.bounds.secret_rows import NoBound, SecretRows, normalized
from tacit.core.noise import Gaussian
from tacit.privacy.accounting.sampled_gaussian import sampled_gaussian_epsilon

# Off the diagonal of F, relative to it, that is rounding.
DIAGONAL = 1e-9


@dataclass(frozen=True)
class SampledLoss:
    """What iterations cost that all release a sum with the same noise and sampling."""

    noise_multiplier: float
    sampling_rate: float
    releases: int
    ideal: bool  # whether the noise is in floating point, so that the guarantee is idealised

    def bound(self, delta: float) -> Bound:
        """The guarantee at δ."""
        epsilon = sampled_gaussian_epsilon(
            self.noise_multiplier, self.sampling_rate, self.releases, delta
        )
        why = (
            f"{self.releases} sums of clipped gradients, each sample in one with probability "
            f"{self.sampling_rate:.4g}, with noise of {self.noise_multiplier:.4g} times what a "
            "sample changes"
        )
        return Bound(epsilon, delta, why, (IDEAL_NOISE,) if self.ideal else ())


def sampled_loss(view: SecretRows, parameters: int) -> SampledLoss:
    """What messages with sums of sampled gradients cost.

    Args:
        view: What the adversary sees, in which all gradients of the victim are such sums.
        parameters: P, the number of coordinates of a gradient.

    Raises:
        NoBound: Noise is not Gaussian, cancels, or hides several sums at once.
    """
    run = view.run
    if not all(isinstance(law, Gaussian) for law in view.laws):
        raise NoBound("sums over samples have a bound for Gaussian noise only")
    samplings = [run.samplings[gradient.when] for gradient in view.gradients]
    rounding = math.sqrt(parameters) * run.rounding
    changes = np.array([sampling.bound + rounding for sampling in samplings])
    rows = normalized(view.signal * changes, view.added * view.deviations)
    information = fisher_information(*rows, DIAGONAL)
    if information is None:
        raise NoBound("noise cancels in a combination of messages")
    diagonal = np.diag(information)
    if (np.abs(information - np.diag(diagonal)) > DIAGONAL * diagonal.max()).any():
        raise NoBound("sums of several iterations are seen under the same noise")
    rate = max(sampling.rate for sampling in samplings)
    return SampledLoss(1 / math.sqrt(diagonal.max()), rate, len(samplings), not run.rounding)
