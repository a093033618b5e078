"""Other readings of what a client of DeFL-VP does between two exchanges.

Section 5.1 of the paper has a local epoch per round and SGD with momentum. Algorithm 1 has one
gradient gᵢ per exchange and no momentum. Here both stand in the place of gᵢ:

    LocalEpoch        yᵏ⁺¹ = yᵏ − η ∇Lᵢ(yᵏ) from y⁰ = xᵢ;   gᵢ = Σₖ ∇Lᵢ(yᵏ) = (xᵢ − yᴷ)/η
    GradientMomentum  gᵢ⁺ = β gᵢ + ∇Lᵢ(xᵢ)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tacit.algorithms.defl_vp import DeFLVP, VariateState
from tacit.core.checks import check_count
from tacit.core.here import Here


@dataclass(frozen=True)
class LocalEpoch(DeFLVP):
    """DeFL-VP of what a client's model has moved by in `local_steps` steps of descent."""

    name: ClassVar[str] = "defl-vp, local epoch"

    local_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("local_steps", self.local_steps)

    @property
    def gradients_per_step(self) -> int:
        return self.local_steps

    def step(self, s: VariateState, here: Here) -> VariateState:
        rate = here.rate(self.lr)
        total = here.grad(s.theta)
        for local in range(1, self.local_steps):
            total = total + here.grad(s.theta - rate * total, local)
        return self.exchange(s, total, here)


@dataclass(frozen=True)
class GradientMomentum(DeFLVP):
    """DeFL-VP of gradients with momentum, in place of momentum of what is received."""

    name: ClassVar[str] = "defl-vp, gradient momentum"

    def step(self, s: VariateState, here: Here) -> VariateState:
        grad = here.grad(s.theta) + self.momentum * s.momentum
        after = replace(self, momentum=0.0).exchange(s, grad, here)
        return replace(after, momentum=grad)
