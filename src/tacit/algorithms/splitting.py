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

import numpy as np
from torch import Tensor

from tacit.algorithms.solvers import Solver, check_solver
from tacit.arguments import is_number
from tacit.clients import Clients
from tacit.errors import Misuse
from tacit.graph import Graph
from tacit.privacy.masks import Masks, check_masks, shared
from tacit.privacy.noise import Noise, check_noise

REQUIRES = ("connected", "undirected")


@dataclass(frozen=True)
class Split:
    """Models w [n, P]; own zᵢ|ⱼ and the neighbours' zⱼ|ᵢ, a row per out-edge i→j, both [e, P]."""

    theta: Tensor
    z: Tensor
    z_there: Tensor


def begin(here: Clients, noise: Noise, masks: Masks) -> Split:
    """The first models, and z⁰ at both ends of each edge."""
    told, heard = (
        rows if isinstance(rows, Tensor) else rows.tensor() for rows in shared("z0", noise, masks, here)
    )
    return Split(here.theta0, z=told, z_there=heard)


def exchange(s: Split, here: Clients, rho: float, solver: Solver, averaging: float) -> Split:
    """One iteration with θ = `averaging`; the k-th out-edge and the k-th in-edge are one edge."""
    graph = here.graph
    signs, degree = graph.signs.to(s.z.dtype), graph.out_degree[:, None].to(s.z.dtype)
    w = solver.solve(s.theta, graph.total_out(signs * s.z), rho * degree, here)
    change = averaging * (s.z - s.z_there + graph.lift(w) * (2 * rho * signs))
    received = here.net.send("dz", change)
    return Split(w, s.z + received, s.z_there + change)


def check(rho: float, solver: Solver, noise: Noise, masks: str) -> None:
    """Refuse options that cannot be."""
    if not (is_number(rho) and rho > 0):
        raise Misuse(f"rho is {rho!r}.", "Give a number above zero, e.g. rho = 0.4.")
    check_solver(solver)
    check_noise(noise)
    check_masks(masks)


def cautions(rho: float, solver: Solver, graph: Graph) -> list[str]:
    """Gradient steps that are too long for the pull of the neighbours: w ← w − μ(… + ρdw) needs μρd < 2."""
    pull = rho * float(np.bincount(graph.edges[:, 0], minlength=1).max())
    if pull * solver.step_size < 2:
        return []
    return [
        f"the solver's steps of mu = {solver.step_size:.3g} are too long for rho · largest degree = {pull:.3g}: "
        f"expect divergence unless mu < {2 / pull:.3g}; lower mu or rho, or use the quadratic solver"
    ]
