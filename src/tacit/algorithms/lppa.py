"""LPPA, lossless privacy-preserving aggregation: masks that cancel over the whole graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.algorithms.tracking import REQUIRES, Tracking, check_local_steps, track
from tacit.core.here import Here
from tacit.core.noise import Laplace, Noise, check_noise
from tacit.core.rows import Rows
from tacit.core.schedules import Rate, check_rate
from tacit.graph import Graph
from tacit.privacy.masks import Masks, check_masks, shared


@dataclass(frozen=True)
class LPPA:
    """Lossless privacy-preserving aggregation (Miao et al. 2025, Algorithm 1).

    γᵢ⁰   = ∇Lᵢ(θᵢ⁰) + Σ_out δ_li − Σ_in δ_ij
    θᵢᵗ⁺¹ = Σⱼ wᵢⱼ θⱼᵗ − λ γᵢᵗ
    γᵢᵗ⁺¹ = Σⱼ wᵢⱼ γⱼᵗ + ∇Lᵢ(θᵢᵗ⁺¹) − ∇Lᵢ(θᵢᵗ)  (+ new Σ_out δ − Σ_in δ with fresh=True)

    What one client adds another subtracts, so Σᵢγᵢᵗ = Σᵢ∇Lᵢ(θᵢᵗ) holds as without masks: nothing is lost.
    """

    name: ClassVar[str] = "lppa"
    paper: ClassVar[str] = "Miao et al. 2025 (LPPA), Algorithm 1"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = "the gradient, by masks that cancel in the sum"

    lr: Rate
    noise: Noise = Laplace(0.025)
    fresh: bool = False  # True: new masks every iteration, not only at the start
    masks: Masks = "derived"  # from pairwise keys, or sent over a private channel as published
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_noise(self.noise)
        check_local_steps(self.local_steps)
        check_masks(self.masks)

    def cautions(self, graph: Graph) -> list[str]:
        """Clients whose whole mask one neighbour knows, because it shares every term of it."""
        both_ways = np.unique(np.concatenate((graph.edges, graph.edges[:, ::-1])), axis=0)
        neighbours = np.bincount(both_ways[:, 0], minlength=graph.clients)
        exposed = np.flatnonzero(neighbours == 1)
        if not len(exposed):
            return []
        who = ", ".join(map(str, exposed[:5])) + (", …" if len(exposed) > 5 else "")
        return [
            f"lppa protects {len(exposed)} of {graph.clients} clients from nobody who talks to them: "
            f"the only neighbour of client {who} knows every mask there; give each client two neighbours or more"
        ]

    def start(self, here: Here) -> Tracking:
        """γ⁰ is the gradient plus the noise difference."""
        theta = here.theta0
        grad = here.grad(theta)
        return Tracking(theta, gamma=here.graph.net_out(*self._masks(here)).add_(grad), grad=grad)

    def step(self, s: Tracking, here: Here) -> Tracking:
        """As DSGT; a fresh noise difference joins the tracker before it is sent again if asked for."""
        s = track(s, here, self.lr, self.local_steps)
        if self.fresh:
            here.graph.add_net_out(s.gamma, *self._masks(here))
        return s

    def _masks(self, here: Here) -> tuple[Rows, Rows]:
        """δ of each out-edge and of each in-edge; Σ_out − Σ_in of all clients together is zero."""
        return shared("delta", self.noise, self.masks, here)
