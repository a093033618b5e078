"""NIDS: decentralized learning whose step size does not depend on the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate


@dataclass(frozen=True)
class Differences:
    """Model, model of the iteration before, and gradient there; all [n, P]."""

    theta: Tensor
    previous: Tensor
    grad: Tensor


@dataclass(frozen=True)
class NIDS(Algorithm):
    """Network-independent step sizes (Li, Shi and Yan 2019, Algorithm 1 with one step size).

    θᵢ¹   = θᵢ⁰ − α ∇Lᵢ(θᵢ⁰)
    zᵢ    = 2θᵢ − θᵢ⁻ − α (∇Lᵢ(θᵢ) − ∇Lᵢ(θᵢ⁻))
    θᵢ⁺   = ½ (zᵢ + Σⱼ wᵢⱼ zⱼ)
    """

    name: ClassVar[str] = "nids"
    paper: ClassVar[str] = "Li, Shi and Yan 2019"
    requires: ClassVar[tuple[str, ...]] = ("connected", "doubly stochastic", "symmetric")
    protects: ClassVar[str] = "nothing: all neighbours together compute the gradients"

    lr: Rate  # α

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)

    def start(self, here: Here) -> Differences:
        theta = here.theta0
        grad = here.grad(theta)
        return Differences(theta - here.rate(self.lr) * grad, previous=theta, grad=grad)

    def step(self, s: Differences, here: Here) -> Differences:
        grad = here.grad(s.theta)
        z = 2.0 * s.theta - s.previous - here.rate(self.lr) * (grad - s.grad)
        (mixed,) = here.net.mix(z=z)
        return Differences(0.5 * z + 0.5 * mixed, s.theta, grad)
