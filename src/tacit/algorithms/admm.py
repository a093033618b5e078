"""ADMM, the alternating direction method of multipliers, telling differences only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms import splitting
from tacit.algorithms.solvers import QuadraticSolver, Solver
from tacit.algorithms.splitting import REQUIRES, Split
from tacit.clients import Clients
from tacit.graph import Graph
from tacit.privacy.masks import Masks
from tacit.privacy.noise import Gaussian, Noise


@dataclass(frozen=True)
class ADMM:
    """Differential ADMM (Yu et al. 2025, Algorithm 1 with θ = ½).

    wᵢ    = argmin fᵢ(w) + Σⱼ Bᵢⱼ zᵢ|ⱼᵀw + (ρdᵢ/2)‖w‖²
    zⱼ|ᵢ⁺ = ½ zⱼ|ᵢ + ½ (zᵢ|ⱼ + 2ρ Bᵢⱼ wᵢ)
    Δzⱼ|ᵢ = zⱼ|ᵢ⁺ − zⱼ|ᵢ                      the only message; z⁰ is shared in private

    Solved exactly, it converges for every closed, proper, convex f, slower than PDMM where that does.
    """

    name: ClassVar[str] = "admm"
    paper: ClassVar[str] = "Yu et al. 2025 (distributed optimization), Algorithm 1, θ = ½"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = (
        "the gradient, by noise outside the subspace of convergence; not its differences"
    )

    rho: float = 0.4
    solver: Solver = QuadraticSolver()
    noise: Noise = Gaussian(0.01)  # of z⁰: σ_z = 0.01 is the paper's σ_z² = 10⁻⁴
    masks: Masks = "derived"  # z⁰ from pairwise keys, or sent over a private channel as published

    def __post_init__(self) -> None:
        splitting.check(self.rho, self.solver, self.noise, self.masks)

    @property
    def local_steps(self) -> int:
        """Gradients per iteration."""
        return self.solver.gradients

    @property
    def minimises(self) -> bool:
        """Whether local problems are solved exactly."""
        return self.solver.minimises

    def cautions(self, graph: Graph) -> list[str]:
        """Local steps that are too long."""
        return splitting.cautions(self.rho, self.solver, graph)

    def start(self, here: Clients) -> Split:
        """The first models, and noise shared along each edge."""
        return splitting.begin(here, self.noise, self.masks)

    def step(self, s: Split, here: Clients) -> Split:
        """Solve locally, tell the neighbours what changed."""
        return splitting.exchange(s, here, self.rho, self.solver, averaging=0.5)
