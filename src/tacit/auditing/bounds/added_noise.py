"""Bounds by added noise: y = S G + N ξ, all that is seen of a victim's gradients G [T, P] with the noise on it.

    Laplace    ε = Σₜ ‖D⁻¹Lₜ‖₁ √2 Δ for any L with N L = S, D the deviations: noise shifted by L·dG hides the change
    Gaussian   ε(δ) of a Gaussian mechanism with μ² = Δ² min(T λ_max(F), Σₜₛ |Fₜₛ|),  F = Sᵀ(N D² Nᵀ)⁺S

Both hold for gradients that depend on what was said before: the outputs are the same in both worlds, so what was made
of them is too (for Gaussian noise: Denisov et al. 2022). Noise of another law than the bound's is given away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from tacit.auditing.symbolic.echelon import Matrix
from tacit.core.noise import Gaussian, Laplace, Noise
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.laplace import ASSUMPTIONS as LAPLACE_ASSUMPTIONS
from tacit.privacy.clipping import Clip

SILENT = (
    1e-9  # singular values of N below this, relative to the largest, are combinations without noise
)
COVERED = 1e-7  # what may be left of a gradient's column without noise, relative to its size
LARGEST_PROGRAM = (
    100_000  # entries of N up to which the least shift is sought; beyond, a short one is taken
)


@dataclass(frozen=True)
class Bound:
    """ε at δ, and why; infinite if there is none."""

    epsilon: float
    delta: float
    why: str
    assumptions: tuple[str, ...] = ()


def uncovered(signal: Matrix, noise: Matrix) -> Matrix | None:
    """A combination [rows] in which noise cancels and a gradient does not; None if there is none."""
    left = _directions(noise)[0]
    bare = signal - left @ (left.T @ signal)
    sizes = np.linalg.norm(bare, axis=0) / np.maximum(np.linalg.norm(signal, axis=0), 1e-300)
    worst = int(np.argmax(sizes))
    if sizes[worst] <= COVERED:
        return None
    found: Matrix = bare[:, worst] / np.linalg.norm(bare[:, worst])
    return found


def least_bound(
    clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise], delta: float
) -> Bound:
    """The smaller of the bounds of the two laws."""
    bounds = [_laplace(clip, signal, noise, laws), _gaussian(clip, signal, noise, laws, delta)]
    return min(bounds, key=lambda bound: bound.epsilon)


def _laplace(clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise]) -> Bound:
    use = [k for k, law in enumerate(laws) if type(law) is Laplace]
    if not use:
        return Bound(math.inf, 0.0, "there is no Laplace noise")
    if clip.norm != "l1":
        return Bound(math.inf, 0.0, "Laplace noise needs gradients clipped in the L1 norm")
    scaled = noise[:, use] * np.sqrt([laws[k].variance for k in use])
    if uncovered(signal, scaled) is not None:  # or by next to nothing beside the rest
        return Bound(math.inf, 0.0, "Laplace noise does not cover all of its gradients")
    shifts = _shifts(scaled, signal)
    epsilon = float(np.abs(shifts).sum()) * math.sqrt(2) * clip.sensitivity
    why = (
        f"Laplace noise, L1 sensitivity {clip.sensitivity:g} of each of {signal.shape[1]} gradients"
    )
    return Bound(epsilon, 0.0, why, (LAPLACE_ASSUMPTIONS,))


def _gaussian(clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise], delta: float) -> Bound:
    use = [k for k, law in enumerate(laws) if type(law) is Gaussian]
    if not use:
        return Bound(math.inf, 0.0, "there is no Gaussian noise")
    scaled = noise[:, use] * np.sqrt([laws[k].variance for k in use])
    if uncovered(signal, scaled) is not None:
        return Bound(math.inf, 0.0, "Gaussian noise does not cover all of its gradients")
    left, sizes, _ = _directions(scaled)
    white = (left.T @ signal) / sizes[:, None]
    fisher = white.T @ white
    terms = len(fisher)
    squared = min(terms * float(np.linalg.eigvalsh(fisher).max()), float(np.abs(fisher).sum()))
    mu = clip.sensitivity * math.sqrt(squared)  # an L1 bound is an L2 bound too
    why = f"Gaussian noise, sensitivity {clip.sensitivity:g} of each of {terms} gradients: μ = {mu:.4g}"
    return Bound(gaussian_epsilon(delta, mu), delta, why, ("noise from the continuous law",))


def _shifts(noise: Matrix, signal: Matrix) -> Matrix:
    """L [n, T] with N L = S, its columns short in the L1 norm."""
    left, sizes, right = _directions(noise)
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


def _directions(noise: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Singular vectors and values of N that are not zero."""
    if not noise.size:
        return np.zeros((len(noise), 0)), np.zeros(0), np.zeros((0, noise.shape[1]))
    left, sizes, right = np.linalg.svd(noise, full_matrices=False)
    kept = sizes > SILENT * sizes.max()
    return left[:, kept], sizes[kept], right[kept]
