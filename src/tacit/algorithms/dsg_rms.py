"""DSG-RMS: diffusion with random matrix steps and protection vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.algorithms.diffusion import REQUIRES, ModelState, adapt
from tacit.algorithms.dual_protection import DualProtection
from tacit.algorithms.tolerance import Tolerance, refused
from tacit.core.here import Here
from tacit.privacy.protection import mix_protected


@dataclass(frozen=True)
class DSGRMS(DualProtection):
    """Dually protected diffusion (dual-protection paper, eq. 5).

    ψᵢ  = wᵢ − γ Mᵢ ∇Jᵢ(wᵢ)
    ψᵢᶜ = ψᵢ + (τ/√L) ‖wᵢ‖ 1
    wᵢ⁺ = Σⱼ aᵢⱼ ψⱼᶜ − ψᵢᶜ + ψᵢ

    Only ψᶜ is sent. The steady state depends on the variance of M, not on τ (Remark 3).

    Args:
        lr: Step size γ, a number or a schedule.
        matrix: Distribution of the random matrices M.
        protection: The protection vector; (τ/√L) ‖w‖ 1 above is the norm vector.
        weight_decay: ω, for the objective J + (ω/2)‖w‖².
    """

    name: ClassVar[str] = "dsg-rms"
    paper: ClassVar[str] = "Dual Privacy Protection, section 4.1, eq. 5"
    known_as: ClassVar[str] = "adapt-then-combine D-PSGD with random matrix step sizes"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    tolerates: ClassVar[Tolerance] = refused(
        "Theorem 1 bounds the protection vector for one combination matrix"
    )
    protects: ClassVar[str] = (
        "model, by a shift that averaging does not remove; gradient in part, by a secret matrix"
    )
    theorem: ClassVar[Literal[1, 2] | None] = 1

    def start(self, here: Here) -> ModelState:
        return ModelState(here.theta0)

    def step(self, s: ModelState, here: Here) -> ModelState:
        psi = adapt(s.theta, here, self.lr, self.matrix, self.weight_decay)
        shift = self.protection.vector("c", s.theta, here)
        return ModelState(mix_protected("psi", psi, shift, here))
