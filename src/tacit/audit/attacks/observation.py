"""What an adversary holds on its victims: a combination of gradients, and where each was taken."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import Misuse


@dataclass(frozen=True, eq=False)
class Observation:
    """Σₖ cₖ ∇L(θₖ; xₖ, yₖ) of V victims, as far as an adversary knows it."""

    weights: Tensor  # [V, K, P] where each gradient was taken
    coefficients: Tensor  # [K]: (1,) a gradient; (1, −1) a difference; (1, …, 1) a sum over clients
    values: Tensor  # [V, P]
    same_data: bool  # True: all K gradients are of one batch (differences); False: each has its own (sums)

    def __post_init__(self) -> None:
        if self.weights.ndim != 3 or min(self.weights.shape) < 1:
            raise Misuse(
                f"The weights of an observation have shape {tuple(self.weights.shape)}.",
                "They are [victims, gradients, parameters], with at least one of each.",
            )
        victims, terms, width = self.weights.shape
        for name, shape in (("coefficients", (terms,)), ("values", (victims, width))):
            if getattr(self, name).shape != shape:
                raise Misuse(
                    f"The {name} of an observation have shape {tuple(getattr(self, name).shape)}.",
                    f"Weights {tuple(self.weights.shape)} need {shape}.",
                )
        for name in ("weights", "coefficients", "values"):
            tensor: Tensor = getattr(self, name)
            if tensor.dtype != self.weights.dtype or not tensor.is_floating_point():
                raise Misuse(
                    f"The {name} are {tensor.dtype}, the weights {self.weights.dtype}.",
                    "Give all of them in one floating-point type.",
                )
            if tensor.device != self.weights.device:
                raise Misuse(
                    f"The {name} are on {tensor.device}, the weights on {self.weights.device}.",
                    "Move all of them to one device.",
                )
            if not bool(tensor.isfinite().all()):
                raise Misuse(
                    f"The {name} of an observation have numbers that are not finite.",
                    "Leave out the iterations in which a client diverged.",
                )

    @classmethod
    def gradient(cls, weights: Tensor, values: Tensor) -> Observation:
        """∇L(θ; x, y) of each victim: weights and values [V, P]."""
        return cls(_rows(weights, "weights")[:, None], torch.ones_like(weights[0, :1]), values, True)

    @classmethod
    def difference(cls, later: Tensor, earlier: Tensor, values: Tensor) -> Observation:
        """∇L(θ¹; x, y) − ∇L(θ⁰; x, y) of one batch, θ¹ `later` and θ⁰ `earlier`, each [V, P]."""
        if _rows(later, "later weights").shape != _rows(earlier, "earlier weights").shape:
            raise Misuse(
                f"The later weights have shape {tuple(later.shape)}, the earlier {tuple(earlier.shape)}.",
                "Both are [victims, parameters] of the same victims.",
            )
        return cls(torch.stack((later, earlier), 1), later.new_tensor([1.0, -1.0]), values, True)

    @classmethod
    def total(cls, weights: Tensor, values: Tensor) -> Observation:
        """Σₖ ∇L(θₖ; xₖ, yₖ) over K clients with data of their own: weights [V, K, P], values [V, P]."""
        terms = weights.shape[1] if weights.ndim == 3 else 0  # refused above
        return cls(weights, weights.new_ones(terms), values, False)

    @property
    def batches(self) -> int:
        """How many batches are behind one value: one, or one per gradient."""
        return 1 if self.same_data else self.weights.shape[1]


def _rows(weights: Tensor, name: str) -> Tensor:
    if weights.ndim != 2 or min(weights.shape) < 1:
        raise Misuse(
            f"The {name} have shape {tuple(weights.shape)}.", "They are [victims, parameters], one row each."
        )
    return weights
