"""Gradient tracking, which DSGT, DP-DSGT and LPPA share (LPPA paper, eq. 2 and 3).

    θᵢᵗ⁺¹ = Σⱼ wᵢⱼ θⱼᵗ − λ γᵢᵗ
    γᵢᵗ⁺¹ = Σⱼ wᵢⱼ γⱼᵗ + ∇Lᵢ(θᵢᵗ⁺¹) − ∇Lᵢ(θᵢᵗ)

If Σᵢγᵢ⁰ = Σᵢ∇Lᵢ(θᵢ⁰) and the columns of W sum to one, then Σᵢγᵢᵗ = Σᵢ∇Lᵢ(θᵢᵗ) in every
iteration: γ tracks the global gradient. With `local_steps` > 1 (the paper's local epochs, section
6.3) the exchange is followed by local updates θ ← θ − λγ, γ ← γ + ∇L(θ_new) − ∇L(θ).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.core.here import Here
from tacit.core.schedules import Rate

REQUIRES = ("connected", "doubly stochastic", "primitive")
EXACT_MIXING = (
    "the trackers sum to the gradients of all clients only if mixing keeps sums, and what it loses "
    "adds up over the iterations (findings/liars measures how much)"
)


@dataclass(frozen=True)
class TrackingState:
    """Model, tracker and last gradient of each hosted client, all [n, P]."""

    theta: Tensor
    gamma: Tensor
    grad: Tensor


def track(s: TrackingState, here: Here, lr: Rate, local_steps: int = 1) -> TrackingState:
    """One exchange and `local_steps` updates of model and tracker."""
    lam = here.rate(lr)
    theta, gamma = here.net.mix(theta=s.theta, gamma=s.gamma)
    theta = theta - lam * s.gamma
    grad = here.grad(theta)
    gamma = gamma + grad - s.grad
    for local in range(1, local_steps):
        theta = theta - lam * gamma
        last, grad = grad, here.grad(theta, local)
        gamma = gamma + grad - last
    return TrackingState(theta, gamma, grad)
