"""Private SGD: nothing is learnt but a noisy sum over all clients, with a guarantee for the run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import networkx as nx
from torch import Tensor

from tacit.algorithms.algorithm import COMPUTED
from tacit.algorithms.local_optimizer import (
    BETAS,
    BiasCorrection,
    OptimizerName,
    adam,
    check_momentum,
    check_optimizer,
    check_weight_decay,
    decayed,
)
from tacit.algorithms.private_algorithm import PrivateAlgorithm
from tacit.algorithms.tolerance import Tolerance, refused
from tacit.core.checks import check_count, check_positive
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate
from tacit.graph import Graph
from tacit.privacy.clipping import Clip
from tacit.privacy.guarantee import Privacy
from tacit.privacy.population import Population
from tacit.privacy.private_sum import PrivateSum


@dataclass(frozen=True)
class PrivateState:
    """The model and the optimizer's moments, equal at all clients: [n, P] each."""

    theta: Tensor
    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class PrivateSGD(PrivateAlgorithm):
    """SGD on masked, noisy sums of clipped gradients.

    gᵢ = Σ_{samples drawn by i} ∇ℓ(θ) min(1, C/‖∇ℓ(θ)‖)
    G  = Σᵢ (gᵢ + ζᵢ)        (`net.total`: clients learn nothing else)
    v⁺ = μ v + G / B         (B: the expected number of samples drawn)
    θ⁺ = θ − λ v⁺

    or, with optimizer = "adam" (Kingma & Ba 2015, section 2),

    m⁺ = β₁ m + (1 − β₁) G/B,   s⁺ = β₂ s + (1 − β₂) (G/B)²
    θ⁺ = θ − λ √(1 − β₂ᵗ)/(1 − β₁ᵗ) · m⁺/(√s⁺ + ϵ)

    Weight decay adds ωθ to G/B, or with optimizer = "adamw" − λωθ to θ⁺. All this is computed from
    the total, so it costs no privacy.

    Each sample is drawn with the same probability. C is the clipping bound of the guarantee. ζᵢ is
    integer noise, such that the noise of the honest clients together has standard deviation σC.
    With unit = "client" a client takes `local_steps` plain steps of size `local_lr`, and gᵢ is the
    sum of their gradients, clipped.

    Args:
        lr: Step size λ, a number or a schedule.
        momentum: μ.
        optimizer: What is done with the totals: "sgd", "adam" or "adamw".
        betas: β₁ and β₂ of Adam.
        local_steps: Steps of a client between two totals; unit = "client" only.
        local_lr: Step size of these steps.
        weight_decay: ω, for the objective L + (ω/2)‖θ‖²; decoupled with "adamw".
        mechanism: Sampling, clipping, noise and encoding; `prepared` computes it.
    """

    name: ClassVar[str] = "private-sgd"
    paper: ClassVar[str] = "Abadi et al. 2016 (DP-SGD), with masked sums in place of a server"
    known_as: ClassVar[str] = "distributed DP-SGD with secure aggregation"
    requires: ClassVar[tuple[str, ...]] = ("undirected", "connected")
    tolerates: ClassVar[Tolerance] = refused(
        "its sum and its guarantee are of all clients, and go along one spanning tree"
    )
    mixes: ClassVar[bool] = False
    protects: ClassVar[str] = "everything but the noisy sum, with a guarantee for the whole run"
    needs_total: ClassVar[bool] = True
    protecting_neighbours: ClassVar[int] = 2

    lr: Rate
    momentum: float = 0.0
    optimizer: OptimizerName = "sgd"
    betas: tuple[float, float] = BETAS
    local_steps: int = 1
    local_lr: float = 0.1
    weight_decay: float = field(default=0.0, kw_only=True)
    mechanism: PrivateSum | None = field(default=None, kw_only=True, metadata={COMPUTED: True})

    def __post_init__(self, clip: None) -> None:
        super().__post_init__(clip)
        check_rate("lr", self.lr)
        check_momentum(self.momentum)
        check_weight_decay(self.weight_decay)
        check_optimizer(self.optimizer, self.momentum, self.betas)
        check_count("local_steps", self.local_steps)
        check_positive("local_lr", self.local_lr, example=0.1)
        mechanism = self.mechanism
        if mechanism is not None and mechanism.unit == "sample" and self.local_steps > 1:
            raise Misuse(
                f"With {self.local_steps} local steps a sample has an influence on later ones.",
                'Protect clients instead (unit = "client"), or set local_steps = 1.',
            )

    def prepared(self, promise: Privacy, facts: Population, graph: Graph) -> PrivateSGD:
        return replace(self, mechanism=PrivateSum(promise, facts))

    def cautions(self, graph: Graph) -> list[str]:
        """Single clients that learn more than the sum over all others."""
        plain = nx.Graph(graph.edges.tolist())
        alone = [client for client, degree in plain.degree if degree == 1]
        cut = sorted(set(nx.articulation_points(plain)))
        cautions = super().cautions(graph)
        if alone:
            cautions.append(
                f"{_listed(alone)} has one neighbour, which knows all of its mask: against that "
                "neighbour only its own noise protects it; give each client two neighbours or more"
            )
        elif cut:
            cautions.append(
                f"without {_listed(cut)} the graph falls apart: a curious client there learns the "
                "sums of the parts, with less noise than the sum of all; add edges between them"
            )
        return cautions

    @property
    def gradients_per_step(self) -> int:
        return self.local_steps

    def start(self, here: Here) -> PrivateState:
        theta = here.theta0
        return PrivateState(theta, first=0.0 * theta, second=0.0 * theta)

    def step(self, s: PrivateState, here: Here) -> PrivateState:
        mechanism = self._mechanism()
        if mechanism.unit == "client":
            update = self._local_update(s.theta, here, mechanism.bound)
        else:
            sampling = mechanism.bound, mechanism.sampling_rate
            update = here.clipped_sum(s.theta, *sampling, rounding=mechanism.rounding)
        (total,) = here.net.total(update=here.fixed_point("update", update, mechanism.code))
        mean, rate = (1 / mechanism.expected) * total, here.rate(self.lr)
        if self.optimizer != "adamw":
            mean = decayed(mean, s.theta, self.weight_decay)
        if self.optimizer == "sgd":
            first = self.momentum * s.first + mean
            return PrivateState(s.theta - rate * first, first, s.second)
        direction, first, second = adam(mean, s.first, s.second, self.betas, here)
        descent = rate * here.rate(BiasCorrection(self.betas)) * direction
        if self.optimizer == "adamw" and self.weight_decay:
            descent = descent + rate * self.weight_decay * s.theta
        return PrivateState(s.theta - descent, first, second)

    def _local_update(self, theta: Tensor, here: Here, bound: float) -> Tensor:
        """Σ ∇Lᵢ over the local steps of each client, clipped."""
        total = here.grad(theta)
        for local in range(1, self.local_steps):
            total = total + here.grad(theta - self.local_lr * total, local)
        if math.isinf(bound):
            return total
        return here.nonlinear("clip", Clip(bound).clipped, total, deterministic=True)

    def _mechanism(self) -> PrivateSum:
        if self.mechanism is None:
            raise Misuse(
                "private-sgd has no guarantee to keep.",
                "Give one: [privacy] epsilon = 3 in a configuration, or "
                "tacit.run(…, privacy=tacit.Privacy(epsilon=3)).",
            )
        return self.mechanism


def _listed(clients: list[int]) -> str:
    """The first of some clients, by number."""
    more = f" (and {len(clients) - 1} more)" if len(clients) > 1 else ""
    return f"client {min(clients)}{more}"
