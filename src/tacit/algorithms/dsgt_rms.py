"""DSGT-RMS: gradient tracking with random matrix steps and protection vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.algorithms.dual_protection import DualProtection
from tacit.algorithms.local_optimizer import decayed
from tacit.algorithms.tolerance import Tolerance, refused
from tacit.algorithms.tracking import EXACT_MIXING, REQUIRES, TrackingState
from tacit.core.here import Here
from tacit.privacy.protection import mix_protected


@dataclass(frozen=True)
class DSGTRMS(DualProtection):
    """Dually protected gradient tracking (dual-protection paper, Remark 2).

    θᵢ⁺ = Σⱼ wᵢⱼ (θⱼ + c(θⱼ)) − c(θᵢ) − λ Mᵢ γᵢ
    γᵢ⁺ = Σⱼ wᵢⱼ (γⱼ + c(γⱼ)) − c(γᵢ) + ∇Lᵢ(θᵢ⁺) − ∇Lᵢ(θᵢ)

    The remark has no equations. These protect both messages, because the tracker reveals more than
    the model. Shifts cancel in the sum, so Σᵢγᵢ = Σᵢ∇Lᵢ(θᵢ), and M multiplies a tracker that goes
    to zero: unlike EDSG-RMS, it converges to the optimum. The paper has no bound on τ for it.

    Args:
        lr: Step size λ, a number or a schedule.
        matrix: Distribution of the random matrices M.
        protection: The protection vector c.
        weight_decay: ω, for the objective L + (ω/2)‖θ‖².
    """

    name: ClassVar[str] = "dsgt-rms"
    paper: ClassVar[str] = "Dual Privacy Protection, Remark 2"
    known_as: ClassVar[str] = "gradient tracking with random matrix step sizes"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    tolerates: ClassVar[Tolerance] = refused(
        "its protection vector is analysed for one combination matrix"
    )
    exact_mixing: ClassVar[str] = EXACT_MIXING
    protects: ClassVar[str] = (
        "tracker and model, by a shift that averaging does not remove; the step, by a secret matrix"
    )
    theorem: ClassVar[Literal[1, 2] | None] = None

    def start(self, here: Here) -> TrackingState:
        theta = here.theta0
        grad = decayed(here.grad(theta), theta, self.weight_decay)
        return TrackingState(theta, gamma=grad, grad=grad)

    def step(self, s: TrackingState, here: Here) -> TrackingState:
        c_theta = self.protection.vector("c/theta", s.theta, here)
        theta = mix_protected("theta", s.theta, c_theta, here)
        c_gamma = self.protection.vector("c/gamma", s.gamma, here)
        gamma = mix_protected("gamma", s.gamma, c_gamma, here)
        theta = theta - here.rate(self.lr) * self.matrix.times(s.gamma, here)
        grad = decayed(here.grad(theta), theta, self.weight_decay)
        return TrackingState(theta, gamma + grad - s.grad, grad)
