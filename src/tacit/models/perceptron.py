"""Fully connected networks, for inputs of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from tacit.core.checks import check_choice, is_count
from tacit.core.errors import Misuse

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}


def mlp(
    shape: Sequence[int], classes: int, *, hidden: Sequence[int] = (64,), activation: str = "relu"
) -> nn.Module:
    """Linear layers of the `hidden` sizes with an activation after each, and a last linear one."""
    act = find_activation(activation)
    if not hidden or not all(is_count(size) for size in hidden):
        raise Misuse(f"hidden is {hidden!r}.", "Give a list of layer sizes such as [64].")
    sizes = [math.prod(shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), act()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))


def linear(shape: Sequence[int], classes: int) -> nn.Module:
    """Logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def find_activation(name: str) -> type[nn.Module]:
    check_choice("activation", name, list(ACTIVATIONS))
    return ACTIVATIONS[name]
