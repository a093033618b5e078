"""Diffusion: the part that DSG, exact diffusion and their protected versions have in common.

    ψᵢ = wᵢ − γ ∇Jᵢ(wᵢ)            local update
    wᵢ⁺ = Σⱼ aᵢⱼ ψⱼ                combination

(dual-protection paper, section 3.1; Sayed 2022.) With the same γ for all, DSG ends near the optimum, at a distance
that grows with γ and with how much the clients' optima differ. Exact diffusion corrects ψ by what the last
combination did to it, φ = ψ + w − ψ⁻, and ends at the optimum; it needs a positive definite A.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.core.here import Here
from tacit.core.schedules import Rate
from tacit.privacy.matrix_step import MatrixStep

REQUIRES = ("connected", "doubly stochastic", "symmetric", "primitive")
REQUIRES_EXACT = (*REQUIRES, "positive definite")


@dataclass(frozen=True)
class ModelState:
    """The model of each hosted client [n, P]."""

    theta: Tensor


@dataclass(frozen=True)
class ExactDiffusionState:
    """Model and last local update ψ of each hosted client, both [n, P]."""

    theta: Tensor
    psi: Tensor


def adapt(theta: Tensor, here: Here, lr: Rate, matrix: MatrixStep | None = None) -> Tensor:
    """ψ = w − γ M∇J(w), a new tensor; M = I if there is no random matrix."""
    direction = here.grad(theta)
    if matrix is not None:
        direction = matrix.times(direction, here)
    return theta - here.rate(lr) * direction
