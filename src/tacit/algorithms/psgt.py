"""PSGT: gradient tracking with decaying noise, a baseline of the dual-protection paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tacit.algorithms.local_optimizer import MomentumAlgorithm
from tacit.algorithms.tolerance import TRACKING, Tolerance
from tacit.algorithms.tracking import EXACT_MIXING, REQUIRES, UNSUPPORTED, TrackingState, track
from tacit.core.here import Here
from tacit.core.noise import Gaussian
from tacit.core.schedules import Exponential, Rate


@dataclass(frozen=True)
class PSGT(MomentumAlgorithm):
    """Gradient tracking with decaying noise on both messages (after Ding et al. 2021).

    θᵢ⁺ = Σⱼ wᵢⱼ (θⱼ + ξⱼ) − λ (γᵢ + ζᵢ)
    γᵢ⁺ = Σⱼ wᵢⱼ (γⱼ + ζⱼ) + ∇Lᵢ(θᵢ⁺) − ∇Lᵢ(θᵢ)

    The tracker keeps every ζ: Σᵢγᵢ = Σᵢ∇Lᵢ(θᵢ) plus all ζ so far, so the limit is not the optimum.
    See section 5.1 of the dual-protection paper.

    Args:
        lr: Step size λ, a number or a schedule.
        scale: Standard deviation of the Gaussians ξ and ζ, a number or a schedule. By default the
            variance is the paper's √(0.1 · 0.8ⁿ).
        momentum: Momentum β in [0, 1), on the tracker.
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective L + (ω/2)‖θ‖².
    """

    name: ClassVar[str] = "psgt"
    paper: ClassVar[str] = "Dual Privacy Protection, section 5.1; Ding et al. 2021"
    known_as: ClassVar[str] = "gradient tracking with local noise that decays"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    exact_mixing: ClassVar[str] = EXACT_MIXING
    tolerates: ClassVar[Tolerance] = TRACKING
    unsupported: ClassVar[Mapping[str, str]] = UNSUPPORTED
    protects: ClassVar[str] = "model and tracker, by own noise that decays and biases the tracker"

    scale: Rate = Exponential(0.1**0.25, 0.8**0.25, steps=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.scale):
            Gaussian(self.scale)

    def start(self, here: Here) -> TrackingState:
        theta = here.theta0
        grad = self.local.gradient(theta, here)
        return TrackingState(theta, grad, grad, self.local.memory(theta))

    def step(self, s: TrackingState, here: Here) -> TrackingState:
        law = Gaussian(here.rate(self.scale))
        theta = s.theta + here.noise("xi", law)
        gamma = s.gamma + here.noise("zeta", law)
        return track(replace(s, theta=theta, gamma=gamma), here, self.lr, 1, self.local)
