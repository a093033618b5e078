"""DECOR: decentralized SGD with noise that partly cancels between neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tacit.algorithms.algorithm import COMPUTED
from tacit.algorithms.local_optimizer import MomentumAlgorithm, OptimizerState, decayed
from tacit.algorithms.private_algorithm import PrivateAlgorithm
from tacit.algorithms.tolerance import Tolerance, refused
from tacit.core.checks import check_number, check_positive
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.core.noise import Gaussian
from tacit.graph import Graph
from tacit.privacy.correlated_noise import CorrelatedNoise, correlated_noise
from tacit.privacy.guarantee import Budget, Privacy
from tacit.privacy.population import Population


@dataclass(frozen=True)
class Decor(MomentumAlgorithm, PrivateAlgorithm):
    """Decentralized SGD with pairwise correlated noise (Allouah et al. 2024, Algorithm 1).

    gᵢ  = Σ_{samples drawn by i} ∇ℓ(θᵢ) min(1, C/‖∇ℓ(θᵢ)‖)
    θᵢ⁺ = Σⱼ wᵢⱼ (θⱼ − (λ/B) (gⱼ + uⱼ + Σ_out v − Σ_in v))

    uⱼ is own noise. The noise v of an edge is known to both ends and cancels in the sum over all
    clients, but not at once in their models. With `correlation` = 0 all noise is local. B is the
    expected number of samples that one client draws. Gradients are sums in floating point, and so
    is the noise: the guarantee is that of ideal noise, and the last digits of messages break it.

    Args:
        lr: Step size λ, a number or a schedule.
        clip: The bound C on the norm of one sample's gradient.
        correlation: Standard deviation of the noise on one edge over that of own noise.
        momentum: Momentum β in [0, 1), of gradients with their noise, so that it costs no privacy.
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective L + (ω/2)‖θ‖². It uses no data.
        mechanism: Sampling and noise; `prepared` computes it.
    """

    name: ClassVar[str] = "decor"
    paper: ClassVar[str] = "Allouah et al. 2024 (DECOR), Algorithm 1"
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

    clip: float = 1.0
    correlation: float = 10.0
    mechanism: CorrelatedNoise | None = field(default=None, metadata={COMPUTED: True})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("clip", self.clip, example=1.0)
        check_number("correlation", self.correlation, at_least=0, example=10)

    def prepared(self, promise: Privacy, facts: Population, graph: Graph) -> Decor:
        mechanism = correlated_noise(promise, self.clip, self.correlation, facts, graph)
        return replace(self, mechanism=mechanism)

    def remarks(self, graph: Graph) -> list[str]:
        return ["the guarantee is one for ideal noise: noise in floating point tells more"]

    @property
    def budget(self) -> Budget | None:
        return None if self.mechanism is None else self.mechanism.budget

    @property
    def facts(self) -> Population | None:
        return None if self.mechanism is None else self.mechanism.facts

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
        total = decayed(total, s.theta, noise.expected * self.weight_decay)
        direction, momentum = self.local.direction(total, s.momentum)
        rate = here.rate(self.lr) / noise.expected
        (theta,) = here.net.mix(theta=s.theta - rate * direction)
        return OptimizerState(theta, momentum)
