"""Noise laws, given by their quantile function so that any source of uniform numbers can draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.arguments import is_number, offers
from tacit.core.errors import Misuse


class Noise(Protocol):
    """A law for one coordinate of noise; coordinates are independent."""

    @property
    def variance(self) -> float:
        """Variance of one coordinate."""
        ...

    def quantile(self, u: Tensor) -> Tensor:
        """The value below which a draw falls with probability u, elementwise, for u in (0, 1)."""
        ...


@dataclass(frozen=True)
class Laplace:
    """Density e^{−|z|/β} / 2β with scale β; variance 2β²."""

    scale: float

    def __post_init__(self) -> None:
        _check_scale("Laplace", self.scale)

    @property
    def variance(self) -> float:
        """2β²."""
        return 2 * self.scale**2

    def quantile(self, u: Tensor) -> Tensor:
        """−β sgn(u−½) ln(1 − 2|u−½|)."""
        centred = u - 0.5
        return torch.log1p(centred.abs().mul_(-2)).mul_(centred.sign_()).mul_(-self.scale)


@dataclass(frozen=True)
class Gaussian:
    """Normal law with mean zero and standard deviation `scale`."""

    scale: float

    def __post_init__(self) -> None:
        _check_scale("Gaussian", self.scale)

    @property
    def variance(self) -> float:
        """σ²."""
        return self.scale**2

    def quantile(self, u: Tensor) -> Tensor:
        """σ Φ⁻¹(u)."""
        standard: Tensor = torch.special.ndtri(u)
        return standard.mul_(self.scale)


def check_noise(noise: Noise) -> None:
    """Refuse what is not a noise law, such as a bare scale."""
    if not offers(noise, "quantile"):
        raise Misuse(
            f"noise is {noise!r}.", "Give a law, e.g. tacit.Laplace(0.025) or tacit.Gaussian(0.1)."
        )


def _check_scale(law: str, scale: float) -> None:
    if not (is_number(scale) and scale >= 0):
        raise Misuse(
            f"The scale of {law} noise is {scale!r}.",
            "Give a finite number that is not negative (0 means no noise).",
        )


LAWS: dict[str, type[Laplace] | type[Gaussian]] = {"laplace": Laplace, "gaussian": Gaussian}
