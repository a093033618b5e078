"""Exact shortcuts: inputs computed from a gradient in closed form, without a search.

For one sample and a first layer z = W x + b, with δ = ∂L/∂z:

    G_W = δ xᵀ,   G_b = δ,   so   x = G_W[k] / G_b[k]   for every unit k with G_b[k] ≠ 0.

A linear combination of such gradients of one sample has the same form, with Σₖ cₖδₖ for δ, so
differences reveal the input as well. In logistic regression the first layer is also the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.linear_layers import first_linear
from tacit.auditing.attacks.observation import Observation
from tacit.tasks.flat import FlatModule


@dataclass(frozen=True, eq=False)
class Shortcut:
    """Inputs in closed form, and how well they explain the observed values."""

    inputs: Tensor | None  # [V, 1, *shape]; None if there is no shortcut
    # ‖G_W − G_b xᵀ‖ / ‖G_W‖, [V]; zero up to rounding if the inputs are exact
    residual: Tensor | None
    note: str

    def exact(self, tolerance: float = 1e-3) -> Tensor:
        """For which victims the inputs are exact [V], without knowing the truth."""
        if self.residual is None:
            return torch.zeros(0, dtype=torch.bool)
        return self.residual <= tolerance


def read_inputs(
    flat: FlatModule, observation: Observation, *, shape: Sequence[int], batch: int = 1
) -> Shortcut:
    """x̂ = G_Wᵀ G_b / ‖G_b‖²: the quotients G_W[k]/G_b[k] of all units, weighted by G_b[k]².

    That is the least-squares solution of G_W = G_b xᵀ, in which units with a large |G_b[k]| count
    most.
    """
    layer = first_linear(flat, shape)
    if layer is None or layer.bias is None:
        return Shortcut(
            None, None, "no shortcut: the model does not begin with a linear layer that has a bias"
        )
    if batch != 1 or observation.batches != 1:
        return Shortcut(None, None, "no shortcut: more than one sample is behind each value")
    weight, bias = layer.weight_of(observation.values), observation.values[:, layer.bias]
    strength = bias.square().sum(1)
    inputs = (weight * bias[:, :, None]).sum(1) / strength[:, None]
    left = (weight - bias[:, :, None] * inputs[:, None, :]).flatten(1).norm(dim=1)
    residual = left / weight.flatten(1).norm(dim=1)
    # G_b = 0 reveals nothing.
    empty = ~(residual.isfinite() & inputs.isfinite().all(1))
    return Shortcut(
        inputs.masked_fill(empty[:, None], 0.0).reshape(-1, 1, *shape),
        residual.masked_fill(empty, torch.inf),
        "computed from the first layer: exact for one sample per value; the residual shows whether "
        "it was one",
    )
