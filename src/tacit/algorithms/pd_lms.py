"""PD-LMS: diffusion with own noise on every message, a baseline of the dual-protection paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.diffusion import ModelState, NoisyDiffusion, adapt
from tacit.core.here import Here


@dataclass(frozen=True)
class PDLMS(NoisyDiffusion):
    """Privatized diffusion (Rizk et al. 2023, as in the dual-protection paper, footnote 3).

    ψᵢ  = wᵢ − γ ∇Jᵢ(wᵢ)
    wᵢ⁺ = Σⱼ aᵢⱼ (ψⱼ + zⱼ)

    The noise z has mean zero, so a sliding mean over a client's messages reveals its model.

    Args:
        lr: Step size γ, a number or a schedule.
        noise: Distribution of z.
        weight_decay: ω, for the objective J + (ω/2)‖w‖².
    """

    name: ClassVar[str] = "pd-lms"
    paper: ClassVar[str] = "Dual Privacy Protection, section 5.1; Rizk et al. 2023"
    known_as: ClassVar[str] = "privatized diffusion LMS: D-PSGD with local noise on the models"

    def step(self, s: ModelState, here: Here) -> ModelState:
        psi = adapt(s.theta, here, self.lr, weight_decay=self.weight_decay)
        (theta,) = here.net.mix(psi=psi + here.noise("z", self.noise))
        return ModelState(theta)
