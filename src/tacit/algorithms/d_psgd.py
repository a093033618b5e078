"""D-PSGD, decentralized parallel stochastic gradient descent, in both orders and with momentum."""

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
    """Decentralized parallel SGD (Lian et al. 2017; Xiu et al. 2026, eq. 17 without its protections).

    mᵢ⁺ = β mᵢ + ∇Lᵢ(xᵢ)
    xᵢ⁺ = Σⱼ wᵢⱼ (xⱼ − η mⱼ⁺)       order = "adapt-then-combine"
    xᵢ⁺ = Σⱼ wᵢⱼ xⱼ − η mᵢ⁺         order = "combine-then-adapt", the classic one

    Adapting first, one message x − ηm does what the paper's two messages x and m do.
    """

    name: ClassVar[str] = "d-psgd"
    paper: ClassVar[str] = "Lian et al. 2017; DeFL-VP, section 5.2"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = "nothing: two messages give the gradient"

    lr: Rate  # η
    order: Literal["adapt-then-combine", "combine-then-adapt"] = "adapt-then-combine"
    momentum: float = 0.0  # β

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_momentum(self.momentum)
        check_choice("order", self.order, ("adapt-then-combine", "combine-then-adapt"))

    def start(self, here: Here) -> MomentumState:
        """The first models, at rest."""
        theta = here.theta0
        return MomentumState(theta, momentum=theta.new_zeros(theta.shape))

    def step(self, s: MomentumState, here: Here) -> MomentumState:
        """One gradient, one message."""
        momentum = here.grad(s.theta) + self.momentum * s.momentum
        descent = here.rate(self.lr) * momentum
        if self.order == "adapt-then-combine":
            (theta,) = here.net.mix(theta=s.theta - descent)
        else:
            (theta,) = here.net.mix(theta=s.theta)
            theta = theta - descent
        return MomentumState(theta, momentum)


def check_momentum(momentum: float) -> None:
    """Require a momentum in [0, 1)."""
    check_number("momentum", momentum, at_least=0, below=1, example=0.9, hint="0 for none")
