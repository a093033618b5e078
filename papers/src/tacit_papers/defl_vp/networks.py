"""Networks for Fashion-MNIST that the DeFL-VP paper may have trained: it names none."""

from __future__ import annotations

from torch import nn


def wide_cnn(classes: int = 10) -> nn.Module:
    """McMahan et al. 2017: 5×5 convolutions of 32 and 64 filters; linear, 128 instead of 512."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def normalised_cnn(classes: int = 10) -> nn.Module:
    """Two 5×5 convolutions of 16 and 32 filters with group normalisation, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.GroupNorm(8, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, classes),
    )
