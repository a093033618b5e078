"""DeFL-VP: decentralized SGD with variance reduction, randomized response and compression, each a switch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.d_psgd import check_momentum
from tacit.algorithms.diffusion import REQUIRES
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
    """Decentralized federated learning with variance reduction and privacy (Xiu et al. 2026, Algorithm 1).

    h̄ᵢ  = Σⱼ wᵢⱼ hⱼ;   vᵢ = gᵢ − hᵢ + h̄ᵢ       variance_reduction
    hᵢ⁺ = (1 − α) hᵢ + α gᵢ                    (α ṽᵢ with private_variates)
    ṽᵢ  = RR(vᵢ, ε)                            randomized_response
    qᵢ  = C(ṽᵢ)                                codec
    mᵢ⁺ = β mᵢ + Σⱼ wᵢⱼ qⱼ;   xᵢ⁺ = Σⱼ wᵢⱼ xⱼ − η mᵢ⁺

    With every switch off this is D-PSGD (adapt, then combine) sent as two messages. Where the paper is not of one
    mind: its section 3.2 applies the response to the gradient g, Algorithm 1 and section 4 to the corrected v; this
    follows the latter. Its experiments use momentum, its equations have none: here it is kept on what was received,
    so that it costs no privacy (for linear messages that is the same as momentum on gradients). Its ε is the budget
    of one coordinate and one iteration in the algorithm, of the whole vector in Corollary 1; here of one coordinate.
    It assumes that no coordinate is zero; in networks of ReLUs many are, and with +1 for each they move together, and
    more units die. With zeros = "coin", which is as private, they stay where they are in the mean.

    As published the variates h go out in clear, and g = (h⁺ − (1 − α)h)/α: the randomized response protects nothing.
    `private_variates` makes h of ṽ alone, so that every message is made of x⁰ and responses. It costs accuracy: h then
    has the size of a scaled sign, not of a gradient, and for small gradients v is mostly h̄ − h.
    """

    name: ClassVar[str] = "defl-vp"
    paper: ClassVar[str] = "Xiu et al. 2026 (DeFL-VP), Algorithm 1"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = (
        "signs of the update, by randomized response; published variates give the gradient away"
    )

    lr: Rate  # η
    epsilon: float = 4.0  # per coordinate and iteration
    alpha: float = 0.1
    codec: Codec = RandK(fraction=0.4)
    momentum: float = 0.0  # β
    variance_reduction: bool = True
    randomized_response: bool = True
    private_variates: bool = False
    zeros: Literal["plus", "coin"] = "plus"  # what randomized response takes for the sign of zero

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_momentum(self.momentum)
        check_codec(self.codec)
        RandomizedResponse(self.epsilon, self.zeros)  # refuses what it cannot take
        for name in ("variance_reduction", "randomized_response", "private_variates"):
            check_flag(name, getattr(self, name))
        check_number("alpha", self.alpha, above=0, at_most=1, example=0.1)
        if self.private_variates and not (self.variance_reduction and self.randomized_response):
            raise Misuse(
                "private_variates is set, but there is nothing private to make variates of.",
                "Leave variance_reduction and randomized_response on with it.",
            )

    def check_width(self, width: int) -> None:
        """Refuse a codec that keeps more coordinates than there are."""
        self.codec.check_width(width)

    def cautions(self, graph: Graph) -> list[str]:
        """The hole in the published scheme."""
        if not (self.variance_reduction and self.randomized_response) or self.private_variates:
            return []
        return [
            "defl-vp as published sends its control variates in clear, and two of them give the gradient exactly: "
            "its randomized response protects nothing; set private_variates, or switch variance_reduction off, which "
            "is as private but may not train for long"
        ]

    def start(self, here: Here) -> VariateState:
        """The first models, at rest, with variates of zero."""
        theta = here.theta0
        return VariateState(
            theta, momentum=theta.new_zeros(theta.shape), variate=theta.new_zeros(theta.shape)
        )

    def step(self, s: VariateState, here: Here) -> VariateState:
        """Correct the gradient, privatize it, compress it, descend."""
        grad = here.grad(s.theta)
        update = grad
        if self.variance_reduction:
            (around,) = here.net.mix(variate=s.variate)
            update = grad - s.variate + around
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
