"""Operator splitting over edges in differential form, which PDMM and ADMM share.

Client i holds, for each neighbour j, its own zᵢ|ⱼ and the neighbour's zⱼ|ᵢ
(distributed-optimization paper, Algorithm 1):

    zᵢ|ⱼ⁰   random with variance σ_z², shared with j in private
    wᵢ     = argmin fᵢ(w) + Σⱼ Bᵢⱼ zᵢ|ⱼᵀw + (ρdᵢ/2)‖w‖²                        (4)
    zⱼ|ᵢ⁺  = (1 − θ) zⱼ|ᵢ + θ (zᵢ|ⱼ + 2ρ Bᵢⱼ wᵢ)                                (5)
    Δzⱼ|ᵢ  = zⱼ|ᵢ⁺ − zⱼ|ᵢ, sent in clear; j adds it to its zⱼ|ᵢ                  (13)

The constraints Bᵢⱼwᵢ + Bⱼᵢwⱼ = 0, with B = +1 for i < j and −1 otherwise, make all w equal. The
part of z outside the range of the constraints never reaches w and never leaves z: it is the noise
that hides the gradients. θ = 1 is PDMM and θ = ½ is ADMM. (The paper calls θ = ½ Peaceman–Rachford
and θ = 1 Douglas–Rachford splitting; the literature uses the two names the other way round.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.local_optimizer import check_weight_decay
from tacit.algorithms.solvers import QuadraticSolver, Solver, check_solver
from tacit.algorithms.tolerance import EDGE_VARIABLES, Tolerance, refused
from tacit.core.checks import check_positive
from tacit.core.here import Here
from tacit.core.noise import Gaussian, Noise, check_noise
from tacit.graph import Graph
from tacit.privacy.masks import Masks, check_masks, edge_mask_tensors


@dataclass(frozen=True)
class SplittingState:
    """Models w [n, P]; own zᵢ|ⱼ and the neighbours' zⱼ|ᵢ, a row per out-edge i→j, both [e, P]."""

    theta: Tensor
    z: Tensor
    z_there: Tensor


@dataclass(frozen=True)
class Splitting(Algorithm):
    """PDMM or ADMM, by the value of θ, `averaging`."""

    averaging: ClassVar[float]
    requires: ClassVar[tuple[str, ...]] = ("connected", "undirected")
    tolerates: ClassVar[Tolerance] = refused(EDGE_VARIABLES)
    mixes: ClassVar[bool] = False
    protects: ClassVar[str] = (
        "the gradient, by noise outside the subspace of convergence; not its differences"
    )
    protecting_neighbours: ClassVar[int] = 2
    unsupported: ClassVar[Mapping[str, str]] = {
        "momentum": "a client solves a new local problem in every iteration",
        "optimizer": "a client solves a new local problem in every iteration; choose its solver",
    }

    rho: float = 0.4
    solver: Solver = QuadraticSolver()
    noise: Noise = Gaussian(0.01)
    masks: Masks = "derived"
    weight_decay: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_positive("rho", self.rho, example=0.4)
        check_solver(self.solver)
        check_noise(self.noise)
        check_masks(self.masks)
        check_weight_decay(self.weight_decay)

    @property
    def gradients_per_step(self) -> int:
        return self.solver.gradients

    @property
    def needs_minimiser(self) -> bool:
        return self.solver.minimises

    def cautions(self, graph: Graph) -> list[str]:
        """Gradient steps that are too long: w ← w − μ(… + ρdw) needs μρd < 2."""
        curvature = self.rho * float(np.bincount(graph.edges[:, 0], minlength=1).max())
        mu = self.solver.step_size
        if curvature * mu < 2:
            return []
        return [
            f"the solver's steps of mu = {mu:.3g} are too long for rho · largest degree = "
            f"{curvature:.3g}: expect divergence unless mu < {2 / curvature:.3g}, or less for "
            "curved losses; lower mu or rho, or use the quadratic solver"
        ]

    def start(self, here: Here) -> SplittingState:
        z, z_there = edge_mask_tensors("z0", self.noise, self.masks, here)
        return SplittingState(here.theta0, z, z_there)

    def step(self, s: SplittingState, here: Here) -> SplittingState:
        # The k-th out-edge and the k-th in-edge are the two directions of one edge.
        graph = here.graph
        signs, degree = graph.signs.to(s.z.dtype), graph.out_degree[:, None].to(s.z.dtype)
        # (ω/2)‖w‖² is one more term of the local problem.
        curvature = self.rho * degree + self.weight_decay
        w = self.solver.solve(s.theta, graph.total_out(signs * s.z), curvature, here)
        change = self.averaging * (s.z - s.z_there + graph.lift(w) * (2 * self.rho * signs))
        received = here.net.send("dz", change)
        return SplittingState(w, s.z + received, s.z_there + change)
