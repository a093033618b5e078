"""Pooling over windows of an image that do not overlap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor


@dataclass(frozen=True)
class MaxPool:
    """The largest number of each window."""

    size: tuple[int, int]
    width: int = 0

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Keeps input and output."""
        y = reduce(torch.maximum, places(x, self.size))
        return y, (x, y)

    def backward(
        self, weights: Tensor, kept: tuple[Tensor, Tensor], dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """The first place of a window that has its largest number gets the gradient."""
        if not further:
            return None
        x, y = kept
        dx = torch.zeros_like(x)
        for source, target in zip(places(x, self.size), places(dx, self.size), strict=True):
            torch.mul(dy, source == y, out=target)
            dy.sub_(target)  # what is left for the places that follow
        return dx


@dataclass(frozen=True)
class MeanPool:
    """The mean of each window."""

    size: tuple[int, int]
    width: int = 0

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps the input, for its shape."""
        share = 1 / (self.size[0] * self.size[1])
        return reduce(torch.add, places(x, self.size)).mul_(share), x

    def backward(
        self, weights: Tensor, kept: Tensor, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """The same share for all."""
        if not further:
            return None
        dx = torch.zeros_like(kept)
        dy.mul_(1 / (self.size[0] * self.size[1]))
        for target in places(dx, self.size):
            target.copy_(dy)
        return dx


def places(x: Tensor, size: tuple[int, int]) -> list[Tensor]:
    """The first, second, … number of every window [k, C, H', W', B], as views; what fills no window is left out."""
    rows, columns = x.shape[2] // size[0], x.shape[3] // size[1]
    whole = x[:, :, : rows * size[0], : columns * size[1]]
    return [whole[:, :, i :: size[0], j :: size[1]] for i in range(size[0]) for j in range(size[1])]
