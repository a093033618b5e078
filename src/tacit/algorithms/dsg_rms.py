"""DSG-RMS: diffusion with random matrix steps and protection vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms import tau_bounds
from tacit.algorithms.diffusion import REQUIRES, Model, adapt
from tacit.clients import Clients
from tacit.graph import Graph
from tacit.privacy.matrix_step import MatrixStep, check_matrix
from tacit.privacy.protection import NormVector, Protection, check_protection, mix_protected
from tacit.schedules import Rate, check_rate


@dataclass(frozen=True)
class DSGRMS:
    """Dually protected diffusion (dual-protection paper, eq. 5).

    ψᵢ  = wᵢ − γ Mᵢ ∇Jᵢ(wᵢ)
    ψᵢᶜ = ψᵢ + (τ/√L) ‖wᵢ‖ 1
    wᵢ⁺ = Σⱼ aᵢⱼ ψⱼᶜ − ψᵢᶜ + ψᵢ

    Only ψᶜ is sent. τ does not change where the run ends, the variance of M does (Remark 3).
    """

    name: ClassVar[str] = "dsg-rms"
    paper: ClassVar[str] = "Dual Privacy Protection, section 4.1, eq. 5"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = (
        "gradient and model, by a secret matrix step and a shift that averaging does not undo"
    )

    lr: Rate  # γ
    matrix: MatrixStep = MatrixStep()
    protection: Protection = NormVector(0.1)

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_matrix(self.matrix)
        check_protection(self.protection)

    def check_width(self, width: int) -> None:
        """Refuse a matrix that is too large."""
        self.matrix.check_width(width)

    def remarks(self, graph: Graph) -> list[str]:
        """The bound on τ."""
        return tau_bounds.remarks(self.protection, graph, exact=False)

    def cautions(self, graph: Graph) -> list[str]:
        """A τ beyond its bound."""
        return tau_bounds.cautions(self.protection, graph, exact=False)

    def start(self, here: Clients) -> Model:
        """The first models."""
        return Model(here.theta0)

    def step(self, s: Model, here: Clients) -> Model:
        """Descend by a random matrix, mix what is shifted."""
        psi = adapt(s.theta, here, self.lr, self.matrix)
        shift = self.protection.vector("c", s.theta, here)
        return Model(mix_protected("psi", psi, shift, here))
