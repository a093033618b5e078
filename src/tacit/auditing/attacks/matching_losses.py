"""Matching losses: distances between the gradients of a guess and the observed value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.checks import check_number
from tacit.core.errors import Misuse


class MatchingLoss(Protocol):
    """A distance between the value of a guess and the observed one, plus a prior on the guess."""

    def __call__(self, combination: Tensor, value: Tensor, inputs: Tensor) -> Tensor:
        """Of Σₖ cₖ ∇L(θₖ; guess) [P], the observed value [P] and the guessed inputs [n, ...]."""
        ...


@dataclass(frozen=True)
class L2:
    """‖Σₖ cₖ∇L(θₖ; x) − v‖² + α·TV(x) (DLG; Zhu et al. 2019).

    If relative, the first term is divided by ‖v‖².
    """

    relative: bool = False
    total_variation: float = 0.0

    def __post_init__(self) -> None:
        _check_weight(self.total_variation)

    def __call__(self, combination: Tensor, value: Tensor, inputs: Tensor) -> Tensor:
        distance = (combination - value).square().sum()
        if self.relative:
            distance = distance / value.square().sum().clamp_min(torch.finfo(value.dtype).tiny)
        return _with_prior(distance, self.total_variation, inputs)


@dataclass(frozen=True)
class CosineDistance:
    """1 − ⟨Σ, v⟩ / (‖Σ‖·‖v‖) + α·TV(x) with Σ = Σₖ cₖ∇L(θₖ; x) (Geiping et al. 2020)."""

    total_variation: float = 0.0

    def __post_init__(self) -> None:
        _check_weight(self.total_variation)

    def __call__(self, combination: Tensor, value: Tensor, inputs: Tensor) -> Tensor:
        squares = combination.square().sum() * value.square().sum()
        norms = squares.clamp_min(torch.finfo(value.dtype).tiny).sqrt()
        cosine = (combination * value).sum() / norms
        return _with_prior(1 - cosine, self.total_variation, inputs)


def total_variation(inputs: Tensor) -> Tensor:
    """TV(x), the mean absolute differences of vertical and horizontal neighbours [..., H, W]."""
    if inputs.ndim < 3 or min(inputs.shape[-2:]) < 2:
        raise Misuse(
            f"Total variation of inputs of shape {tuple(inputs.shape[1:])}.",
            "It is for images [..., height, width]; set total_variation to 0.",
        )
    return inputs.diff(dim=-2).abs().mean() + inputs.diff(dim=-1).abs().mean()


def _with_prior(distance: Tensor, alpha: float, inputs: Tensor) -> Tensor:
    return distance + alpha * total_variation(inputs) if alpha else distance


def _check_weight(alpha: object) -> None:
    check_number("total_variation", alpha, at_least=0, example=1e-3, hint="its weight")
