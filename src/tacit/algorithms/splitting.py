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

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from tacit.algorithms.solvers import Solver
from tacit.clients import Clients
from tacit.errors import Misuse
from tacit.privacy.noise import Noise

REQUIRES = ("connected", "undirected")

Masks = Literal["derived", "sent"]


@dataclass(frozen=True)
class Split:
    """Models w [n, P]; own zᵢ|ⱼ and the neighbours' zⱼ|ᵢ, a row per out-edge i→j, both [e, P]."""

    theta: Tensor
    z: Tensor
    z_there: Tensor


def begin(here: Clients, noise: Noise, masks: Masks) -> Split:
    """z⁰ at both ends of each edge: derived from their common key, or sent over a private channel."""
    told, heard = here.edge_noise("z0", noise)
    z = told.tensor()
    if masks == "derived":
        return Split(here.theta0, z, z_there=heard.tensor())
    return Split(here.theta0, z, z_there=here.net.send("z0", z, private=True))


def exchange(s: Split, here: Clients, rho: float, solver: Solver, averaging: float) -> Split:
    """One iteration with θ = `averaging`; the k-th out-edge and the k-th in-edge are one edge."""
    graph = here.graph
    signs, degree = graph.signs.to(s.z.dtype), graph.out_degree[:, None].to(s.z.dtype)
    w = solver.solve(s.theta, graph.total_out(signs * s.z), rho * degree, here)
    change = averaging * (s.z - s.z_there + graph.lift(w) * (2 * rho * signs))
    received = here.net.send("dz", change)
    return Split(w, s.z + received, s.z_there + change)


def check_rho(rho: float) -> None:
    """Refuse a ρ that is not a positive number."""
    number = isinstance(rho, int | float) and not isinstance(rho, bool)
    if not (number and math.isfinite(rho) and rho > 0):
        raise Misuse(f"rho is {rho!r}.", "Give a number above zero, e.g. rho = 0.4.")


def check_masks(masks: str) -> None:
    """Refuse another way to share z⁰."""
    if masks not in ("derived", "sent"):
        raise Misuse(f"masks is {masks!r}.", 'Choose "derived" (no bytes) or "sent" (as published).')
