"""MDSG: diffusion with noise on sent copies only, a baseline of the dual-protection paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.diffusion import ModelState, NoisyDiffusion, adapt
from tacit.core.here import Here


@dataclass(frozen=True)
class MDSG(NoisyDiffusion):
    """Masked diffusion: noise on what is sent, none on the own term (after Han et al. 2025).

    ψᵢ  = wᵢ − γ ∇Jᵢ(wᵢ)
    wᵢ⁺ = aᵢᵢ ψᵢ + Σⱼ≠ᵢ aᵢⱼ (ψⱼ + zⱼ)

    The dual-protection paper (section 5.1) describes this baseline only in words: zero-mean noise
    on what is sent. These are not the full equations of the cited paper, which include a forgetting
    factor.

    Args:
        lr: Step size γ, a number or a schedule.
        noise: Distribution of z.
        weight_decay: ω, for the objective J + (ω/2)‖w‖².
    """

    name: ClassVar[str] = "mdsg"
    paper: ClassVar[str] = "Dual Privacy Protection, section 5.1; after Han et al. 2025"
    known_as: ClassVar[str] = "masked diffusion: D-PSGD with noise on what is sent only"

    def step(self, s: ModelState, here: Here) -> ModelState:
        noise = here.noise("z", self.noise)
        psi = adapt(s.theta, here, self.lr, weight_decay=self.weight_decay)
        (theta,) = here.net.mix(psi=psi + noise)
        return ModelState(theta - here.graph.own(noise))
