"""Noise distributions, given by quantile functions: any source of uniform numbers can draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.checks import check_methods, check_number


class Noise(Protocol):
    """The distribution of one coordinate; coordinates are independent."""

    @property
    def variance(self) -> float:
        """Variance of one coordinate."""
        ...

    def quantile(self, u: Tensor) -> Tensor:
        """The value below which a draw falls with probability u, elementwise, for u in (0, 1)."""
        ...


@dataclass(frozen=True)
class Laplace:
    """Laplace noise with density e^{−|z|/β} / 2β.

    Args:
        scale: β; the variance is 2β². Zero means no noise.

    Example:
        >>> Laplace(0.5).variance
        0.5
    """

    scale: float

    def __post_init__(self) -> None:
        check_number("The scale of Laplace noise", self.scale, at_least=0, hint="0 means no noise")

    @property
    def variance(self) -> float:
        return 2 * self.scale**2

    def quantile(self, u: Tensor) -> Tensor:
        """−β sgn(u−½) ln(1 − 2|u−½|)."""
        centred = u - 0.5
        return torch.log1p(centred.abs().mul_(-2)).mul_(centred.sign_()).mul_(-self.scale)


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise with mean zero.

    Args:
        scale: The standard deviation σ. Zero means no noise.

    Example:
        >>> Gaussian(0.5).variance
        0.25
    """

    scale: float

    def __post_init__(self) -> None:
        check_number("The scale of Gaussian noise", self.scale, at_least=0, hint="0 means no noise")

    @property
    def variance(self) -> float:
        return self.scale**2

    def quantile(self, u: Tensor) -> Tensor:
        """σ Φ⁻¹(u)."""
        standard: Tensor = torch.special.ndtri(u)
        return standard.mul_(self.scale)


LAWS: dict[str, type[Laplace] | type[Gaussian]] = {"laplace": Laplace, "gaussian": Gaussian}


def check_noise(noise: Noise) -> None:
    """Require a distribution of noise, not just its scale."""
    remedy = "Give a distribution, e.g. tacit.Laplace(0.025) or tacit.Gaussian(0.1)."
    # Tensors have a method of that name.
    given = None if isinstance(noise, Tensor) else noise
    check_methods("noise", given, "quantile", remedy=remedy)
