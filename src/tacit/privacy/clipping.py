"""Clipping: bound each gradient, so that replacing a client's data changes it by a known amount.

    g ← g · min(1, C/‖g‖)

Differential privacy needs this: without a bound on what one client can change there is no
sensitivity, and noise of any size guarantees nothing. The gradient of a batch is clipped as a
whole, so that two of them differ by at most 2C.

The bound holds for every input. A gradient that is not finite counts as zero: sent as it is, it
would tell that these data made it so. Gradients are shortened by a little more than C/‖g‖, so that
rounding does not make them longer than C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.core.checks import check_choice, check_positive

# Numbers clipped at a time.
TILE = 1 << 22


@dataclass(frozen=True)
class Clip:
    """A bound on the norm of gradients.

    Args:
        bound: The bound C.
        norm: "l2" (for Gaussian noise) or "l1" (for Laplace noise).
    """

    bound: float
    norm: Literal["l1", "l2"] = "l2"

    def __post_init__(self) -> None:
        check_positive("The clipping bound", self.bound, example=1.0)
        check_choice("The clipping norm", self.norm, ("l1", "l2"))

    @property
    def sensitivity(self) -> float:
        """2C, the largest distance of two clipped gradients."""
        return 2 * self.bound

    def clipped(self, gradients: Tensor) -> Tensor:
        """The gradients [n, P], each at most as long as the bound."""
        order = 1 if self.norm == "l1" else 2
        # In float64: the square of a large float32 would overflow.
        size: Tensor = torch.linalg.vector_norm(
            gradients, ord=order, dim=1, keepdim=True, dtype=torch.float64
        )
        share = clipping_factors(size, self.bound, gradients.dtype)
        return torch.where(size.isfinite(), gradients * share, 0.0)

    def clip_(self, gradients: Tensor) -> Tensor:
        """Clip in place, some rows at a time to save memory."""
        step = max(1, TILE // max(1, gradients.shape[1]))
        for part in gradients.split(step):  # type: ignore[no-untyped-call]
            part.copy_(self.clipped(part))
        return gradients


def clipping_factors(norms: Tensor, bound: float, dtype: torch.dtype) -> Tensor:
    """min(1, C/‖g‖) for gradients of this type, a little less where rounding could exceed C.

    Zero where the norm, of type float64, is not finite or the factor has not all digits.
    """
    # Infinite for a gradient of zero.
    share = bound / norms
    little = margin(dtype)
    share = torch.where(share < 1 + little, share * (1 - little), 1.0)
    full = norms.isfinite() & (share >= torch.finfo(dtype).tiny)
    return torch.where(full, share, 0.0).to(dtype)


def margin(dtype: torch.dtype) -> float:
    """By what share factors are smaller than C/‖g‖: the largest error of rounding."""
    return max(4 * torch.finfo(dtype).eps, 1e-12)
