"""LPPA: gradient tracking with masks that cancel in the sum over all clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.tracking import EXACT_MIXING, REQUIRES, TrackingState, track
from tacit.core.checks import check_count
from tacit.core.here import Here
from tacit.core.noise import Laplace, Noise, check_noise
from tacit.core.schedules import Rate, check_rate
from tacit.graph import Graph
from tacit.privacy.masks import Masks, check_masks, edge_masks


@dataclass(frozen=True)
class LPPA(Algorithm):
    """Lossless privacy-preserving aggregation (Miao et al. 2025, Algorithm 1).

    γᵢ⁰   = ∇Lᵢ(θᵢ⁰) + Σ_out δ_li − Σ_in δ_ij
    θᵢᵗ⁺¹ = Σⱼ wᵢⱼ θⱼᵗ − λ γᵢᵗ
    γᵢᵗ⁺¹ = Σⱼ wᵢⱼ γⱼᵗ + ∇Lᵢ(θᵢᵗ⁺¹) − ∇Lᵢ(θᵢᵗ)  (+ new Σ_out δ − Σ_in δ with fresh=True)

    One client adds each mask and another subtracts it, so Σᵢγᵢᵗ = Σᵢ∇Lᵢ(θᵢᵗ) holds as without
    masks, and the limit is the same.

    Args:
        lr: Step size λ, a number or a schedule.
        noise: Distribution of the masks δ.
        fresh: Draw new masks in every iteration, not only at the start.
        masks: "derived" from pairwise keys, or "sent" over a private channel as published.
        local_steps: Updates per exchange.

    >>> import torch, tacit
    >>> task = tacit.quadratic(torch.eye(2).double().repeat(4, 1, 1), torch.ones(4, 2).double())
    >>> graph = tacit.Topology.ring(4).mixing("metropolis")
    >>> algorithm = tacit.LPPA(lr=0.2, noise=tacit.Laplace(1.0))
    >>> run = tacit.simulate(algorithm, task, graph, steps=300)
    >>> bool((run.theta - task.optimum).abs().max() < 1e-6)
    True
    """

    name: ClassVar[str] = "lppa"
    paper: ClassVar[str] = "Miao et al. 2025 (LPPA), Algorithm 1"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    exact_mixing: ClassVar[str] = (
        f"{EXACT_MIXING}; and the masks cancel only in that sum: what is clipped or left out of a "
        "masked row leaves a part of its mask in the models, for good"
    )
    protects: ClassVar[str] = "the gradient, by masks that cancel in the sum"
    protecting_neighbours: ClassVar[int] = 2

    lr: Rate
    noise: Noise = Laplace(0.025)
    fresh: bool = False
    masks: Masks = "derived"
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_noise(self.noise)
        check_count("local_steps", self.local_steps)
        check_masks(self.masks)

    def cautions(self, graph: Graph) -> list[str]:
        """Clients with one neighbour, which shares every term of their mask."""
        both_ways = np.unique(np.concatenate((graph.edges, graph.edges[:, ::-1])), axis=0)
        neighbours = np.bincount(both_ways[:, 0], minlength=graph.clients)
        exposed = np.flatnonzero(neighbours == 1)
        if not len(exposed):
            return []
        who = ", ".join(map(str, exposed[:5])) + (", …" if len(exposed) > 5 else "")
        return [
            f"lppa does not protect {len(exposed)} of {graph.clients} clients ({who}) from their "
            "only neighbour, which knows their whole mask; give each client two neighbours or more"
        ]

    @property
    def gradients_per_step(self) -> int:
        return self.local_steps

    def start(self, here: Here) -> TrackingState:
        theta = here.theta0
        grad = here.grad(theta)
        return TrackingState(theta, gamma=grad + self._masks(here), grad=grad)

    def step(self, s: TrackingState, here: Here) -> TrackingState:
        s = track(s, here, self.lr, self.local_steps)
        if not self.fresh:
            return s
        return TrackingState(s.theta, s.gamma + self._masks(here), s.grad)

    def _masks(self, here: Here) -> Tensor:
        """Σ_out δ − Σ_in δ of each client; the sum over all clients is zero."""
        return here.graph.net_out(*edge_masks("delta", self.noise, self.masks, here))
