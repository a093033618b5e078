"""Protection vectors: what is sent is shifted by a vector that is not zero on average, and the shift taken back.

    xᶜ = x + c;   x⁺ = Σⱼ aᵢⱼ xⱼᶜ − xᵢᶜ + xᵢ = Σⱼ aᵢⱼ xⱼᶜ − cᵢ

(dual-protection paper, eq. 5b, 5c and Remark 1.) Averaging what was sent over time does not give x, because c has a
mean. When all clients agree their vectors are equal and Σⱼ aᵢⱼ cⱼ − cᵢ = 0: the limit is that without protection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from tacit.core.arguments import is_number, offers
from tacit.core.errors import Misuse
from tacit.core.here import Here


class Protection(Protocol):
    """A vector made of a client's own model."""

    lipschitz: ClassVar[float]  # ‖c(w) − c(u)‖ ≤ lipschitz · |τ| · ‖w − u‖

    @property
    def tau(self) -> float:
        """How strong it is."""
        ...

    def vector(self, tag: str, rows: Tensor, here: Here) -> Tensor:
        """c(w) for each hosted client's row w [n, L]; the tag says of what, once per iteration."""
        ...


@dataclass(frozen=True)
class NormVector:
    """c(w) = (τ/√L) ‖w‖ · 1, the paper's first choice."""

    tau: float = 0.1
    lipschitz: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _check_tau(self.tau)

    def vector(self, tag: str, rows: Tensor, here: Here) -> Tensor:
        """The norm of the model in every coordinate."""

        def shift(w: Tensor) -> Tensor:
            size: Tensor = torch.linalg.vector_norm(w, dim=1, keepdim=True)
            return torch.ones_like(w).mul_(size * (self.tau / math.sqrt(w.shape[1])))

        return _declared(tag, self.tau, shift, rows, here)


@dataclass(frozen=True)
class ErfVector:
    """c(w) = τ erf(0.1 w), coordinate by coordinate."""

    tau: float = 0.1
    lipschitz: ClassVar[float] = 0.2 / math.sqrt(math.pi)

    def __post_init__(self) -> None:
        _check_tau(self.tau)

    def vector(self, tag: str, rows: Tensor, here: Here) -> Tensor:
        """The error function of the model."""
        return _declared(tag, self.tau, lambda w: self.tau * torch.erf(0.1 * w), rows, here)


@dataclass(frozen=True)
class TanhVector:
    """c(w) = τ tanh(w), coordinate by coordinate."""

    tau: float = 0.1
    lipschitz: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _check_tau(self.tau)

    def vector(self, tag: str, rows: Tensor, here: Here) -> Tensor:
        """The hyperbolic tangent of the model."""
        return _declared(tag, self.tau, lambda w: self.tau * torch.tanh(w), rows, here)


PROTECTIONS: dict[str, type[Any]] = {"norm": NormVector, "erf": ErfVector, "tanh": TanhVector}


def mix_protected(tag: str, rows: Tensor, shift: Tensor, here: Here) -> Tensor:
    """Σⱼ aᵢⱼ (xⱼ + cⱼ) − cᵢ for each hosted client: only x + c is seen by others."""
    (mixed,) = here.net.mix(**{tag: rows + shift})
    return mixed.sub_(shift)


def _declared(
    tag: str, tau: float, shift: Callable[[Tensor], Tensor], rows: Tensor, here: Here
) -> Tensor:
    """The shift, declared not to be linear in the rows; no shift at all is, and protects nothing."""
    return here.nonlinear(tag, shift, rows) if tau else torch.zeros_like(rows)


def check_protection(protection: Protection) -> None:
    """Refuse what is not a protection vector, such as a bare τ."""
    if not offers(protection, "vector"):
        raise Misuse(
            f"protection is {protection!r}.", "Give a vector, e.g. tacit.NormVector(tau=0.1)."
        )


def _check_tau(tau: float) -> None:
    if not is_number(tau):
        raise Misuse(
            f"tau is {tau!r}.", "Give a finite number (0 switches the protection vector off)."
        )
