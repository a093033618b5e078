"""Privacy-loss distributions: an upper bound on the loss of many uses of noise together.

For a pair of output laws (P, Q) the loss is L = log dP/dQ(y), y ~ P, and (Sommer, Meiser &
Mohammadi 2019)

    δ(ε) = P(L = ∞) + E[(1 − e^{ε − L})₊];   losses of independent uses add: their laws convolve

The law of L is kept on a uniform grid, and every approximation is pessimistic. A part of the output
space with masses (p, q) under (P, Q) and losses in [a, b], b = a + h, is replaced by

    p_b = (p − e^a q) / (1 − e^{−h}) at loss b,   p_a = p − p_b at loss a

which keeps both masses. The new pair is at least as easy to distinguish as the true one: its δ, as
a function of e^ε, is the chord of the true convex one between grid points (Doroshenko et al. 2022,
"connect the dots"). Rounding every loss up would be pessimistic too, but off by h/2 for every use,
where this is off by O(h²). Steps are powers of two: losses are exact numbers, and a grid is part of
every finer one. Mass beyond the window goes to L = ∞ (or up, at the lower end), and so does an
estimate of the rounding of the Fourier transform. The pairs here are symmetric (exchanging P and Q
does not change δ), so one law of L serves both directions; `sampled_gaussian` needs two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from tacit.core.checks import check_count, check_positive
from tacit.privacy.accounting.checks import check_delta, check_epsilon
from tacit.privacy.accounting.laplace import sum_pair, sum_pure_epsilon
from tacit.privacy.accounting.noise_pair import LARGEST_EXPONENT, Array, NoisePair

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


def grid_step(most: float) -> float:
    """The largest power of two that is at most this."""
    check_positive("The step of a grid of losses", most)
    return 2.0 ** max(math.floor(math.log2(most)), -500)


def spread_cells(p: Array, q: Array, first: int, step: float) -> Array:
    """Masses [m + 1] at grid points first, first + 1, … from the cells between them.

    Args:
        p: Masses of the m cells under P.
        q: Masses of the m cells under Q.
        first: The first grid point, in steps.
        step: The step of the grid.
    """
    a = (first + np.arange(len(p))) * step
    # A number below e^a moves more mass up, which is pessimistic.
    scale = np.exp(np.minimum(a, LARGEST_EXPONENT))
    up = np.clip((p - scale * q) / -math.expm1(-step), 0.0, p)
    at = np.zeros(len(p) + 1)
    at[:-1] += p - up
    at[1:] += up
    return at


def spread_atoms(losses: Array, p: Array, step: float) -> tuple[int, Array]:
    """First grid point and masses from single losses ℓ of mass p under P, so e^{−ℓ} p under Q."""
    below = np.floor(losses / step)
    up = p * np.clip(np.expm1(below * step - losses) / math.expm1(-step), 0.0, 1.0)
    index: NDArray[np.int64] = below.astype(np.int64)
    first = int(index.min())
    index -= first
    at: Array = np.bincount(index, p - up, minlength=int(index.max()) + 2).astype(np.float64)
    at[1:] += np.bincount(index, up, minlength=len(at) - 1)
    return first, at


def trim(first: int, at: Array, tail: float) -> tuple[int, Array, float]:
    """Cut up to `tail` of mass from each end: the lower part moves up, the upper is returned."""
    positive = np.flatnonzero(at > 0)
    if len(positive) == 0:
        return 0, np.zeros(1), 0.0
    first, at = first + int(positive[0]), at[positive[0] : positive[-1] + 1]
    above = int(np.searchsorted(np.cumsum(at[::-1]), tail, side="right"))
    end = max(len(at) - above, 1)
    lost = float(at[end:].sum())
    at = at[:end]
    start = min(int(np.searchsorted(np.cumsum(at), tail, side="right")), len(at) - 1)
    kept = at[start:].copy()
    kept[0] += at[:start].sum()
    return first + start, kept, lost


def window(at: Array, count: int, tail: float) -> tuple[int, int]:
    """Indices that a sum of `count` draws from `at` exceeds with probability ≤ tail on each side.

    Chernoff: P(S ≥ nm + t) ≤ tail for t = min over λ of (n log E e^{λ(X − m)} − log tail)/λ.
    """
    index = np.arange(len(at), dtype=np.float64)
    p = at / at.sum()
    mean = float((p * index).sum())
    deviation = math.sqrt(float((p * (index - mean) ** 2).sum()))
    last = count * (len(at) - 1)
    if deviation == 0:
        return round(count * mean), round(count * mean)
    need = -math.log(tail)

    def reach(sign: float) -> float:
        """The bound for the best λ, which is searched twice: widely, then nearby."""
        deviations = sign * (index - mean)
        # Rounding may leave no difference to the mean.
        longest = max(float(deviations.max()), deviation)

        def bound(rate: float) -> float:
            # Relative to the largest term; what would underflow is rounded up.
            terms = np.exp(np.maximum(rate * (deviations - longest), -600.0))
            log_moment = rate * longest + math.log(float((p * terms).sum()))
            return (count * log_moment + need) / rate

        # That of a Gaussian; and where one draw is likely to be the sum.
        usual, least = math.sqrt(2 * need / count) / deviation, need / (2 * longest)
        rates = np.geomspace(min(usual, least) / 4, 8 * usual, 12)
        bounds = [bound(rate) for rate in rates]
        best = int(np.argmin(bounds))
        near = np.geomspace(rates[max(best - 1, 0)], rates[min(best + 1, 11)], 7)
        return min(*bounds, *(bound(rate) for rate in near))

    low = max(math.floor(count * mean - reach(-1.0)), 0)
    return low, min(math.ceil(count * mean + reach(1.0)), last)


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
