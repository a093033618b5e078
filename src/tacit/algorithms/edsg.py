"""EDSG: exact diffusion, which converges to the optimum although the clients' optima differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.diffusion import (
    EXACT_MIXING,
    REQUIRES_EXACT,
    UNSUPPORTED_EXACT,
    ExactDiffusionState,
)
from tacit.algorithms.local_optimizer import MomentumAlgorithm
from tacit.algorithms.tolerance import EXACT_DIFFUSION, Tolerance, refused
from tacit.core.here import Here


@dataclass(frozen=True)
class EDSG(MomentumAlgorithm):
    """Exact diffusion (dual-protection paper, eq. 3; Sayed 2022).

    ψᵢ  = wᵢ − γ ∇Jᵢ(wᵢ)
    φᵢ  = ψᵢ + wᵢ − ψᵢ⁻
    wᵢ⁺ = Σⱼ aᵢⱼ φⱼ

    ψ⁻ is the ψ of the previous iteration, and w in the first one. With momentum ψ = w − γ m⁺ (Hu et
    al. 2025): the mean of the models takes the heavy-ball steps of one machine, and the limit is
    the same.

    Args:
        lr: Step size γ, a number or a schedule.
        momentum: Momentum β in [0, 1).
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective J + (ω/2)‖w‖².
    """

    name: ClassVar[str] = "edsg"
    paper: ClassVar[str] = "Dual Privacy Protection, section 3.1.2; Sayed 2022"
    known_as: ClassVar[str] = "exact diffusion; the same updates as D² and NIDS"
    requires: ClassVar[tuple[str, ...]] = REQUIRES_EXACT
    tolerates: ClassVar[Tolerance] = refused(EXACT_DIFFUSION)
    exact_mixing: ClassVar[str] = EXACT_MIXING
    unsupported: ClassVar[Mapping[str, str]] = UNSUPPORTED_EXACT
    protects: ClassVar[str] = (
        "nothing: with equal initial models, the first message reveals the first gradient"
    )

    def start(self, here: Here) -> ExactDiffusionState:
        theta = here.theta0
        return ExactDiffusionState(theta, here.theta0, self.local.memory(theta))

    def step(self, s: ExactDiffusionState, here: Here) -> ExactDiffusionState:
        grad = self.local.gradient(s.theta, here)
        direction, momentum = self.local.direction(grad, s.momentum)
        psi = s.theta - here.rate(self.lr) * direction
        (theta,) = here.net.mix(phi=psi + s.theta - s.psi)
        return ExactDiffusionState(theta, psi, momentum)
