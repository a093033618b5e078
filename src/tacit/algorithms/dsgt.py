"""DSGT: gradient tracking without protection, the reference for accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.local_optimizer import MomentumAlgorithm
from tacit.algorithms.tolerance import TRACKING, Tolerance
from tacit.algorithms.tracking import EXACT_MIXING, REQUIRES, UNSUPPORTED, TrackingState, track
from tacit.core.checks import check_count
from tacit.core.here import Here


@dataclass(frozen=True)
class DSGT(MomentumAlgorithm):
    """Distributed stochastic gradient tracking (Pu and Nedić 2021; LPPA paper, eq. 2 and 3).

    γᵢ⁰   = ∇Lᵢ(θᵢ⁰)
    θᵢᵗ⁺¹ = Σⱼ wᵢⱼ θⱼᵗ − λ γᵢᵗ
    γᵢᵗ⁺¹ = Σⱼ wᵢⱼ γⱼᵗ + ∇Lᵢ(θᵢᵗ⁺¹) − ∇Lᵢ(θᵢᵗ)

    Args:
        lr: Step size λ, a number or a schedule.
        local_steps: Updates per exchange.
        momentum: Momentum β in [0, 1), on the tracker.
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective L + (ω/2)‖θ‖².
    """

    name: ClassVar[str] = "dsgt"
    paper: ClassVar[str] = "Pu and Nedić 2021; Miao et al. 2025, section 3"
    known_as: ClassVar[str] = (
        "decentralized stochastic gradient tracking; with full gradients DIGing"
    )
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    exact_mixing: ClassVar[str] = EXACT_MIXING
    tolerates: ClassVar[Tolerance] = TRACKING
    unsupported: ClassVar[Mapping[str, str]] = UNSUPPORTED
    protects: ClassVar[str] = "nothing: the first message is the gradient itself"

    local_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("local_steps", self.local_steps)

    @property
    def gradients_per_step(self) -> int:
        return self.local_steps

    def start(self, here: Here) -> TrackingState:
        theta = here.theta0
        grad = self.local.gradient(theta, here)
        return TrackingState(theta, grad, grad, self.local.memory(theta))

    def step(self, s: TrackingState, here: Here) -> TrackingState:
        return track(s, here, self.lr, self.local_steps, self.local)
