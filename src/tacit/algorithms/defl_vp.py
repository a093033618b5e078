"""DeFL-VP: decentralized SGD with variance reduction, randomized response and compression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import REQUIRES
from tacit.algorithms.local_optimizer import check_momentum, check_weight_decay, decayed
from tacit.algorithms.tolerance import Tolerance, refused
from tacit.compression import Codec, RandK, check_codec, for_signs
from tacit.core.checks import check_flag, check_number
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate
from tacit.graph import Graph
from tacit.privacy.randomized_response import RandomizedResponse


@dataclass(frozen=True)
class VariateState:
    """Model, momentum and control variate of each hosted client, all [n, P]."""

    theta: Tensor
    momentum: Tensor
    variate: Tensor


@dataclass(frozen=True)
class DeFLVP(Algorithm):
    """Variance reduction, randomized response, compression (Xiu et al. 2026, Algorithm 1).

    h̄ᵢ  = Σⱼ wᵢⱼ hⱼ;   vᵢ = gᵢ − hᵢ + h̄ᵢ       variance_reduction
    hᵢ⁺ = (1 − α) hᵢ + α gᵢ                    (α ṽᵢ with private_variates)
    ṽᵢ  = RR(vᵢ, ε)                            randomized_response
    qᵢ  = C(ṽᵢ)                                codec
    mᵢ⁺ = β mᵢ + Σⱼ wᵢⱼ qⱼ;   xᵢ⁺ = Σⱼ wᵢⱼ xⱼ − η mᵢ⁺

    Without the three parts this is D-PSGD (adapt-then-combine) with two messages.

    **Leak.** The published algorithm sends the variates h in clear, and g = (h⁺ − (1 − α)h)/α, so
    randomized response protects nothing. `private_variates` computes h from ṽ alone: messages then
    depend on x⁰ and responses only. This costs accuracy: h has the size of a scaled sign instead of
    a gradient, and for small gradients v is mostly h̄ − h.

    **Choices where the paper is ambiguous.** Section 3.2 applies the response to g, Algorithm 1 and
    section 4 apply it to v, as here. The experiments use momentum, the equations have none: here it
    accumulates what was received, which costs no privacy and, for linear messages, equals momentum
    on gradients. ε is the budget of one coordinate and one iteration, as in Algorithm 1;
    Corollary 1 uses it for the whole vector. The paper assumes that no coordinate is zero, but in
    ReLU networks many are. With zeros="plus" they all move in the same direction and more units
    die; with zeros="coin", which is as private, they do not move in the mean.

    Args:
        lr: Step size η, a number or a schedule.
        epsilon: ε of one coordinate and one iteration.
        alpha: Rate α in (0, 1] at which variates follow gradients.
        codec: The compression C of updates.
        momentum: Momentum β in [0, 1).
        variance_reduction: Correct gradients by control variates.
        randomized_response: Send randomized signs of updates instead of updates.
        private_variates: Compute variates from responses. Needs both of the above.
        zeros: The sign of zero: +1 ("plus", as published) or random ("coin").
        weight_decay: ω, for the objective L + (ω/2)‖x‖²: part of g.

    >>> import torch, tacit
    >>> task = tacit.quadratic(torch.eye(2).repeat(4, 1, 1), torch.ones(4, 2))
    >>> graph = tacit.Topology.ring(4).mixing("metropolis")
    >>> algorithm = tacit.DeFLVP(lr=0.01, private_variates=True, codec=tacit.Identity())
    >>> run = tacit.run(task, algorithm, graph, steps=10)
    >>> tuple(run.theta.shape)
    (4, 2)
    """

    name: ClassVar[str] = "defl-vp"
    paper: ClassVar[str] = "Xiu et al. 2026 (DeFL-VP), Algorithm 1"
    known_as: ClassVar[str] = "D-PSGD with SVRG control variates and randomized response on signs"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    exact_mixing: ClassVar[str] = (
        "the control variates remove the differences between clients only if their mixed values "
        "are exact averages"
    )
    tolerates: ClassVar[Tolerance] = refused(
        "its control variates are analysed for one mixing matrix, and all clients update them"
    )
    protects: ClassVar[str] = (
        "signs of the update, by randomized response; published variates reveal the gradient"
    )

    unsupported: ClassVar[Mapping[str, str]] = {
        "optimizer": "it sends signs, whose size Adam would divide out again"
    }

    lr: Rate
    epsilon: float = 4.0
    alpha: float = 0.1
    codec: Codec = RandK(fraction=0.4)
    momentum: float = 0.0
    variance_reduction: bool = True
    randomized_response: bool = True
    private_variates: bool = False
    zeros: Literal["plus", "coin"] = "plus"
    weight_decay: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_momentum(self.momentum)
        check_weight_decay(self.weight_decay)
        check_codec(self.codec)
        # Checks both options.
        RandomizedResponse(self.epsilon, self.zeros)
        for name in ("variance_reduction", "randomized_response", "private_variates"):
            check_flag(name, getattr(self, name))
        check_number("alpha", self.alpha, above=0, at_most=1, example=0.1)
        if self.private_variates and not (self.variance_reduction and self.randomized_response):
            raise Misuse(
                "private_variates needs both variance_reduction and randomized_response.",
                "Leave them on, or switch private_variates off.",
            )

    def check_width(self, width: int) -> None:
        self.codec.check_width(width)

    def cautions(self, graph: Graph) -> list[str]:
        """The leak of the published algorithm."""
        if not (self.variance_reduction and self.randomized_response) or self.private_variates:
            return []
        return [
            "defl-vp as published sends its control variates in clear, and two of them give the "
            "gradient exactly: its randomized response protects nothing; set private_variates, or "
            "switch variance_reduction off, which is as private but may lose accuracy later"
        ]

    def start(self, here: Here) -> VariateState:
        theta = here.theta0
        return VariateState(
            theta, momentum=theta.new_zeros(theta.shape), variate=theta.new_zeros(theta.shape)
        )

    def step(self, s: VariateState, here: Here) -> VariateState:
        return self.exchange(s, decayed(here.grad(s.theta), s.theta, self.weight_decay), here)

    def exchange(self, s: VariateState, grad: Tensor, here: Here) -> VariateState:
        """Steps 4 to 10 of Algorithm 1 with gradients g [n, P], whichever way they were found."""
        update = grad
        if self.variance_reduction:
            (mixed,) = here.net.mix(variate=s.variate)
            update = grad - s.variate + mixed
        codec = self.codec
        if self.randomized_response:
            update = RandomizedResponse(self.epsilon, self.zeros).respond("response", update, here)
            codec = for_signs(codec)
        theta, direction = here.net.mix(theta=s.theta, update=here.encoded("codec", codec, update))
        momentum = direction + self.momentum * s.momentum
        variate = s.variate
        if self.variance_reduction:
            new = update if self.private_variates else grad
            variate = s.variate + self.alpha * (new - s.variate)
        theta = theta - here.rate(self.lr) * momentum
        return VariateState(theta, momentum, variate)
