"""DP-DSGT: gradient tracking with own noise, a baseline of the LPPA paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from tacit.algorithms.local_optimizer import MomentumAlgorithm
from tacit.algorithms.tolerance import TRACKING, Tolerance
from tacit.algorithms.tracking import EXACT_MIXING, REQUIRES, UNSUPPORTED, TrackingState, track
from tacit.core.checks import check_choice, check_count
from tacit.core.here import Here
from tacit.core.noise import Laplace, Noise, check_noise


@dataclass(frozen=True)
class DPDSGT(MomentumAlgorithm):
    """Gradient tracking with own noise on the tracker (Miao et al. 2025, section 5.2, DP method).

    γᵢ⁰   = ∇Lᵢ(θᵢ⁰) + ζᵢ
    θᵢᵗ⁺¹ = Σⱼ wᵢⱼ θⱼᵗ − λ γᵢᵗ
    γᵢᵗ⁺¹ = Σⱼ wᵢⱼ γⱼᵗ + ∇Lᵢ(θᵢᵗ⁺¹) − ∇Lᵢ(θᵢᵗ)  (+ ζᵢᵗ⁺¹ with inject="every")

    The noise does not cancel: Σᵢγᵢᵗ is Σᵢ∇Lᵢ(θᵢᵗ) plus the sum of all noise so far. The name is the
    paper's: without clipping there is no differential-privacy guarantee.

    Args:
        lr: Step size λ, a number or a schedule.
        noise: Distribution of ζ.
        inject: When noise is added: at the "start" as in the paper, or in "every" iteration.
        local_steps: Updates per exchange.
        momentum: Momentum β in [0, 1), on the tracker.
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective L + (ω/2)‖θ‖².
    """

    name: ClassVar[str] = "dp-dsgt"
    paper: ClassVar[str] = "Miao et al. 2025 (LPPA), section 5.2"
    known_as: ClassVar[str] = (
        "gradient tracking with local noise; no differential privacy, since nothing is clipped"
    )
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    exact_mixing: ClassVar[str] = EXACT_MIXING
    tolerates: ClassVar[Tolerance] = TRACKING
    unsupported: ClassVar[Mapping[str, str]] = UNSUPPORTED
    protects: ClassVar[str] = "the gradient, by own noise that biases the tracker"

    noise: Noise = Laplace(0.025)
    inject: Literal["start", "every"] = "start"
    local_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_noise(self.noise)
        check_count("local_steps", self.local_steps)
        check_choice("inject", self.inject, {"start": "the paper's comparison", "every": ""})

    @property
    def gradients_per_step(self) -> int:
        return self.local_steps

    def start(self, here: Here) -> TrackingState:
        theta = here.theta0
        grad = self.local.gradient(theta, here)
        return TrackingState(
            theta, grad + here.noise("zeta", self.noise), grad, self.local.memory(theta)
        )

    def step(self, s: TrackingState, here: Here) -> TrackingState:
        s = track(s, here, self.lr, self.local_steps, self.local)
        if self.inject == "start":
            return s
        return replace(s, gamma=s.gamma + here.noise("zeta", self.noise))
