"""DSGT: gradient tracking without protection, the reference for accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.tracking import EXACT_MIXING, REQUIRES, TrackingState, track
from tacit.core.checks import check_count
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate


@dataclass(frozen=True)
class DSGT(Algorithm):
    """Distributed stochastic gradient tracking (Pu and Nedić 2021; LPPA paper, eq. 2 and 3).

    γᵢ⁰   = ∇Lᵢ(θᵢ⁰)
    θᵢᵗ⁺¹ = Σⱼ wᵢⱼ θⱼᵗ − λ γᵢᵗ
    γᵢᵗ⁺¹ = Σⱼ wᵢⱼ γⱼᵗ + ∇Lᵢ(θᵢᵗ⁺¹) − ∇Lᵢ(θᵢᵗ)

    Args:
        lr: Step size λ, a number or a schedule.
        local_steps: Updates per exchange.
    """

    name: ClassVar[str] = "dsgt"
    paper: ClassVar[str] = "Pu and Nedić 2021; Miao et al. 2025, section 3"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    exact_mixing: ClassVar[str] = EXACT_MIXING
    protects: ClassVar[str] = "nothing: the first message is the gradient itself"

    lr: Rate
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_count("local_steps", self.local_steps)

    @property
    def gradients_per_step(self) -> int:
        return self.local_steps

    def start(self, here: Here) -> TrackingState:
        theta = here.theta0
        grad = here.grad(theta)
        return TrackingState(theta, gamma=grad, grad=grad)

    def step(self, s: TrackingState, here: Here) -> TrackingState:
        return track(s, here, self.lr, self.local_steps)
