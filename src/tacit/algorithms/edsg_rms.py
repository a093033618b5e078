"""EDSG-RMS: exact diffusion with random matrix steps and protection vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from tacit.algorithms.diffusion import EXACT_MIXING, REQUIRES_EXACT, adapt
from tacit.algorithms.dual_protection import DualProtection
from tacit.algorithms.tolerance import EXACT_DIFFUSION, Tolerance, refused
from tacit.core.here import Here
from tacit.core.noise import Gaussian
from tacit.privacy.protection import NormVector, Protection, mix_protected


@dataclass(frozen=True)
class ShiftedDiffusionState:
    """Model w(n−1), last local update ψ(n−1) and the next shift, made of w(n−2); all [n, P]."""

    theta: Tensor
    psi: Tensor
    shift: Tensor


@dataclass(frozen=True)
class EDSGRMS(DualProtection):
    """Dually protected exact diffusion (dual-protection paper, eq. 6).

    ψᵢ  = wᵢ − γ Mᵢ ∇Jᵢ(wᵢ)
    φᵢ  = ψᵢ + wᵢ − ψᵢ⁻
    φᵢᶜ = φᵢ + (τ/√L) cᵢ⁻
    wᵢ⁺ = Σⱼ aᵢⱼ φⱼᶜ − φᵢᶜ + φᵢ

    Only φᶜ is sent. c⁻ is ‖w‖1 of the previous iteration, and random in the first one. The paper
    leaves its distribution open: here (τ/√L)c(−1) is Gaussian with deviation |τ|, the size of the
    shift of a model of norm √L.

    Args:
        lr: Step size γ, a number or a schedule.
        matrix: Distribution of the random matrices M.
        protection: The protection vector; Theorem 2 requires |τ| < 0.09 on every graph.
        weight_decay: ω, for the objective J + (ω/2)‖w‖².
    """

    name: ClassVar[str] = "edsg-rms"
    paper: ClassVar[str] = "Dual Privacy Protection, section 4.1, eq. 6"
    known_as: ClassVar[str] = "exact diffusion with random matrix step sizes"
    requires: ClassVar[tuple[str, ...]] = REQUIRES_EXACT
    tolerates: ClassVar[Tolerance] = refused(EXACT_DIFFUSION)
    exact_mixing: ClassVar[str] = EXACT_MIXING
    protects: ClassVar[str] = (
        "model, by a shift that averaging does not remove; gradient in part, by a secret matrix"
    )
    theorem: ClassVar[Literal[1, 2] | None] = 2

    protection: Protection = NormVector(0.01)

    def start(self, here: Here) -> ShiftedDiffusionState:
        shift = here.noise("c(-1)", Gaussian(abs(self.protection.tau)))
        return ShiftedDiffusionState(here.theta0, psi=here.theta0, shift=shift)

    def step(self, s: ShiftedDiffusionState, here: Here) -> ShiftedDiffusionState:
        psi = adapt(s.theta, here, self.lr, self.matrix, self.weight_decay)
        theta = mix_protected("phi", psi + s.theta - s.psi, s.shift, here)
        return ShiftedDiffusionState(theta, psi, shift=self.protection.vector("c", s.theta, here))
