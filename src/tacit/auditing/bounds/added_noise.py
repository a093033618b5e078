"""Bounds from added noise: y = S G + N ξ, where S G is all that is seen of a victim's gradients.

G [T, P] are the gradients, Δ the sensitivity of each, D the standard deviations of the noise ξ.

    Laplace    ε = Σₜ εₜ, εₜ = ‖D⁻¹Lₜ‖₁ √2 Δ, for any L with N L = S: noise shifted by L·dG hides
               the change. If no noise is shifted for two gradients, the loss is that of T Laplace
               mechanisms in turn: ε(δ) is composed from their loss distributions
    Gaussian   ε(δ) of a Gaussian mechanism with μ² = Δ² min(T λ_max(F), Σₜₛ |Fₜₛ|),
               F = Sᵀ(N D² Nᵀ)⁺S

Both hold for gradients that depend on earlier messages: the outputs are the same in both worlds, so
everything computed from them is too (for Gaussian noise: Denisov et al. 2022). For Laplace noise:
given the outputs y, the noise of the two worlds differs by L·dG(y), where dGₜ depends on outputs
before gradient t alone. S dG(y) is therefore triangular in y, the map from one noise to the other
preserves volume, det(I + L ∂dG/∂y N) = det(I + S ∂dG/∂y) = 1, and the ratio of densities is that of
the shifted noise. Noise with another distribution than the bound's is treated as known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from tacit.auditing.bounds.secret_rows import NoBound, normalized
from tacit.auditing.symbolic.linear_knowledge import Combination
from tacit.auditing.symbolic.row_space import Matrix
from tacit.core.noise import Gaussian, Laplace, Noise
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.laplace import ASSUMPTIONS as LAPLACE_ASSUMPTIONS
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.privacy.clipping import Clip
from tacit.privacy.interpretation import VACUOUS

NO_GUARANTEE = "no differential-privacy guarantee"
IDEAL_NOISE = (
    "Noise is ideal: real numbers. Noise in floating point has gaps that give data away (Mironov "
    "2012), so this is no guarantee for an implementation."
)
# Rows have noise of size one. Combinations with less than this of it count as free of noise.
NOISELESS = 1e-10
# Part of a gradient's column that noise may leave uncovered, relative to its size: rounding.
COVERED = 1e-12
# Shift of one noise term for a gradient, relative to the largest, that is rounding.
SHIFTED = 1e-12
# Most gradients whose loss distributions are composed, and most of different size.
MOST_COMPOSED = 100_000
MOST_DISTINCT = 40
# Entries of N up to which a linear program finds the least shift; above, least squares is used.
LARGEST_PROGRAM = 100_000
VACUOUS_REMARK = ", which is vacuous: it protects nothing"


@dataclass(frozen=True)
class Bound:
    """An upper bound on ε at δ, and the reason for it; ε is infinite without a guarantee."""

    epsilon: float
    delta: float  # 0 for a pure guarantee
    why: str
    assumptions: tuple[str, ...] = ()
    combination: Combination | None = None  # the one without noise, if that is the reason

    @classmethod
    def none(cls, why: str, combination: Combination | None = None) -> Bound:
        return cls(math.inf, 0.0, why, combination=combination)

    def as_dict(self) -> dict[str, Any]:
        return {
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
            "why": self.why,
            "assumptions": list(self.assumptions),
        }

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return NO_GUARANTEE
        return f"ε = {self.epsilon:.4g}" + (f" at δ = {self.delta:g}" if self.delta else "")

    @property
    def statement(self) -> str:
        """The bound with what a reader must know to judge it."""
        ideal = "for ideal real-valued noise, " if IDEAL_NOISE in self.assumptions else ""
        vacuous = VACUOUS_REMARK if VACUOUS <= self.epsilon < math.inf else ""
        return f"{ideal}{self}{vacuous}"


def fisher_information(signal: Matrix, noise: Matrix, covered: float) -> Matrix | None:
    """F = Sᵀ(N Nᵀ)⁺S of normalized rows; None if a combination has signal but no noise.

    Args:
        signal: S [rows, T].
        noise: N [rows, terms], each term of standard deviation one.
        covered: Part of a column of S that noise may leave uncovered, relative to its size.
    """
    left, sizes, _ = _singular(noise)
    allowed = covered * np.linalg.norm(signal, axis=0)
    if (np.linalg.norm(_uncovered(signal, left), axis=0) > allowed).any():
        return None
    white = (left.T @ signal) / sizes[:, None]
    fisher: Matrix = white.T @ white
    return fisher


def _uncovered(signal: Matrix, basis: Matrix) -> Matrix:
    """The part of S orthogonal to columns of a basis, in two passes against cancellation."""
    rest = signal - basis @ (basis.T @ signal)
    return np.asarray(rest - basis @ (basis.T @ rest))


def noiseless_combination(signal: Matrix, noise: Matrix) -> Matrix | None:
    """A combination [rows] of normalized S and N without noise but with a gradient, if any."""
    left, _, _ = _singular(noise)
    uncovered = _uncovered(signal, left)
    sizes = np.linalg.norm(uncovered, axis=0) / np.maximum(np.linalg.norm(signal, axis=0), 1e-300)
    worst = int(np.argmax(sizes))
    if sizes[worst] <= COVERED:
        return None
    combination: Matrix = uncovered[:, worst] / np.linalg.norm(uncovered[:, worst])
    return combination


@dataclass(frozen=True, eq=False)
class NoiseLoss:
    """What one release costs, whose gradients are covered by noise of one kind.

    Releases in turn, each from a state that earlier messages determine, add up: see `total_bound`.
    """

    gradients: int
    mu: float  # of the equivalent Gaussian mechanism; infinite without one
    ratios: Matrix  # ε of each gradient under Laplace noise; infinite without it
    disjoint: bool  # whether no Laplace noise is shifted for two gradients


def noise_loss(clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise]) -> NoiseLoss:
    """What messages cost in which noise is added to gradients.

    Args:
        clip: How gradients are clipped; it gives their sensitivity.
        signal: S [rows, T].
        noise: N [rows, terms].
        laws: Distribution of each noise term.

    Raises:
        NoBound: Noise of neither kind covers all gradients.
    """
    ratios, disjoint, no_laplace = _laplace(clip, signal, noise, laws)
    mu, no_gaussian = _gaussian(clip, signal, noise, laws)
    if no_laplace and no_gaussian:
        raise NoBound("; ".join(dict.fromkeys((no_laplace, no_gaussian))))
    return NoiseLoss(signal.shape[1], mu, ratios, disjoint)


def total_bound(losses: list[tuple[NoiseLoss, int]], clip: Clip, delta: float) -> Bound:
    """The smaller of the bounds from Laplace and from Gaussian noise on releases in turn.

    Args:
        losses: The releases, and how often each is made.
        clip: How gradients are clipped.
        delta: δ of the bound, where it is not pure.

    Raises:
        NoBound: Noise of neither kind covers all releases.
    """
    count = sum(loss.gradients * times for loss, times in losses)
    each = f"sensitivity {clip.sensitivity:g} of each of {count} gradients"
    mu = math.sqrt(sum(times * loss.mu**2 for loss, times in losses))
    pure = sum(times * float(loss.ratios.sum()) for loss, times in losses)
    if math.isinf(mu) and math.isinf(pure):
        raise NoBound("noise of one kind does not cover all gradients of the victim")
    gaussian = gaussian_epsilon(delta, mu)
    bounds = [
        Bound(gaussian, delta, f"Gaussian noise, {each}: μ = {mu:.4g}", (IDEAL_NOISE,)),
    ]
    assumptions = (IDEAL_NOISE, LAPLACE_ASSUMPTIONS)
    why = f"Laplace noise, L1 {each}"
    bounds.append(Bound(pure, 0.0, why, assumptions))
    disjoint = all(loss.disjoint for loss, _ in losses)
    if math.isfinite(pure) and 1 < count <= MOST_COMPOSED and disjoint:
        ratios = np.concatenate([loss.ratios for loss, _ in losses])
        times = np.concatenate([np.full(len(loss.ratios), t) for loss, t in losses])
        composed = _composed_laplace(ratios, times).epsilon(delta)
        if composed < 0.999 * pure:
            why = f"{why}; pure ε = {pure:.4g}, with δ by composing loss distributions"
            bounds.append(Bound(composed, delta, why, assumptions))
    return min(bounds, key=lambda bound: bound.epsilon)


def _laplace(
    clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise]
) -> tuple[Matrix, bool, str]:
    """ε of each gradient, whether their shifts are disjoint, and why there is none."""
    scaled, shifted = _scaled(clip, signal, noise, laws, Laplace)
    none = np.full(signal.shape[1], np.inf)
    if not shifted.shape[1]:
        return none, False, "there is no Laplace noise"
    if clip.norm != "l1":
        return none, False, "Laplace noise needs gradients clipped in the L1 norm"
    if noiseless_combination(scaled, shifted) is not None:
        return none, False, "Laplace noise does not cover all gradients of the victim"
    # A standard deviation of one is a scale of 1/√2.
    shifts = np.abs(_shifts(shifted, scaled)) * math.sqrt(2)
    return shifts.sum(axis=0), _is_disjoint(shifts), ""


def _is_disjoint(shifts: Matrix) -> bool:
    """Whether no noise term is shifted for two gradients."""
    return bool(((shifts > SHIFTED * shifts.max(initial=0.0)).sum(axis=1) <= 1).all())


def _composed_laplace(ratios: Matrix, times: Matrix) -> PrivacyLoss:
    """The loss of Laplace mechanisms in turn, each made so many times."""
    # Rounded up: to nine digits, so that those that differ by rounding are equal; to two digits if
    # there are many.
    rounded = _rounded_up(ratios, 30)
    if len(np.unique(rounded)) > MOST_DISTINCT:
        rounded = _rounded_up(ratios, 7)
    total = PrivacyLoss.none()
    for ratio in np.unique(rounded).tolist():
        count = int(times[rounded == ratio].sum())
        total = total.compose(PrivacyLoss.laplace(ratio).self_compose(count))
    return total


def _rounded_up(numbers: Matrix, bits: int) -> Matrix:
    mantissa, exponent = np.frexp(numbers)
    rounded: Matrix = np.ldexp(np.ceil(np.ldexp(mantissa, bits)), exponent - bits)
    return rounded


def _gaussian(clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise]) -> tuple[float, str]:
    """μ of the equivalent Gaussian mechanism, and why there is none."""
    scaled, added = _scaled(clip, signal, noise, laws, Gaussian)
    if not added.shape[1]:
        return math.inf, "there is no Gaussian noise"
    fisher = fisher_information(scaled, added, COVERED)
    if fisher is None:
        return math.inf, "Gaussian noise does not cover all gradients of the victim"
    # An L1 bound on gradients is an L2 bound too.
    most = len(fisher) * float(np.linalg.eigvalsh(fisher).max())
    return math.sqrt(min(most, float(np.abs(fisher).sum()))), ""


def _scaled(
    clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise], kind: type[Noise]
) -> tuple[Matrix, Matrix]:
    """S Δ, and the columns of N with noise of one kind times its deviation, rows normalized."""
    use = [k for k, law in enumerate(laws) if type(law) is kind]
    deviations = np.sqrt([laws[k].variance for k in use])
    return normalized(signal * clip.sensitivity, noise[:, use] * deviations)


def _shifts(noise: Matrix, signal: Matrix) -> Matrix:
    """L [terms, T] with N L = S and columns that are short in the L1 norm."""
    left, sizes, right = _singular(noise)
    shifts: Matrix = right.T @ ((left.T @ signal) / sizes[:, None])
    if noise.size > LARGEST_PROGRAM:
        return shifts
    equations = np.concatenate((right, -right), axis=1)
    for column in range(signal.shape[1]):
        wanted = (left.T @ signal[:, column]) / sizes
        # Solved in units of the result: solvers have absolute tolerances.
        unit = float(np.abs(wanted).max())
        if unit == 0:
            continue
        solved = optimize.linprog(
            np.ones(equations.shape[1]), A_eq=equations, b_eq=wanted / unit, method="highs"
        )
        if solved.x is None:
            continue
        plus, minus = np.split(solved.x * unit, 2)
        # The program's own error is made up by the shortest shift of the rest.
        error = wanted - right @ (plus - minus)
        shift = plus - minus + right.T @ error
        if np.abs(shift).sum() < np.abs(shifts[:, column]).sum():
            shifts[:, column] = shift
    return shifts


def _singular(noise: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Singular vectors and values of N that are not zero."""
    if not noise.size:
        return np.zeros((len(noise), 0)), np.zeros(0), np.zeros((0, noise.shape[1]))
    left, sizes, right = np.linalg.svd(noise, full_matrices=False)
    kept = sizes > NOISELESS
    return left[:, kept], sizes[kept], right[kept]
