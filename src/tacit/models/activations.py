"""Activations that a model can be asked for by name."""

from __future__ import annotations

from torch import nn

from tacit.core.errors import Misuse

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}


def activation_named(name: str) -> type[nn.Module]:
    """Its layer; refused with the names there are."""
    if name not in ACTIVATIONS:
        raise Misuse(f"activation is {name!r}.", f"Choose one of: {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]
