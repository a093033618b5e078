"""Gradient tracking, which DSGT, DP-DSGT and LPPA share (LPPA paper, eq. 2 and 3).

    θᵢᵗ⁺¹ = Σⱼ wᵢⱼ θⱼᵗ − λ γᵢᵗ
    γᵢᵗ⁺¹ = Σⱼ wᵢⱼ γⱼᵗ + ∇Lᵢ(θᵢᵗ⁺¹) − ∇Lᵢ(θᵢᵗ)

If Σᵢγᵢ⁰ = Σᵢ∇Lᵢ(θᵢ⁰) and the columns of W sum to one, then Σᵢγᵢᵗ = Σᵢ∇Lᵢ(θᵢᵗ) in every
iteration: γ tracks the global gradient. With `local_steps` > 1 (the paper's local epochs, section
6.3) the exchange is followed by local updates θ ← θ − λγ, γ ← γ + ∇L(θ_new) − ∇L(θ).

With momentum a client descends along mᵢ⁺ = β mᵢ + γᵢ in place of γᵢ. The trackers do not change:
they still sum to the gradients, and the mean of the models takes the heavy-ball steps of one
machine, m̄⁺ = β m̄ + (1/n) Σᵢ∇Lᵢ(θᵢ). (Compare Xin & Khan 2020, who add β(θᵗ − θᵗ⁻¹).)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.algorithms.local_optimizer import PLAIN, LocalOptimizer
from tacit.core.here import Here
from tacit.core.schedules import Rate

REQUIRES = ("connected", "doubly stochastic", "primitive")
UNSUPPORTED = {
    "optimizer": (
        "Adam is not linear in trackers: they sum to the gradients of all clients, but its steps "
        "do not sum to a step along them"
    )
}
EXACT_MIXING = (
    "the trackers sum to the gradients of all clients only if mixing keeps sums, and what it loses "
    "adds up over the iterations (findings/liars measures how much)"
)


@dataclass(frozen=True)
class TrackingState:
    """Model, tracker, last gradient and momentum, if any, of each hosted client, all [n, P]."""

    theta: Tensor
    gamma: Tensor
    grad: Tensor
    momentum: Tensor | None = None


def track(
    s: TrackingState,
    here: Here,
    lr: Rate,
    local_steps: int = 1,
    optimizer: LocalOptimizer = PLAIN,
) -> TrackingState:
    """One exchange and `local_steps` updates of model and tracker."""
    lam = here.rate(lr)
    theta, gamma = here.net.mix(theta=s.theta, gamma=s.gamma)
    direction, momentum = optimizer.direction(s.gamma, s.momentum)
    theta = theta - lam * direction
    grad = optimizer.gradient(theta, here)
    gamma = gamma + grad - s.grad
    for local in range(1, local_steps):
        direction, momentum = optimizer.direction(gamma, momentum)
        theta = theta - lam * direction
        last, grad = grad, optimizer.gradient(theta, here, local)
        gamma = gamma + grad - last
    return TrackingState(theta, gamma, grad, momentum)
