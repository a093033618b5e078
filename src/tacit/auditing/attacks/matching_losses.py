"""How far the gradients of a guess are from what was observed; each is one number per guess, for `torch.func`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.arguments import is_number
from tacit.core.errors import Misuse


class MatchingLoss(Protocol):
    """A distance between what a guess would have sent and what was sent, plus a prior on the guess."""

    def __call__(self, combination: Tensor, value: Tensor, inputs: Tensor) -> Tensor:
        """Of Σₖ cₖ ∇L(θₖ; guess) [P], the observed value [P] and the guessed inputs [samples, *shape]."""
        ...


@dataclass(frozen=True)
class L2:
    """‖Σₖ cₖ∇L(θₖ; x) − v‖² + α·TV(x), the first term divided by ‖v‖² if relative (DLG; Zhu et al. 2019)."""

    relative: bool = False
    total_variation: float = 0.0

    def __post_init__(self) -> None:
        _refuse_negative(self.total_variation)

    def __call__(self, combination: Tensor, value: Tensor, inputs: Tensor) -> Tensor:
        """The squared distance."""
        distance = (combination - value).square().sum()
        if self.relative:
            distance = distance / value.square().sum().clamp_min(torch.finfo(value.dtype).tiny)
        return _with_prior(distance, self.total_variation, inputs)


@dataclass(frozen=True)
class CosineDistance:
    """1 − ⟨Σ, v⟩ / (‖Σ‖·‖v‖) + α·TV(x) with Σ = Σₖ cₖ∇L(θₖ; x) (Geiping et al. 2020)."""

    total_variation: float = 0.0

    def __post_init__(self) -> None:
        _refuse_negative(self.total_variation)

    def __call__(self, combination: Tensor, value: Tensor, inputs: Tensor) -> Tensor:
        """One minus the cosine."""
        norms = (combination.square().sum() * value.square().sum()).clamp_min(
            torch.finfo(value.dtype).tiny
        )
        cosine = (combination * value).sum() / norms.sqrt()
        return _with_prior(1 - cosine, self.total_variation, inputs)


def total_variation(inputs: Tensor) -> Tensor:
    """TV(x) = mean |x[…, i+1, j] − x[…, i, j]| + mean |x[…, i, j+1] − x[…, i, j]| of images [samples, ..., H, W]."""
    if inputs.ndim < 3 or min(inputs.shape[-2:]) < 2:
        raise Misuse(
            f"Total variation of inputs of shape {tuple(inputs.shape[1:])}.",
            "It is for images [..., height, width]; set total_variation to 0.",
        )
    return inputs.diff(dim=-2).abs().mean() + inputs.diff(dim=-1).abs().mean()


def _with_prior(distance: Tensor, alpha: float, inputs: Tensor) -> Tensor:
    return distance + alpha * total_variation(inputs) if alpha else distance


def _refuse_negative(alpha: object) -> None:
    if not is_number(alpha) or alpha < 0:
        raise Misuse(
            f"total_variation is {alpha!r}.", "Give its weight: a number from 0, such as 1e-3."
        )
