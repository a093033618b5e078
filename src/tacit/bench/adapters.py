"""LoRA adapters for the benchmark: small trainable matrices beside frozen linear layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class Adapted(nn.Module):
    """x ↦ linear(x) + up · down · x, with only `up` and `down` trainable (Hu et al. 2022)."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Parameter(torch.empty(rank, linear.in_features))
        self.up = nn.Parameter(torch.empty(linear.out_features, rank))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        nn.init.zeros_(self.up)

    def forward(self, x: Tensor) -> Tensor:
        adapted: Tensor = self.linear(x)
        return adapted + functional.linear(functional.linear(x, self.down), self.up)


def adapt(module: nn.Module, rank: int, head: str = "linear") -> nn.Module:
    """Freeze a module, except for its last layer `head`, and adapt its other linear layers."""
    module.requires_grad_(False)
    layers = [(name, layer) for name, layer in module.named_modules() if type(layer) is nn.Linear]
    for name, layer in layers:
        if name == head:
            layer.requires_grad_(True)
        else:
            module.set_submodule(name, Adapted(layer, rank))
    return module
