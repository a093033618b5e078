"""PSGT, gradient tracking with state and direction perturbed: a comparison of the dual-protection paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.tracking import REQUIRES, TrackingState, track
from tacit.core.here import Here
from tacit.core.noise import Gaussian
from tacit.core.schedules import Exponential, Rate, check_rate


@dataclass(frozen=True)
class PSGT(Algorithm):
    """Gradient tracking with fading noise on both messages (Ding et al. 2021, in gradient-tracking form).

    θᵢ⁺ = Σⱼ wᵢⱼ (θⱼ + ξⱼ) − λ (γᵢ + ζᵢ)
    γᵢ⁺ = Σⱼ wᵢⱼ (γⱼ + ζⱼ) + ∇Lᵢ(θᵢ⁺) − ∇Lᵢ(θᵢ)

    ξ and ζ are Gaussian of deviation `scale`; the dual-protection paper's variance √(0.1 · 0.8ⁿ) is the default.
    What ζ adds to the tracker stays there: Σᵢγᵢ = Σᵢ∇Lᵢ(θᵢ) + all ζ so far, and the limit is not the optimum.
    """

    name: ClassVar[str] = "psgt"
    paper: ClassVar[str] = "Dual Privacy Protection, section 5.1; Ding et al. 2021"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = "state and direction, by own noise that fades and biases the tracker"

    lr: Rate
    scale: Rate = Exponential(0.1**0.25, 0.8**0.25, every=1)

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        if not callable(self.scale):
            Gaussian(self.scale)  # refuses what is not a deviation

    def start(self, here: Here) -> TrackingState:
        """γ⁰ is the gradient."""
        theta = here.theta0
        grad = here.grad(theta)
        return TrackingState(theta, gamma=grad, grad=grad)

    def step(self, s: TrackingState, here: Here) -> TrackingState:
        """Perturb, then track."""
        law = Gaussian(here.rate(self.scale))
        theta = s.theta + here.noise("xi", law)
        gamma = s.gamma + here.noise("zeta", law)
        return track(TrackingState(theta, gamma, s.grad), here, self.lr)
