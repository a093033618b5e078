"""Operator splitting over edges: the part that PDMM and ADMM have in common, in differential form.

Node i holds, for each neighbour j, its own zᵢ|ⱼ and the neighbour's zⱼ|ᵢ (distributed-optimization paper, Algorithm 1):

    zᵢ|ⱼ⁰   random with variance σ_z², told to j in private
    wᵢ     = argmin fᵢ(w) + Σⱼ Bᵢⱼ zᵢ|ⱼᵀw + (ρdᵢ/2)‖w‖²                        (4)
    zⱼ|ᵢ⁺  = (1 − θ) zⱼ|ᵢ + θ (zᵢ|ⱼ + 2ρ Bᵢⱼ wᵢ)                                (5)
    Δzⱼ|ᵢ  = zⱼ|ᵢ⁺ − zⱼ|ᵢ, sent in clear; j adds it to its zⱼ|ᵢ                  (13)

The constraints Bᵢⱼwᵢ + Bⱼᵢwⱼ = 0, B = +1 for i < j and −1 otherwise, make all w equal. The part of z that lies
outside the range of the constraints never reaches w and never leaves z: it is the noise that hides the gradients.
(The paper names θ = ½ Peaceman–Rachford and θ = 1 Douglas–Rachford splitting; in the literature it is the other way
round. The numbers are not in doubt: θ = 1 is PDMM and θ = ½ ADMM.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.solvers import QuadraticSolver, Solver, check_solver
from tacit.core.checks import check_positive
from tacit.core.here import Here
from tacit.core.noise import Gaussian, Noise, check_noise
from tacit.graph import Graph
from tacit.privacy.masks import Masks, check_masks, edge_masks


@dataclass(frozen=True)
class SplittingState:
    """Models w [n, P]; own zᵢ|ⱼ and the neighbours' zⱼ|ᵢ, a row per out-edge i→j, both [e, P]."""

    theta: Tensor
    z: Tensor
    z_there: Tensor


@dataclass(frozen=True)
class Splitting(Algorithm):
    """Options and steps of both; each gives θ, its `averaging`."""

    averaging: ClassVar[float]
    requires: ClassVar[tuple[str, ...]] = ("connected", "undirected")
    protects: ClassVar[str] = (
        "the gradient, by noise outside the subspace of convergence; not its differences"
    )

    rho: float = 0.4
    solver: Solver = QuadraticSolver()
    noise: Noise = Gaussian(0.01)  # of z⁰: σ_z = 0.01 is the paper's σ_z² = 10⁻⁴
    masks: Masks = "derived"  # z⁰ from pairwise keys, or sent over a private channel as published

    def __post_init__(self) -> None:
        check_positive("rho", self.rho, example=0.4)
        check_solver(self.solver)
        check_noise(self.noise)
        check_masks(self.masks)

    @property
    def gradients_per_step(self) -> int:
        return self.solver.gradients

    @property
    def needs_minimiser(self) -> bool:
        return self.solver.minimises

    def cautions(self, graph: Graph) -> list[str]:
        """Gradient steps that are too long for the pull of the neighbours: w ← w − μ(… + ρdw) needs μρd < 2."""
        pull = self.rho * float(np.bincount(graph.edges[:, 0], minlength=1).max())
        step = self.solver.step_size
        if pull * step < 2:
            return []
        return [
            f"the solver's steps of mu = {step:.3g} are too long for rho · largest degree = {pull:.3g}: expect "
            f"divergence unless mu < {2 / pull:.3g}, or less where losses are curved; lower mu or rho, or use the "
            "quadratic solver"
        ]

    def start(self, here: Here) -> SplittingState:
        shares = edge_masks("z0", self.noise, self.masks, here)
        z, z_there = (rows if isinstance(rows, Tensor) else rows.tensor() for rows in shares)
        return SplittingState(here.theta0, z, z_there)

    def step(self, s: SplittingState, here: Here) -> SplittingState:
        # The k-th out-edge and the k-th in-edge are the two directions of one edge.
        graph = here.graph
        signs, degree = graph.signs.to(s.z.dtype), graph.out_degree[:, None].to(s.z.dtype)
        w = self.solver.solve(s.theta, graph.total_out(signs * s.z), self.rho * degree, here)
        change = self.averaging * (s.z - s.z_there + graph.lift(w) * (2 * self.rho * signs))
        received = here.net.send("dz", change)
        return SplittingState(w, s.z + received, s.z_there + change)
