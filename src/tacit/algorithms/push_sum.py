"""Push-sum: stochastic gradient descent on directed graphs, which may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.algorithms.local_optimizer import MomentumAlgorithm
from tacit.algorithms.tolerance import Tolerance
from tacit.core.here import Here


@dataclass(frozen=True)
class PushSumState:
    """Model, numerator and momentum, if any, [n, P], and weight [n, 1] of each hosted client."""

    theta: Tensor
    numerator: Tensor
    weight: Tensor
    momentum: Tensor | None = None


@dataclass(frozen=True)
class PushSum(MomentumAlgorithm):
    """Stochastic gradient push (Nedić and Olshevsky 2015; Assran et al. 2019, Algorithm 1).

    xᵢ⁺ = Σⱼ pᵢⱼ (xⱼ − λ ∇Lⱼ(θⱼ))       x⁰ = θ⁰
    wᵢ⁺ = Σⱼ pᵢⱼ wⱼ                     w⁰ = 1
    θᵢ⁺ = xᵢ⁺ / wᵢ⁺

    Only the columns of P must sum to one: a client must know how many others it sends to, not who
    they are to others. Then Σᵢxᵢ changes by gradients alone, and dividing by w removes the bias of
    rows that do not sum to one. Late messages are used once, when they arrive, so sums of x and of
    w over clients and messages on their way are kept, too (Assran and Rabbat 2021). Constant steps
    lead to a neighbourhood of the optimum, decreasing ones to the optimum.

    Args:
        lr: Step size λ, a number or a schedule.
        momentum: Momentum β in [0, 1).
        nesterov: Nesterov's form of it.
        weight_decay: ω, for the objective L + (ω/2)‖θ‖².

    >>> import torch, tacit
    >>> task = tacit.quadratic(torch.eye(2).double().repeat(4, 1, 1), torch.ones(4, 2).double())
    >>> graph = tacit.Topology.directed_ring(4).mixing("out-degree")
    >>> run = tacit.run(task, tacit.PushSum(lr=0.2), graph, steps=100)
    >>> bool((run.theta - task.optimum).abs().max() < 1e-6)
    True
    """

    name: ClassVar[str] = "push-sum"
    paper: ClassVar[str] = "Nedić and Olshevsky 2015; Assran et al. 2019"
    known_as: ClassVar[str] = "stochastic gradient push (SGP), subgradient-push"
    requires: ClassVar[tuple[str, ...]] = ("connected", "column stochastic", "primitive")
    exact_mixing: ClassVar[str] = "its weights correct the models only if mixing keeps both sums"
    # A late message has its share of the model and of the weight: nothing is lost on the way.
    tolerates: ClassVar[Tolerance] = Tolerance("", "", "", uses_once=True)
    unsupported: ClassVar[Mapping[str, str]] = {
        "optimizer": "its models are sums divided by weights, and Adam's steps are no such sums"
    }
    protects: ClassVar[str] = (
        "nothing: with equal initial models, the first message reveals the first gradient"
    )

    def start(self, here: Here) -> PushSumState:
        theta = here.theta0
        weight = theta.new_ones((theta.shape[0], 1))
        return PushSumState(theta, here.theta0, weight, self.local.memory(theta))

    def step(self, s: PushSumState, here: Here) -> PushSumState:
        grad = self.local.gradient(s.theta, here)
        direction, momentum = self.local.direction(grad, s.momentum)
        moved = s.numerator - here.rate(self.lr) * direction
        numerator, weight = here.net.mix(numerator=moved, weight=s.weight)
        return PushSumState(numerator / weight, numerator, weight, momentum)
