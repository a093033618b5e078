"""LPPA: gradient tracking with masks that cancel in the sum over all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from tacit.algorithms.local_optimizer import MomentumAlgorithm
from tacit.algorithms.tolerance import TRACKING, Tolerance
from tacit.algorithms.tracking import EXACT_MIXING, REQUIRES, UNSUPPORTED, TrackingState, track
from tacit.core.checks import check_count, check_flag
from tacit.core.here import Here
from tacit.core.noise import Laplace, Noise, check_noise
from tacit.graph import Graph
from tacit.privacy.masks import Masks, check_masks, edge_masks


@dataclass(frozen=True)
class LPPA(MomentumAlgorithm):
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
        momentum: Momentum β in [0, 1), on the tracker.
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective L + (ω/2)‖θ‖².

    >>> import torch, tacit
    >>> task = tacit.quadratic(torch.eye(2).double().repeat(4, 1, 1), torch.ones(4, 2).double())
    >>> graph = tacit.Topology.ring(4).mixing("metropolis")
    >>> algorithm = tacit.LPPA(lr=0.2, noise=tacit.Laplace(1.0))
    >>> run = tacit.run(task, algorithm, graph, steps=300)
    >>> bool((run.theta - task.optimum).abs().max() < 1e-6)
    True
    """

    name: ClassVar[str] = "lppa"
    paper: ClassVar[str] = "Miao et al. 2025 (LPPA), Algorithm 1"
    known_as: ClassVar[str] = (
        "gradient tracking with pairwise zero-sum masks, as in secure aggregation"
    )
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    exact_mixing: ClassVar[str] = (
        f"{EXACT_MIXING}; and the masks cancel only in that sum: what is clipped or left out of a "
        "masked row leaves a part of its mask in the models, for good"
    )
    tolerates: ClassVar[Tolerance] = replace(
        TRACKING,
        only_with=(
            "fresh",
            True,
            "masks of the start are shared with the first neighbours, and protect from no others",
        ),
    )
    unsupported: ClassVar[Mapping[str, str]] = {
        "optimizer": f"{UNSUPPORTED['optimizer']}, so masks would not cancel in its steps"
    }
    protects: ClassVar[str] = "the gradient, by masks that cancel in the sum"
    protecting_neighbours: ClassVar[int] = 2

    noise: Noise = Laplace(0.025)
    fresh: bool = False
    masks: Masks = "derived"
    local_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_noise(self.noise)
        check_flag("fresh", self.fresh)
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
        grad = self.local.gradient(theta, here)
        return TrackingState(theta, grad + self._masks(here), grad, self.local.memory(theta))

    def step(self, s: TrackingState, here: Here) -> TrackingState:
        s = track(s, here, self.lr, self.local_steps, self.local)
        if not self.fresh:
            return s
        return replace(s, gamma=s.gamma + self._masks(here))

    def _masks(self, here: Here) -> Tensor:
        """Σ_out δ − Σ_in δ of each client; the sum over all clients is zero."""
        return here.graph.net_out(*edge_masks("delta", self.noise, self.masks, here))
