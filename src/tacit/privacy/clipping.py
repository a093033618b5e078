"""Clipping: no gradient is longer than a bound, so that replacing all of a client's data changes it by a known amount.

    g ← g · min(1, C/‖g‖)

Differential privacy needs this: without a bound on what one client can change there is no sensitivity, and noise of any
size guarantees nothing. The batch's gradient is clipped as a whole, so that two of them differ by at most 2C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.core.checks import is_number
from tacit.core.errors import Misuse

TILE = 1 << 22  # numbers clipped at a time


@dataclass(frozen=True)
class Clip:
    """The bound C in the L2 norm (for Gaussian noise) or the L1 norm (for Laplace noise)."""

    bound: float
    norm: Literal["l1", "l2"] = "l2"

    def __post_init__(self) -> None:
        if not (is_number(self.bound) and self.bound > 0):
            raise Misuse(
                f"The clipping bound is {self.bound!r}.", "Give a number above zero, e.g. 1.0."
            )
        if self.norm not in ("l1", "l2"):
            raise Misuse(f"The clipping norm is {self.norm!r}.", 'Choose "l1" or "l2".')

    @property
    def sensitivity(self) -> float:
        """2C: how far two clipped gradients can be apart."""
        return 2 * self.bound

    def rows(self, gradients: Tensor) -> Tensor:
        """The gradients [n, P], each no longer than the bound."""
        order = 1 if self.norm == "l1" else 2
        # In float64: the square of a large float32 would overflow.
        size: Tensor = torch.linalg.vector_norm(
            gradients, ord=order, dim=1, keepdim=True, dtype=torch.float64
        )
        share = (self.bound / size).clamp(max=1.0)  # of a gradient of zero: infinite, and clamped
        return gradients * share.to(gradients.dtype)

    def shorten(self, gradients: Tensor) -> Tensor:
        """The same in place, some rows at a time, so that it takes little memory."""
        step = max(1, TILE // max(1, gradients.shape[1]))
        for part in gradients.split(step):  # type: ignore[no-untyped-call]
            part.copy_(self.rows(part))
        return gradients
