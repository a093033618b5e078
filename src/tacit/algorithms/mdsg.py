"""MDSG, masked diffusion: a comparison of the dual-protection paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import REQUIRES, Model, adapt
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

    def start(self, here: Here) -> Model:
        """The first models."""
        return Model(here.theta0)

    def step(self, s: Model, here: Here) -> Model:
        """Descend, mix with noise, take the own noise back."""
        noise = here.noise("z", self.noise)
        (theta,) = here.net.mix(psi=adapt(s.theta, here, self.lr) + noise)
        return Model(theta - here.graph.own(noise))
