"""Privacy-loss distributions: an upper bound on the loss of many uses of noise together.

For a pair of output laws (P, Q) the loss is L = log dP/dQ(y), y ~ P, and (Sommer, Meiser &
Mohammadi 2019)

    δ(ε) = P(L = ∞) + E[(1 − e^{ε − L})₊];   losses of independent uses add: their laws convolve

The law of L is kept on a uniform grid. Every approximation is pessimistic: losses by `grid`, mass
beyond the window goes to L = ∞ (or up, at the lower end), and so does an estimate of the rounding
of the Fourier transform. The pairs here are symmetric (exchanging P and Q does not change δ), so
one law of L serves both directions; `sampled_gaussian` needs two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft

from tacit.core.checks import check_count
from tacit.privacy.accounting.checks import check_delta, check_epsilon
from tacit.privacy.accounting.grid import grid_step, spread_atoms, spread_cells, trim, window
from tacit.privacy.accounting.laplace import sum_pair, sum_pure_epsilon
from tacit.privacy.accounting.noise_pair import Array, NoisePair

# Steps of a grid in the spread of the loss, unless a step is given.
CELLS_PER_SPREAD = 64
# The longest grid; a longer one is made coarser.
CELLS = 2**20
# Mass that one composition may move to L = ∞.
CUT = 1e-16
# The shortest shift on a grid, in units of the noise.
SMALLEST = 1e-8
ROUNDING = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """The distribution of the privacy loss.

    Args:
        first: The first loss, in steps.
        step: The step of the grid, a power of two.
        mass: The mass [m] at losses (first + i)·step.
        infinity: The mass at ∞.
        pure: No finite loss is above this.
    """

    first: int
    step: float
    mass: Array
    infinity: float = 0.0
    pure: float = math.inf

    @classmethod
    def none(cls) -> PrivacyLoss:
        """Nothing is released: the loss is 0."""
        return cls(0, 1.0, np.ones(1), pure=0.0)

    @classmethod
    def everything(cls) -> PrivacyLoss:
        """A release without noise: the loss is ∞."""
        return cls(0, 1.0, np.zeros(1), infinity=1.0)

    @classmethod
    def of_pair(cls, pair: NoisePair, step: float | None = None) -> PrivacyLoss:
        """The loss of additive noise with a symmetric log-concave law."""
        pure = pair.pure
        # Losses would vanish in rounding; a longer shift reveals more.
        if pair.shift < SMALLEST:
            pair = replace(pair, shift=SMALLEST, pure=max(pure, SMALLEST))
        lowest, largest = pair.loss(pair.shift + np.array([-1.0, 1.0]) * pair.reach)
        step = grid_step(pair.shift / CELLS_PER_SPREAD if step is None else step)
        low, last = math.floor(lowest / step), math.ceil(min(largest, pair.pure) / step)
        # Between the cells; the outermost cells are open.
        y = pair.crossing(np.arange(low + 1, last) * step)
        edges = np.concatenate([[-np.inf], y, [np.inf]])
        q = pair.mass(edges[:-1], edges[1:])
        p = pair.mass(edges[:-1] - pair.shift, edges[1:] - pair.shift)
        return cls._cut(low, step, spread_cells(p, q, low, step), 0.0, pure, tail=1e-20)

    @classmethod
    def laplace(cls, ratio: float, k: int = 1, step: float | None = None) -> PrivacyLoss:
        """The loss of k unknown Laplace(β) terms, under L1 sensitivity Δ = ratio·β."""
        pure = sum_pure_epsilon(ratio, k)
        if pure == 0 or pure == math.inf:
            return cls.none() if pure == 0 else cls.everything()
        if step is None:
            # The spread of the loss decreases as 1/√k.
            step = max(ratio, SMALLEST) / (CELLS_PER_SPREAD * math.sqrt(k))
        return cls.of_pair(sum_pair(ratio, k), step)

    def delta(self, epsilon: float) -> float:
        """An upper bound on δ(ε)."""
        check_epsilon(epsilon)
        if epsilon >= self.pure:
            return 0.0
        start = min(max(math.floor(epsilon / self.step) - self.first, 0), len(self.mass))
        above = (self.first + np.arange(start, len(self.mass))) * self.step
        kept = -np.expm1(np.minimum(epsilon - above, 0.0))
        return min(float((self.mass[start:] * kept).sum()) + self.infinity, 1.0)

    def epsilon(self, delta: float) -> float:
        """An upper bound on the smallest ε ≥ 0 with δ(ε) ≤ delta; ∞ where there is none."""
        check_delta(delta)
        if self.infinity > delta or delta == 0:
            return self.pure
        if self.delta(0.0) <= delta:
            return 0.0
        # δ at grid point low is too large, unless it is the first. At most the mass above a point
        # counts towards its δ.
        above = np.cumsum(self.mass[::-1]) + self.infinity
        low, high = max(self.first, 0), self.first + len(self.mass)
        high -= max(int(np.searchsorted(above, delta)) - 1, 0)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.delta(middle * self.step) <= delta else (middle, high)
        # All the mass above the answer; δ = T − e^{ε−b} S up to b.
        over = self.mass[max(high - self.first, 0) :]
        discount = float((over * np.exp(-np.arange(len(over)) * self.step)).sum())
        excess = float(over.sum()) + self.infinity - delta
        exact = high * self.step
        if excess > 0 and discount > 0:
            exact += math.log(excess / discount)
        return min(max(exact, low * self.step), high * self.step, self.pure)

    def regrid(self, step: float) -> PrivacyLoss:
        """The same law on another grid: exact on a finer one, pessimistic on a coarser one."""
        if step == self.step:
            return self
        losses: Array = (self.first + np.arange(len(self.mass), dtype=np.float64)) * self.step
        first, at = spread_atoms(losses, self.mass, step)
        return self._cut(first, step, at, self.infinity, self.pure, tail=0.0)

    def compose(self, other: PrivacyLoss) -> PrivacyLoss:
        """The loss of both releases, with independent noise; the second may depend on the first."""
        step = min(self.step, other.step)
        width = len(self.mass) * self.step + len(other.mass) * other.step
        while width / step > CELLS:
            step *= 2
        one, two = self.regrid(step), other.regrid(step)
        at = _convolve(one.mass, two.mass)
        error = len(at) * ROUNDING * math.log2(len(at) + 1)
        error *= _norm(one.mass) * _norm(two.mass) if len(at) > 1 else 0.0
        infinity = one.infinity + two.infinity + error
        return self._cut(one.first + two.first, step, at, infinity, self.pure + other.pure)

    def self_compose(self, count: int, cut: float | None = None) -> PrivacyLoss:
        """The loss of `count` such releases, with independent noise.

        About 1e-15 per use is added to δ for rounding; for a smaller δ only the pure bound remains.

        Args:
            count: The number of releases.
            cut: Mass that may move to L = ∞ (default: 1e-16). More makes the grid shorter.
        """
        check_count("count", count, at_least=0)
        if count <= 1 or not self.mass.any():
            return self if count else PrivacyLoss.none()
        cut = CUT if cut is None else cut
        low, high = window(self.mass, count, cut)
        cells = fft.next_fast_len(max(high - low + 1, len(self.mass)), real=True)
        if cells > CELLS:
            half = self.self_compose(count // 2, cut)
            whole = half.compose(half)
            return whole.compose(self) if count % 2 else whole
        # Cyclic of length `cells`: mass above the window wraps down, for which the cut is added;
        # mass below it wraps up.
        at = fft.irfft(fft.rfft(self.mass, cells) ** count, cells)
        at = np.maximum(np.roll(at, -(low % cells)), 0.0)
        error = (2 * count + math.log2(cells + 1)) * ROUNDING * math.sqrt(cells)
        error *= _norm(at)
        infinity = count * self.infinity + cut + (error if cells > 1 else 0.0)
        first = count * self.first + low
        return self._cut(first, self.step, at, infinity, count * self.pure, tail=cut)

    @classmethod
    def _cut(
        cls, first: int, step: float, at: Array, infinity: float, pure: float, tail: float = CUT
    ) -> PrivacyLoss:
        """The law without up to `tail` of mass at each end; what is above goes to ∞."""
        first, at, lost = trim(first, at, tail)
        return cls(first, step, at, min(infinity + lost, 1.0), pure)


def _convolve(one: Array, two: Array) -> Array:
    """The masses of a sum, with rounding below zero removed."""
    length = len(one) + len(two) - 1
    # A single point only shifts and scales: no rounding.
    if min(len(one), len(two)) == 1:
        return one * two
    cells = fft.next_fast_len(length, real=True)
    product = fft.rfft(one, cells) * fft.rfft(two, cells)
    return np.maximum(fft.irfft(product, cells)[:length], 0.0)


# Not BLAS: for long vectors its threads wait for each other, on a busy machine for milliseconds.
def _norm(values: Array) -> float:
    return math.sqrt(float((values * values).sum()))
