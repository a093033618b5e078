"""PD-LMS: diffusion with own noise on every message, a baseline of the dual-protection paper."""

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
class PDLMS(Algorithm):
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
        psi = adapt(s.theta, here, self.lr, weight_decay=self.weight_decay)
        (theta,) = here.net.mix(psi=psi + here.noise("z", self.noise))
        return ModelState(theta)
