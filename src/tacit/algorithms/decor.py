"""DECOR: decentralized SGD with noise that partly cancels between neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from tacit.algorithms.algorithm import COMPUTED
from tacit.algorithms.local_optimizer import MomentumAlgorithm, OptimizerState, decayed
from tacit.algorithms.private_algorithm import PrivateAlgorithm
from tacit.algorithms.tolerance import Tolerance, refused
from tacit.core.checks import check_number
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.core.noise import Gaussian
from tacit.graph import Graph
from tacit.privacy.correlated_noise import CorrelatedNoise
from tacit.privacy.guarantee import Privacy
from tacit.privacy.population import Population


@dataclass(frozen=True)
class Decor(MomentumAlgorithm, PrivateAlgorithm):
    """Decentralized SGD with pairwise correlated noise (Allouah et al. 2024, Algorithm 1).

    gᵢ  = Σ_{samples drawn by i} ∇ℓ(θᵢ) min(1, C/‖∇ℓ(θᵢ)‖)
    θᵢ⁺ = Σⱼ wᵢⱼ (θⱼ − (λ/B) (gⱼ + uⱼ + Σ_out v − Σ_in v))

    C is the clipping bound of the guarantee. uⱼ is own noise. The noise v of an edge is known to
    both ends and cancels in the sum over all clients, but not at once in their models. With
    `correlation` = 0 all noise is local. B is the expected number of samples that one client draws.
    Gradients are sums in floating point, and so is the noise: the guarantee is that of ideal noise,
    and the last digits of messages break it.

    Args:
        lr: Step size λ, a number or a schedule.
        correlation: Standard deviation of the noise on one edge over that of own noise.
        momentum: Momentum β in [0, 1), of gradients with their noise, so that it costs no privacy.
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective L + (ω/2)‖θ‖². It uses no data.
        mechanism: Sampling, clipping and noise; `prepared` computes it.
    """

    name: ClassVar[str] = "decor"
    paper: ClassVar[str] = "Allouah et al. 2024 (DECOR), Algorithm 1"
    known_as: ClassVar[str] = "decentralized SGD with correlated noise (DECOR)"
    requires: ClassVar[tuple[str, ...]] = ("undirected", "doubly stochastic", "primitive")
    exact_mixing: ClassVar[str] = "the noise of neighbours cancels only in their weighted sum"
    tolerates: ClassVar[Tolerance] = refused(
        "its guarantee is computed for one graph, all of whose clients add noise in every iteration"
    )
    protects: ClassVar[str] = (
        "gradients, by noise that partly cancels, with a guarantee for the run"
    )
    protecting_neighbours: ClassVar[int] = 2
    unsupported: ClassVar[Mapping[str, str]] = {
        "optimizer": "noise of neighbours cancels only in linear combinations, and Adam makes none"
    }

    correlation: float = 10.0
    mechanism: CorrelatedNoise | None = field(default=None, kw_only=True, metadata={COMPUTED: True})

    def __post_init__(self, clip: None) -> None:
        MomentumAlgorithm.__post_init__(self)
        PrivateAlgorithm.__post_init__(self, clip)
        check_number("correlation", self.correlation, at_least=0, example=10)
        if self.mechanism is not None and self.mechanism.ratio != self.correlation:
            raise Misuse(
                f"correlation is {self.correlation}, but the noise was computed for "
                f"{self.mechanism.ratio}.",
                "Change it before the algorithm is prepared, or set mechanism = None, too.",
            )

    def prepared(self, promise: Privacy, facts: Population, graph: Graph) -> Decor:
        mechanism = CorrelatedNoise(promise, facts, self.correlation, graph)
        return replace(self, mechanism=mechanism)

    def check_graph(self, graph: Graph) -> None:
        """Raise Misuse also if the noise was computed for other neighbours."""
        super().check_graph(graph)
        if self.mechanism is None:
            return
        ours = self.mechanism.graph
        if graph.clients != ours.clients or not np.array_equal(graph.edges, ours.edges):
            raise Misuse(
                f"The noise of decor was computed for {ours}, and this is {graph}.",
                "Give `privacy` again: it is computed anew.",
            )

    def remarks(self, graph: Graph) -> list[str]:
        return ["the guarantee is one for ideal noise: noise in floating point tells more"]

    def start(self, here: Here) -> OptimizerState:
        theta = here.theta0
        return OptimizerState(theta, self.local.memory(theta))

    def step(self, s: OptimizerState, here: Here) -> OptimizerState:
        noise = self.mechanism
        if noise is None:
            raise Misuse("decor has no guarantee to keep.", "Give one: [privacy] epsilon = 3.")
        sampling = noise.bound, noise.sampling_rate
        total = here.clipped_sum(s.theta, *sampling, rounding=noise.rounding)
        # Each direction of an edge has half the variance.
        edges = here.edge_noise("v", Gaussian(noise.shared / 2**0.5))
        total = total + here.noise("u", Gaussian(noise.own)) + here.graph.net_out(*edges)
        total = decayed(total, s.theta, noise.expected_each * self.weight_decay)
        direction, momentum = self.local.direction(total, s.momentum)
        rate = here.rate(self.lr) / noise.expected_each
        (theta,) = here.net.mix(theta=s.theta - rate * direction)
        return OptimizerState(theta, momentum)
