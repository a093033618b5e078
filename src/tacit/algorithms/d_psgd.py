"""D-PSGD: decentralized parallel stochastic gradient descent in both orders, with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import REQUIRES
from tacit.core.checks import check_choice, check_number
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate


@dataclass(frozen=True)
class MomentumState:
    """Model and momentum of each hosted client, both [n, P]."""

    theta: Tensor
    momentum: Tensor


@dataclass(frozen=True)
class DPSGD(Algorithm):
    """Decentralized parallel SGD (Lian et al. 2017; DeFL-VP paper, eq. 17 without protections).

    mᵢ⁺ = β mᵢ + ∇Lᵢ(xᵢ)
    xᵢ⁺ = Σⱼ wᵢⱼ (xⱼ − η mⱼ⁺)       order = "adapt-then-combine"
    xᵢ⁺ = Σⱼ wᵢⱼ xⱼ − η mᵢ⁺         order = "combine-then-adapt"

    Adapt-then-combine sends one message x − ηm in place of the paper's two, x and m.

    Args:
        lr: Step size η, a number or a schedule.
        order: "adapt-then-combine", or the classic "combine-then-adapt".
        momentum: Momentum β in [0, 1).
    """

    name: ClassVar[str] = "d-psgd"
    paper: ClassVar[str] = "Lian et al. 2017; DeFL-VP, section 5.2"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = (
        "nothing: with equal initial models, the first messages reveal the first gradient"
    )

    lr: Rate
    order: Literal["adapt-then-combine", "combine-then-adapt"] = "adapt-then-combine"
    momentum: float = 0.0

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_momentum(self.momentum)
        check_choice("order", self.order, ("adapt-then-combine", "combine-then-adapt"))

    def start(self, here: Here) -> MomentumState:
        theta = here.theta0
        return MomentumState(theta, momentum=theta.new_zeros(theta.shape))

    def step(self, s: MomentumState, here: Here) -> MomentumState:
        momentum = here.grad(s.theta) + self.momentum * s.momentum
        descent = here.rate(self.lr) * momentum
        if self.order == "adapt-then-combine":
            (theta,) = here.net.mix(theta=s.theta - descent)
        else:
            (theta,) = here.net.mix(theta=s.theta)
            theta = theta - descent
        return MomentumState(theta, momentum)


def check_momentum(momentum: float) -> None:
    check_number("momentum", momentum, at_least=0, below=1, example=0.9, hint="0 for none")
