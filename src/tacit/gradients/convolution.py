"""Convolutions whose filters differ from row to row."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.gradients.rowwise import folded, row_by_row
from tacit.gradients.stacked import Rule, Stacked

DIMENSIONS: dict[Any, int] = {
    torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3,
    torch.conv_transpose1d: 1, torch.conv_transpose2d: 2, torch.conv_transpose3d: 3,
}  # fmt: skip


def _convolution(
    func: Any, input: Any, weight: Tensor, bias: Any = None, *args: Any,
    **kwargs: Any,
) -> Any:  # fmt: skip
    if not isinstance(weight, Stacked) and not isinstance(bias, Stacked):
        return folded(func, DIMENSIONS[func] + 1, input, weight, bias, *args, **kwargs)
    return row_by_row(func, input, weight, bias, *args, **kwargs)


RULES: dict[Any, Rule] = {func: partial(_convolution, func) for func in DIMENSIONS}
