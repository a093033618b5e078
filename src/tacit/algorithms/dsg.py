"""DSG: decentralized stochastic gradient descent without protection, adapt-then-combine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.diffusion import REQUIRES
from tacit.algorithms.local_optimizer import AdaptiveAlgorithm, OptimizerState
from tacit.algorithms.tolerance import ALL, Tolerance
from tacit.core.here import Here


@dataclass(frozen=True)
class DSG(AdaptiveAlgorithm):
    """Decentralized stochastic gradient (dual-protection paper, eq. 2; diffusion, Sayed 2014).

    ψᵢ  = wᵢ − γ ∇Jᵢ(wᵢ)
    wᵢ⁺ = Σⱼ aᵢⱼ ψⱼ

    Momentum and Adam have local moments: ψᵢ = wᵢ − γ dᵢ. With Adam clients whose data differ divide
    their gradients by different scales, so the limit is not the optimum, however small γ is (Chen
    et al. 2023, who average the scales instead).

    Args:
        lr: Step size γ, a number or a schedule.
        momentum: Momentum β in [0, 1).
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective J + (ω/2)‖w‖²; decoupled with "adamw".
        optimizer: "sgd", "adam" or "adamw", with moments of each client.
        betas: β₁ and β₂ of Adam.
    """

    name: ClassVar[str] = "dsg"
    paper: ClassVar[str] = "Dual Privacy Protection, section 3.1.1; Sayed 2014"
    known_as: ClassVar[str] = "adapt-then-combine diffusion, adapt-then-combine D-PSGD"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    tolerates: ClassVar[Tolerance] = ALL
    protects: ClassVar[str] = (
        "nothing: with equal initial models, the first message reveals the first gradient"
    )

    def start(self, here: Here) -> OptimizerState:
        return self.optimizer_state(here.theta0)

    def step(self, s: OptimizerState, here: Here) -> OptimizerState:
        grad = self.local.gradient(s.theta, here)
        descent, momentum, second = self.descent(s, grad, here)
        (theta,) = here.net.mix(psi=s.theta - descent)
        return OptimizerState(theta, momentum, second)
