"""MDSG, masked diffusion: a comparison of the dual-protection paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import REQUIRES, ModelState, adapt
from tacit.core.here import Here
from tacit.core.noise import Gaussian, Noise, check_noise
from tacit.core.schedules import Rate, check_rate


@dataclass(frozen=True)
class MDSG(Algorithm):
    """Diffusion whose sent copy carries noise while the own term stays exact (after Han et al. 2025).

    ψᵢ  = wᵢ − γ ∇Jᵢ(wᵢ)
    wᵢ⁺ = aᵢᵢ ψᵢ + Σⱼ≠ᵢ aᵢⱼ (ψⱼ + zⱼ)

    The dual-protection paper compares with this method and does not print it; this is what it says of it (zero-mean
    noise on what is sent), not the cited paper's full equations, which include a forgetting factor.
    """

    name: ClassVar[str] = "mdsg"
    paper: ClassVar[str] = "Dual Privacy Protection, section 5.1; after Han et al. 2025"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = (
        "the gradient, by own noise that costs accuracy; not the model, which averaging shows"
    )

    lr: Rate  # γ
    noise: Noise = Gaussian(0.01)

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_noise(self.noise)

    def start(self, here: Here) -> ModelState:
        """The first models."""
        return ModelState(here.theta0)

    def step(self, s: ModelState, here: Here) -> ModelState:
        """Descend, mix with noise, take the own noise back."""
        noise = here.noise("z", self.noise)
        (theta,) = here.net.mix(psi=adapt(s.theta, here, self.lr) + noise)
        return ModelState(theta - here.graph.own(noise))
