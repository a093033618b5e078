"""One private sum per iteration: sampling, clipping, noise and encoding for a promised guarantee.

A sample's clipped gradient has norm at most C, so it changes a client's integers by at most
s·C + √P: rounding moves each of P coordinates by at most one. Noise of the honest clients together
has the standard deviation σ(s·C + √P), where σ is the noise multiplier that the accountant counts
on. Each of h honest clients adds 1/h of the variance.

The noise has one of a family of integer distributions, so σ is met exactly by the choice of s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.fixed_point import LARGEST_TOTAL, FixedPoint
from tacit.privacy.guarantee import Budget, Privacy, Unit

# √P/(s·C) to aim for: the share of the noise that rounding costs.
OVERHEAD = 1e-3
# Without clipping: the largest mean gradient of a coordinate that the range of integers must hold.
LARGEST_MEAN = 16.0


@dataclass(frozen=True)
class Population:
    """The public facts that a guarantee depends on.

    Attributes:
        clients: The number of clients.
        samples: Training samples of all clients together.
        batch: The expected number of samples in one sum, of all clients together.
        parameters: Numbers in a model.
        steps: Iterations of the whole run.
    """

    clients: int
    samples: int
    batch: float
    parameters: int
    steps: int


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

