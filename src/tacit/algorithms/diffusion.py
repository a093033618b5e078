"""Diffusion, which DSG, exact diffusion and their protected versions share.

    ψᵢ = wᵢ − γ ∇Jᵢ(wᵢ)            local update
    wᵢ⁺ = Σⱼ aᵢⱼ ψⱼ                combination

(Dual-protection paper, section 3.1; Sayed 2022.) DSG converges to a neighbourhood of the optimum
that grows with γ and with the distance between the clients' optima. Exact diffusion adds the change
that the last combination made, φ = ψ + w − ψ⁻, and converges to the optimum. It needs a positive
definite A.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.local_optimizer import check_weight_decay, decayed
from tacit.algorithms.tolerance import ALL, Tolerance
from tacit.core.here import Here
from tacit.core.noise import Gaussian, Noise, check_noise
from tacit.core.schedules import Rate, check_rate
from tacit.privacy.matrix_step import MatrixStep

REQUIRES = ("connected", "doubly stochastic", "symmetric", "primitive")
REQUIRES_EXACT = (*REQUIRES, "positive definite")
UNSUPPORTED_EXACT = {
    "optimizer": (
        "Adam is not linear in gradients: where its steps sum to zero the gradients do not, so the "
        "limit would not be the optimum"
    )
}
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
    """Model, last local update ψ and momentum, if any, of each hosted client, all [n, P]."""

    theta: Tensor
    psi: Tensor
    momentum: Tensor | None = None


@dataclass(frozen=True)
class NoisyDiffusion(Algorithm):
    """Diffusion with own noise on every message, in either of two ways: PD-LMS and MDSG."""

    requires: ClassVar[tuple[str, ...]] = REQUIRES
    tolerates: ClassVar[Tolerance] = ALL
    unsupported: ClassVar[Mapping[str, str]] = {
        "momentum": (
            "it would repeat a gradient in all later messages, each with noise made for one "
            "gradient"
        ),
        "optimizer": "its noise is made for gradients, and Adam is not linear in them",
    }
    protects: ClassVar[str] = (
        "the gradient, by own noise that costs accuracy; not the model, which averaging reveals"
    )

    lr: Rate
    noise: Noise = Gaussian(0.01)
    weight_decay: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_noise(self.noise)
        check_weight_decay(self.weight_decay)

    def start(self, here: Here) -> ModelState:
        return ModelState(here.theta0)


def adapt(
    theta: Tensor,
    here: Here,
    lr: Rate,
    matrix: MatrixStep | None = None,
    weight_decay: float = 0.0,
) -> Tensor:
    """ψ = w − γ M(∇J(w) + ω w); M = I without a random matrix."""
    direction = decayed(here.grad(theta), theta, weight_decay)
    if matrix is not None:
        direction = matrix.times(direction, here)
    return theta - here.rate(lr) * direction
