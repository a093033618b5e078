"""MDSG: diffusion with noise on sent copies only, a baseline of the dual-protection paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import REQUIRES, UNDER_NOISE, ModelState, adapt
from tacit.algorithms.local_optimizer import check_weight_decay
from tacit.algorithms.tolerance import ALL, Tolerance
from tacit.core.here import Here
from tacit.core.noise import Gaussian, Noise, check_noise
from tacit.core.schedules import Rate, check_rate


@dataclass(frozen=True)
class MDSG(Algorithm):
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
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    tolerates: ClassVar[Tolerance] = ALL
    unsupported: ClassVar[Mapping[str, str]] = UNDER_NOISE
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

    def step(self, s: ModelState, here: Here) -> ModelState:
        noise = here.noise("z", self.noise)
        psi = adapt(s.theta, here, self.lr, weight_decay=self.weight_decay)
        (theta,) = here.net.mix(psi=psi + noise)
        return ModelState(theta - here.graph.own(noise))
