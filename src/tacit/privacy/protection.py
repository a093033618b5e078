"""Protection vectors: messages are shifted by a vector with non-zero mean, which cancels later.

    xᶜ = x + c;   x⁺ = Σⱼ aᵢⱼ xⱼᶜ − xᵢᶜ + xᵢ = Σⱼ aᵢⱼ xⱼᶜ − cᵢ

(Dual-protection paper, eq. 5b, 5c and Remark 1.) Averaging messages over time does not give x,
because c has a mean. When all clients agree, their vectors are equal and Σⱼ aᵢⱼ cⱼ − cᵢ = 0: the
limit is that without protection.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tacit.core.checks import check_methods, check_number
from tacit.core.here import Function, Here


@dataclass(frozen=True)
class Protection(ABC):
    """A vector c(w) computed from a client's own model.

    Args:
        tau: The strength τ; 0 switches the protection off.
    """

    tau: float = 0.1
    # ‖c(w) − c(u)‖ ≤ lipschitz · |τ| · ‖w − u‖
    lipschitz: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_number("tau", self.tau, hint="0 switches the protection vector off")

    def vector(self, tag: str, rows: Tensor, here: Here) -> Tensor:
        """c(w) for each hosted client's row w [n, L]; use each tag once per iteration."""
        # A shift of zero is linear in the rows; others must be declared.
        if not self.tau:
            return torch.zeros_like(rows)
        return here.nonlinear(
            tag,
            self._shift,
            rows,
            deterministic=True,
            inverse=self._inverse,
            lipschitz=abs(self.tau) * self.lipschitz,
        )

    @abstractmethod
    def _shift(self, w: Tensor) -> Tensor: ...

    @property
    def _inverse(self) -> Function | None:
        """Computes w from c(w), if c has an inverse."""
        return None


class NormVector(Protection):
    """c(w) = (τ/√L) ‖w‖ · 1, the paper's first choice.

    >>> NormVector(tau=0.1).lipschitz
    1.0
    """

    def _shift(self, w: Tensor) -> Tensor:
        size: Tensor = torch.linalg.vector_norm(w, dim=1, keepdim=True)
        return torch.ones_like(w).mul_(size * (self.tau / math.sqrt(w.shape[1])))


class ErfVector(Protection):
    """c(w) = τ erf(0.1 w), elementwise.

    >>> round(ErfVector(tau=0.1).lipschitz, 3)
    0.113
    """

    lipschitz: ClassVar[float] = 0.2 / math.sqrt(math.pi)

    def _shift(self, w: Tensor) -> Tensor:
        return self.tau * torch.erf(0.1 * w)

    @property
    def _inverse(self) -> Function:
        return lambda c: 10 * torch.erfinv(c / self.tau)


class TanhVector(Protection):
    """c(w) = τ tanh(w), elementwise."""

    def _shift(self, w: Tensor) -> Tensor:
        return self.tau * torch.tanh(w)

    @property
    def _inverse(self) -> Function:
        return lambda c: torch.atanh(c / self.tau)


PROTECTIONS: dict[str, type[Protection]] = {
    "norm": NormVector,
    "erf": ErfVector,
    "tanh": TanhVector,
}


def mix_protected(tag: str, rows: Tensor, shift: Tensor, here: Here) -> Tensor:
    """Σⱼ aᵢⱼ (xⱼ + cⱼ) − cᵢ for each hosted client; others see only x + c."""
    (mixed,) = here.net.mix(**{tag: rows + shift})
    return mixed - shift


def check_protection(protection: Protection) -> None:
    """Require a protection vector, not just τ."""
    remedy = "Give a vector, e.g. tacit.NormVector(tau=0.1)."
    check_methods("protection", protection, "vector", remedy=remedy)
