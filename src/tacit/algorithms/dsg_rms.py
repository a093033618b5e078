"""DSG-RMS: diffusion with random matrix steps and protection vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.algorithms.diffusion import REQUIRES, ModelState, adapt
from tacit.algorithms.dual_protection import DualProtection
from tacit.core.here import Here
from tacit.privacy.protection import mix_protected


@dataclass(frozen=True)
class DSGRMS(DualProtection):
    """Dually protected diffusion (dual-protection paper, eq. 5).

    ψᵢ  = wᵢ − γ Mᵢ ∇Jᵢ(wᵢ)
    ψᵢᶜ = ψᵢ + (τ/√L) ‖wᵢ‖ 1
    wᵢ⁺ = Σⱼ aᵢⱼ ψⱼᶜ − ψᵢᶜ + ψᵢ

    Only ψᶜ is sent. τ does not change where the run ends, the variance of M does (Remark 3).
    """

    name: ClassVar[str] = "dsg-rms"
    paper: ClassVar[str] = "Dual Privacy Protection, section 4.1, eq. 5"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = (
        "gradient and model, by a secret matrix step and a shift that averaging does not undo"
    )
    theorem: ClassVar[Literal[1, 2] | None] = 1

    def start(self, here: Here) -> ModelState:
        """The first models."""
        return ModelState(here.theta0)

    def step(self, s: ModelState, here: Here) -> ModelState:
        """Descend by a random matrix, mix what is shifted."""
        psi = adapt(s.theta, here, self.lr, self.matrix)
        shift = self.protection.vector("c", s.theta, here)
        return ModelState(mix_protected("psi", psi, shift, here))
