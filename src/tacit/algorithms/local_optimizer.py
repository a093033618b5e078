"""What a client does with its gradients: weight decay, momentum and Adam.

    g  = ∇L(θ) + ω θ                  weight_decay: the gradient of L(θ) + (ω/2)‖θ‖²
    m⁺ = β m + g                      momentum (heavy ball)
    d  = m⁺, or g + β m⁺              nesterov
    θ⁺ = θ − λ d

as in torch.optim.SGD. All of it is linear in gradients, so what holds for sums of gradients holds
for sums of directions, and masks that cancel there cancel here. Adam (Kingma & Ba 2015, section 2)
is not linear. A client's moments follow from its own gradients alone, so they add no protection:

    m⁺ = β₁ m + (1 − β₁) g,   s⁺ = β₂ s + (1 − β₂) g²
    θ⁺ = θ − λ √(1 − β₂ᵗ)/(1 − β₁ᵗ) · m⁺/(√s⁺ + ϵ)

With "adam" the decay is part of g, with "adamw" θ⁺ has − λω θ instead (Loshchilov & Hutter 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.core.checks import check_choice, check_flag, check_number
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.core.schedules import Rate, check_rate
from tacit.graph import Graph

# Adam's ϵ, which keeps steps finite where all gradients were zero.
STABILITY = 1e-8
OptimizerName = Literal["sgd", "adam", "adamw"]
BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class LocalOptimizer:
    """Weight decay ω and momentum β; what it remembers is m [n, P], or None without momentum."""

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def gradient(self, theta: Tensor, here: Here, local: int = 0) -> Tensor:
        """∇L(θ) + ω θ of each client [n, P]."""
        return decayed(here.grad(theta, local), theta, self.weight_decay)

    def memory(self, theta: Tensor) -> Tensor | None:
        """What it remembers at the start."""
        return theta.new_zeros(theta.shape) if self.momentum else None

    def direction(self, grad: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The direction d of a step, and what is remembered after it."""
        if memory is None:
            return grad, None
        memory = grad + self.momentum * memory
        return (grad + self.momentum * memory if self.nesterov else memory), memory


PLAIN = LocalOptimizer()


@dataclass(frozen=True)
class MomentumAlgorithm(Algorithm):
    """Options of algorithms with weight decay and momentum."""

    lr: Rate
    momentum: float = field(default=0.0, kw_only=True)
    nesterov: bool = field(default=False, kw_only=True)
    weight_decay: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_momentum(self.momentum)
        check_weight_decay(self.weight_decay)
        check_flag("nesterov", self.nesterov)
        if self.nesterov and not self.momentum:
            raise Misuse("nesterov needs momentum.", "Set it too, e.g. momentum = 0.9.")

    @property
    def local(self) -> LocalOptimizer:
        return LocalOptimizer(self.momentum, self.nesterov, self.weight_decay)


@dataclass(frozen=True)
class OptimizerState:
    """The model of each hosted client and what its optimizer remembers, if anything: [n, P] each.

    `momentum` is the first moment of Adam, `second` the second one.
    """

    theta: Tensor
    momentum: Tensor | None = None
    second: Tensor | None = None


@dataclass(frozen=True)
class BiasCorrection:
    """√(1 − β₂ᵗ)/(1 − β₁ᵗ), by which Adam corrects for moments that begin at zero."""

    betas: tuple[float, float]

    def __call__(self, t: int) -> float:
        one, two = self.betas
        return math.sqrt(1 - two ** (t + 1)) / (1 - one ** (t + 1))


@dataclass(frozen=True)
class AdaptiveAlgorithm(MomentumAlgorithm):
    """Options of algorithms with weight decay, momentum and Adam."""

    optimizer: OptimizerName = field(default="sgd", kw_only=True)
    betas: tuple[float, float] = field(default=BETAS, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optimizer(self.optimizer, self.momentum, self.betas)

    @property
    def local(self) -> LocalOptimizer:
        decay = 0.0 if self.optimizer == "adamw" else self.weight_decay
        return LocalOptimizer(self.momentum, self.nesterov, decay)

    def audit_remarks(self, graph: Graph) -> list[str]:
        if self.optimizer == "sgd" or self.needs_server:
            return []
        return [
            "Adam protects nothing: its first step is a one-to-one function of the first gradient, "
            "with the same signs, and later ones follow from the gradients so far. Treat a known "
            "output of `direction` as a known gradient"
        ]

    def optimizer_state(self, theta: Tensor) -> OptimizerState:
        """The state before the first iteration."""
        if self.optimizer == "sgd":
            return OptimizerState(theta, self.local.memory(theta))
        return OptimizerState(theta, theta.new_zeros(theta.shape), theta.new_zeros(theta.shape))

    def descent(
        self, s: OptimizerState, grad: Tensor, here: Here
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """λ d, by which models descend, and both moments after it."""
        rate = here.rate(self.lr)
        if self.optimizer == "sgd":
            direction, momentum = self.local.direction(grad, s.momentum)
            return rate * direction, momentum, None
        assert s.momentum is not None
        assert s.second is not None
        direction, first, second = adam(grad, s.momentum, s.second, self.betas, here)
        descent = rate * here.rate(BiasCorrection(self.betas)) * direction
        if self.optimizer == "adamw" and self.weight_decay:
            descent = descent + rate * self.weight_decay * s.theta
        return descent, first, second


def decayed(grad: Tensor, theta: Tensor, weight_decay: float) -> Tensor:
    """The gradient with that of (ω/2)‖θ‖² added."""
    return grad + weight_decay * theta if weight_decay else grad


def adam(
    grad: Tensor, first: Tensor, second: Tensor, betas: tuple[float, float], here: Here
) -> tuple[Tensor, Tensor, Tensor]:
    """m⁺/(√s⁺ + ϵ) without correction of the bias, and both moments."""
    one, two = betas
    square = here.nonlinear("square", torch.square, grad, deterministic=True)
    first, second = one * first + (1 - one) * grad, two * second + (1 - two) * square
    direction = here.nonlinear("direction", _direction, first, second, deterministic=True)
    return direction, first, second


def _direction(first: Tensor, second: Tensor) -> Tensor:
    return first / (second.sqrt() + STABILITY)


def check_momentum(momentum: float) -> None:
    check_number("momentum", momentum, at_least=0, below=1, example=0.9, hint="0 for none")


def check_weight_decay(weight_decay: float) -> None:
    check_number("weight_decay", weight_decay, at_least=0, example=1e-4, hint="0 for none")


def check_optimizer(optimizer: str, momentum: float, betas: tuple[float, float]) -> None:
    """Raise Misuse for an unknown optimizer, or an option that it does not have."""
    check_choice("optimizer", optimizer, get_args(OptimizerName))
    if not isinstance(betas, tuple) or len(betas) != 2:
        raise Misuse(f"betas is {betas!r}.", "Give two numbers, e.g. (0.9, 0.999).")
    for beta in betas:
        check_number("betas", beta, at_least=0, below=1, example=0.9)
    if optimizer != "sgd" and momentum:
        raise Misuse(
            f"momentum = {momentum:g} is for SGD, not for {optimizer}.",
            "Leave it out: the first of `betas` has its place.",
        )
    if optimizer == "sgd" and betas != BETAS:
        raise Misuse(
            f'betas = {betas} are for Adam, and optimizer is "sgd".',
            'Leave them out, or set optimizer = "adam".',
        )
