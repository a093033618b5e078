"""Regression: models that predict a number in its own unit, and train on a standardised one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.data.dataset import Target
from tacit.tasks.criteria import Criterion, StandardizedLoss, logits_of


class OriginalUnit(nn.Module):
    """mean + std · x: the last layer of a model whose other layers predict standardised numbers."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: float = 0.0, std: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, output: Any) -> Tensor:
        return self.mean + self.std * logits_of(output)


@dataclass(frozen=True, eq=False)
class Regression:
    """What makes a model with one output predict a target.

    Attributes:
        module: The model with a last layer, `OriginalUnit`.
        loss: Of predictions and targets in their own unit.
        prefix: What names of the model's parameters begin with in `module`.
    """

    module: nn.Module
    loss: Criterion
    prefix: str

    @classmethod
    def of(cls, module: nn.Module, target: Target, loss: Criterion | None = None) -> Regression:
        """The model for this target; `loss` is one of standardised numbers, by default the MSE."""
        layers, prefix = [module], "0."
        if isinstance(module, nn.Sequential) and _is_plain(module):
            # Its layers keep their names.
            layers, prefix = list(module), ""
        unit = OriginalUnit(target.mean, target.std)
        for parameter in list(module.parameters())[:1]:
            unit.to(parameter.dtype)
        own = functional.mse_loss if loss is None else loss
        scaled = StandardizedLoss(own, target.mean, target.std)
        return cls(nn.Sequential(*layers, unit), scaled, prefix)


def _is_plain(module: nn.Sequential) -> bool:
    """Whether a Sequential is nothing but its numbered layers."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    own = (module._parameters, module._buffers, *hooks, module._backward_pre_hooks)
    numbered = list(module._modules) == [str(number) for number in range(len(module))]
    return type(module) is nn.Sequential and numbered and not any(own)
