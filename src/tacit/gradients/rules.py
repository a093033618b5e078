"""All rules: which function of torch is computed how for Stacked and for Taped tensors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tacit.gradients import (
    attention,
    convolution,
    elementwise,
    embedding,
    linear,
    losses,
    normalisation,
    recurrent,
    reductions,
    rowwise,
    shapes,
)
from tacit.gradients.stacked import Rule

FAMILIES = (
    elementwise, shapes, reductions, rowwise, linear, convolution, normalisation, embedding,
    attention, recurrent, losses,
)  # fmt: skip
RULES: Mapping[Any, Rule] = MappingProxyType(
    {func: rule for family in FAMILIES for func, rule in family.RULES.items()}
)
# For parameters that meet samples.
TAPED: Mapping[Any, Rule] = MappingProxyType(
    linear.TAPED | embedding.TAPED | normalisation.TAPED | convolution.TAPED
)
