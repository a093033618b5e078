"""How much noise a guarantee needs, and how many iterations it allows.

All answers err on the safe side: a multiplier or a number of iterations is returned only after its
ε was computed and found to be within the promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import special

from tacit.core.checks import check_number
from tacit.core.errors import Misuse
from tacit.privacy.accounting.sampled_gaussian import check_mechanism, sampled_gaussian_epsilon

# How much larger than necessary the noise may be.
TOLERANCE = 5e-4
# More iterations than any run takes.
MOST_STEPS = 10**7
# A logarithm of noise that is large enough for every guarantee.
LARGEST = 20.0


def calibrate_noise_multiplier(
    epsilon: float, delta: float, sampling_rate: float, steps: int
) -> float:
    """The smallest noise multiplier, within 0.05 %, that makes `steps` iterations (ε, δ)-private.

    Args:
        epsilon: The ε that must not be exceeded; `math.inf` needs no noise.
        delta: The δ of the guarantee.
        sampling_rate: The probability that an iteration uses a sample; 1 uses all.
        steps: The number of iterations.

    Returns:
        Standard deviation of the noise over the clipping norm.

    Raises:
        Misuse: If δ is so small that rounding hides it.

    Example:
        >>> sigma = calibrate_noise_multiplier(3.0, 1e-5, sampling_rate=2048 / 60000, steps=1160)
        >>> round(sigma, 2)
        1.8
    """
    check_number("epsilon", epsilon, above=0, infinite=True, example=3)
    check_number("delta", delta, above=0, below=1, example=1e-5)
    check_mechanism(1.0, sampling_rate, steps)
    if epsilon == math.inf or steps == 0:
        return 0.0

    def excess(log_sigma: float) -> float:
        """Log of ε over the promise: above zero if there is too little noise."""
        spent = sampled_gaussian_epsilon(math.exp(log_sigma), sampling_rate, steps, delta)
        return math.log(spent / epsilon) if spent > 0 else -math.inf

    # Gaussian with μ where the loss of probability δ is about ε; and with that μ in the limit of
    # many iterations, μ² = T q² (e^{1/σ²} − 1).
    quantile = max(-float(special.ndtri(delta)), 0.5)
    mu = 2 * epsilon / (quantile + math.sqrt(quantile**2 + 2 * epsilon))
    guess = -math.log(math.log1p((mu / sampling_rate) ** 2 / steps)) / 2
    return math.exp(_root_from_above(excess, guess, math.log1p(TOLERANCE)))


def steps_within(
    epsilon: float, delta: float, noise_multiplier: float, sampling_rate: float, near: int = 1
) -> int:
    """The largest number of iterations that are (ε, δ)-private, at most ten million.

    Args:
        epsilon: The ε that must not be exceeded.
        delta: The δ of the guarantee.
        noise_multiplier: Standard deviation of the noise over the clipping norm.
        sampling_rate: The probability that an iteration uses a sample; 1 uses all.
        near: A number where the search begins; the closer, the sooner it ends.
    """

    def is_within(steps: int) -> bool:
        spent = sampled_gaussian_epsilon(noise_multiplier, sampling_rate, steps, delta)
        return spent <= epsilon

    low, high, stride = 0, MOST_STEPS + 1, 1
    middle = min(max(near, 1), MOST_STEPS)
    while high - low > 1:
        if is_within(middle):
            low = middle
            middle = low + stride if high > MOST_STEPS else (low + high) // 2
        else:
            high = middle
            middle = high - stride if low == 0 else (low + high) // 2
        stride *= 2
        middle = min(max(middle, low + 1), high - 1)
    return low


def _root_from_above(excess: Callable[[float], float], guess: float, tolerance: float) -> float:
    """Where a falling function is at most zero, at most `tolerance` above its root."""
    low, above = guess, excess(guess)
    high, below = low, above
    stride = 0.05
    # ε falls at least about as fast as 1/σ: a step of log ε, and a little more, crosses the root.
    while below > 0:
        if high > LARGEST:
            raise Misuse(
                "No amount of noise can be shown to be enough: delta is lost in rounding.",
                "Give a larger delta, e.g. 1e-9, fewer steps, or a larger epsilon.",
            )
        low, above = high, below
        high += min(below, 1.0) + stride
        below, stride = excess(high), 2 * stride
    while above <= 0:
        high, below = low, above
        low -= min(-above, 1.0) + stride
        above, stride = excess(low), 2 * stride
    tries = 0
    while high - low > tolerance:
        tries += 1
        x = (low + high) / 2
        # Every fourth is a bisection, in case interpolation does not help.
        if math.isfinite(above - below) and tries % 4:
            root = low + (high - low) * above / (above - below)
            # Beyond the root by less than the tolerance, so that the other end comes close to it.
            beyond = tolerance / 3 if high - root > root - low else -tolerance / 3
            x = min(max(root + beyond, low + tolerance / 3), high - tolerance / 3)
        value = excess(x)
        if value > 0:
            low, above = x, value
        else:
            high, below = x, value
    return high
