"""DSG: decentralized stochastic gradient descent without protection, adapt-then-combine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import REQUIRES, ModelState, adapt
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate


@dataclass(frozen=True)
class DSG(Algorithm):
    """Decentralized stochastic gradient (dual-protection paper, eq. 2; diffusion, Sayed 2014).

    ψᵢ  = wᵢ − γ ∇Jᵢ(wᵢ)
    wᵢ⁺ = Σⱼ aᵢⱼ ψⱼ

    Args:
        lr: Step size γ, a number or a schedule.
    """

    name: ClassVar[str] = "dsg"
    paper: ClassVar[str] = "Dual Privacy Protection, section 3.1.1; Sayed 2014"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = (
        "nothing: with equal initial models, the first message reveals the first gradient"
    )

    lr: Rate

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)

    def start(self, here: Here) -> ModelState:
        return ModelState(here.theta0)

    def step(self, s: ModelState, here: Here) -> ModelState:
        (theta,) = here.net.mix(psi=adapt(s.theta, here, self.lr))
        return ModelState(theta)
