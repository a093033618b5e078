"""D-PSGD: decentralized parallel stochastic gradient descent in both orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.algorithms.diffusion import REQUIRES
from tacit.algorithms.local_optimizer import AdaptiveAlgorithm, OptimizerState
from tacit.algorithms.tolerance import ALL, Tolerance
from tacit.core.checks import check_choice
from tacit.core.here import Here


@dataclass(frozen=True)
class DPSGD(AdaptiveAlgorithm):
    """Decentralized parallel SGD (Lian et al. 2017; DeFL-VP paper, eq. 17 without protections).

    mᵢ⁺ = β mᵢ + ∇Lᵢ(xᵢ)
    xᵢ⁺ = Σⱼ wᵢⱼ (xⱼ − η mⱼ⁺)       order = "adapt-then-combine"
    xᵢ⁺ = Σⱼ wᵢⱼ xⱼ − η mᵢ⁺         order = "combine-then-adapt"

    Adapt-then-combine sends one message x − ηm in place of the paper's two, x and m.

    Args:
        lr: Step size η, a number or a schedule.
        order: "adapt-then-combine", or the classic "combine-then-adapt".
        momentum: Momentum β in [0, 1).
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective L + (ω/2)‖x‖²; decoupled with "adamw".
        optimizer: "sgd", "adam" or "adamw", with moments of each client: see `DSG`.
        betas: β₁ and β₂ of Adam.
    """

    name: ClassVar[str] = "d-psgd"
    paper: ClassVar[str] = "Lian et al. 2017; DeFL-VP, section 5.2"
    known_as: ClassVar[str] = "combine-then-adapt D-PSGD, gossip SGD"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    tolerates: ClassVar[Tolerance] = ALL
    protects: ClassVar[str] = (
        "nothing: with equal initial models, the first messages reveal the first gradient"
    )

    order: Literal["adapt-then-combine", "combine-then-adapt"] = "adapt-then-combine"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("order", self.order, ("adapt-then-combine", "combine-then-adapt"))

    def start(self, here: Here) -> OptimizerState:
        return self.optimizer_state(here.theta0)

    def step(self, s: OptimizerState, here: Here) -> OptimizerState:
        grad = self.local.gradient(s.theta, here)
        descent, momentum, second = self.descent(s, grad, here)
        if self.order == "adapt-then-combine":
            (theta,) = here.net.mix(theta=s.theta - descent)
        else:
            (theta,) = here.net.mix(theta=s.theta)
            theta = theta - descent
        return OptimizerState(theta, momentum, second)
