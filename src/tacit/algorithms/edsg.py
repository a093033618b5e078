"""EDSG: exact diffusion, which converges to the optimum although the clients' optima differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import EXACT_MIXING, REQUIRES_EXACT, ExactDiffusionState, adapt
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate


@dataclass(frozen=True)
class EDSG(Algorithm):
    """Exact diffusion (dual-protection paper, eq. 3; Sayed 2022).

    ψᵢ  = wᵢ − γ ∇Jᵢ(wᵢ)
    φᵢ  = ψᵢ + wᵢ − ψᵢ⁻
    wᵢ⁺ = Σⱼ aᵢⱼ φⱼ

    ψ⁻ is the ψ of the previous iteration, and w in the first one.

    Args:
        lr: Step size γ, a number or a schedule.
    """

    name: ClassVar[str] = "edsg"
    paper: ClassVar[str] = "Dual Privacy Protection, section 3.1.2; Sayed 2022"
    requires: ClassVar[tuple[str, ...]] = REQUIRES_EXACT
    exact_mixing: ClassVar[str] = EXACT_MIXING
    protects: ClassVar[str] = (
        "nothing: with equal initial models, the first message reveals the first gradient"
    )

    lr: Rate

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)

    def start(self, here: Here) -> ExactDiffusionState:
        return ExactDiffusionState(here.theta0, psi=here.theta0)

    def step(self, s: ExactDiffusionState, here: Here) -> ExactDiffusionState:
        psi = adapt(s.theta, here, self.lr)
        (theta,) = here.net.mix(phi=psi + s.theta - s.psi)
        return ExactDiffusionState(theta, psi)
