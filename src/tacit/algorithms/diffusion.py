"""Diffusion, which DSG, exact diffusion and their protected versions share.

    ψᵢ = wᵢ − γ ∇Jᵢ(wᵢ)            local update
    wᵢ⁺ = Σⱼ aᵢⱼ ψⱼ                combination

(Dual-protection paper, section 3.1; Sayed 2022.) DSG converges to a neighbourhood of the optimum
that grows with γ and with the distance between the clients' optima. Exact diffusion adds the change
that the last combination made, φ = ψ + w − ψ⁻, and converges to the optimum. It needs a positive
definite A.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.core.here import Here
from tacit.core.schedules import Rate
from tacit.privacy.matrix_step import MatrixStep

REQUIRES = ("connected", "doubly stochastic", "symmetric", "primitive")
REQUIRES_EXACT = (*REQUIRES, "positive definite")
EXACT_MIXING = (
    "it adds the change that the last combination made, which corrects its bias only if the "
    "combination is the same linear one each time"
)


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
    """ψ = w − γ M∇J(w); M = I without a random matrix."""
    direction = here.grad(theta)
    if matrix is not None:
        direction = matrix.times(direction, here)
    return theta - here.rate(lr) * direction
