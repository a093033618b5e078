"""Bounds from added noise: y = S G + N ξ, where S G is all that is seen of a victim's gradients.

G [T, P] are the gradients, Δ the sensitivity of each, D the standard deviations of the noise ξ.

    Laplace    ε = Σₜ ‖D⁻¹Lₜ‖₁ √2 Δ for any L with N L = S: noise shifted by L·dG hides the change
    Gaussian   ε(δ) of a Gaussian mechanism with μ² = Δ² min(T λ_max(F), Σₜₛ |Fₜₛ|),
               F = Sᵀ(N D² Nᵀ)⁺S

Both hold for gradients that depend on earlier messages: the outputs are the same in both worlds, so
everything computed from them is too (for Gaussian noise: Denisov et al. 2022). Noise with another
distribution than the bound's is treated as known to the adversary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from tacit.auditing.symbolic.linear_knowledge import Combination
from tacit.auditing.symbolic.row_space import Matrix
from tacit.core.noise import Gaussian, Laplace, Noise
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.laplace import ASSUMPTIONS as LAPLACE_ASSUMPTIONS
from tacit.privacy.clipping import Clip

NO_GUARANTEE = "no differential-privacy guarantee"
# Singular values of N below this, relative to the largest, are combinations without noise.
ZERO = 1e-9
# Part of a gradient's column that noise may leave uncovered, relative to its size.
COVERED = 1e-7
# Entries of N up to which a linear program finds the least shift; above, least squares is used.
LARGEST_PROGRAM = 100_000


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

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return NO_GUARANTEE
        return f"ε = {self.epsilon:.4g}" + (f" at δ = {self.delta:g}" if self.delta else "")


def noiseless_combination(signal: Matrix, noise: Matrix) -> Matrix | None:
    """A combination [rows] of S and N in which noise cancels and a gradient does not, if any."""
    left, _, _ = _singular(noise)
    uncovered = signal - left @ (left.T @ signal)
    sizes = np.linalg.norm(uncovered, axis=0) / np.maximum(np.linalg.norm(signal, axis=0), 1e-300)
    worst = int(np.argmax(sizes))
    if sizes[worst] <= COVERED:
        return None
    found: Matrix = uncovered[:, worst] / np.linalg.norm(uncovered[:, worst])
    return found


def noise_bound(
    clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise], delta: float
) -> Bound:
    """The smaller of the bounds from Laplace and from Gaussian noise.

    Args:
        clip: How gradients are clipped; it gives their sensitivity.
        signal: S [rows, T].
        noise: N [rows, terms].
        laws: Distribution of each noise term.
        delta: δ of the bound from Gaussian noise.
    """
    bounds = [_laplace(clip, signal, noise, laws), _gaussian(clip, signal, noise, laws, delta)]
    return min(bounds, key=lambda bound: bound.epsilon)


def _laplace(clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise]) -> Bound:
    scaled = _scaled(noise, laws, Laplace)
    if not scaled.shape[1]:
        return Bound.none("there is no Laplace noise")
    if clip.norm != "l1":
        return Bound.none("Laplace noise needs gradients clipped in the L1 norm")
    if noiseless_combination(signal, scaled) is not None:
        return Bound.none("Laplace noise does not cover all gradients of the victim")
    epsilon = float(np.abs(_shifts(scaled, signal)).sum()) * math.sqrt(2) * clip.sensitivity
    count = signal.shape[1]
    why = f"Laplace noise, L1 sensitivity {clip.sensitivity:g} of each of {count} gradients"
    return Bound(epsilon, 0.0, why, (LAPLACE_ASSUMPTIONS,))


def _gaussian(clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise], delta: float) -> Bound:
    scaled = _scaled(noise, laws, Gaussian)
    if not scaled.shape[1]:
        return Bound.none("there is no Gaussian noise")
    if noiseless_combination(signal, scaled) is not None:
        return Bound.none("Gaussian noise does not cover all gradients of the victim")
    left, sizes, _ = _singular(scaled)
    white = (left.T @ signal) / sizes[:, None]
    fisher = white.T @ white
    count = len(fisher)
    squared = min(count * float(np.linalg.eigvalsh(fisher).max()), float(np.abs(fisher).sum()))
    # An L1 bound on gradients is an L2 bound too.
    mu = clip.sensitivity * math.sqrt(squared)
    each = f"sensitivity {clip.sensitivity:g} of each of {count} gradients"
    why = f"Gaussian noise, {each}: μ = {mu:.4g}"
    return Bound(gaussian_epsilon(delta, mu), delta, why, ("noise is drawn from a continuous law",))


def _scaled(noise: Matrix, laws: list[Noise], kind: type[Noise]) -> Matrix:
    """The columns of N with noise of one kind, each times its standard deviation."""
    use = [k for k, law in enumerate(laws) if type(law) is kind]
    scaled: Matrix = noise[:, use] * np.sqrt([laws[k].variance for k in use])
    return scaled


def _shifts(noise: Matrix, signal: Matrix) -> Matrix:
    """L [terms, T] with N L = S and columns that are short in the L1 norm."""
    left, sizes, right = _singular(noise)
    shifts: Matrix = right.T @ ((left.T @ signal) / sizes[:, None])
    if noise.size > LARGEST_PROGRAM:
        return shifts
    equations = np.concatenate((right, -right), axis=1)
    for column in range(signal.shape[1]):
        wanted = (left.T @ signal[:, column]) / sizes
        solved = optimize.linprog(
            np.ones(equations.shape[1]), A_eq=equations, b_eq=wanted, method="highs"
        )
        if solved.x is None:
            continue
        plus, minus = np.split(solved.x, 2)
        error = np.linalg.norm(noise @ (plus - minus) - signal[:, column])
        if error <= COVERED * np.linalg.norm(signal[:, column]):
            shifts[:, column] = plus - minus
    return shifts


def _singular(noise: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Singular vectors and values of N that are not zero."""
    if not noise.size:
        return np.zeros((len(noise), 0)), np.zeros(0), np.zeros((0, noise.shape[1]))
    left, sizes, right = np.linalg.svd(noise, full_matrices=False)
    kept = sizes > ZERO * sizes.max()
    return left[:, kept], sizes[kept], right[kept]
