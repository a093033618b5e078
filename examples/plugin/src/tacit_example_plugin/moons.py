"""Two interleaved half circles: the smallest dataset that no linear model separates."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from tacit.data import Dataset, Split


def two_moons(
    folder: Path | None, *, samples: int = 1000, noise: float = 0.15, seed: int = 0
) -> Dataset:
    """Two interleaved half circles with Gaussian noise, one per class."""
    draw = torch.Generator().manual_seed(seed)

    def split(count: int) -> Split:
        y = torch.arange(count) % 2
        angle = math.pi * torch.rand(count, generator=draw)
        upper = torch.stack((angle.cos(), angle.sin()), dim=1)
        lower = torch.stack((1 - angle.cos(), 0.5 - angle.sin()), dim=1)
        x = torch.where(y[:, None] == 0, upper, lower)
        return Split(x + noise * torch.randn(count, 2, generator=draw), y)

    train, test = split(samples), split(max(2, samples // 4))
    return Dataset("two-moons", train, test, 2, ("upper", "lower"), "two moons")
