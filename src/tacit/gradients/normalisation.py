"""Normalisation, with weights that differ from row to row, or that all samples have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients import kernel_functions
from tacit.gradients.rowwise import row_by_row
from tacit.gradients.stacked import Rule, Stacked, first_stacked, rows_of
from tacit.gradients.taped import Kept, Piece, Taped, is_sample, numbers_of, tape_of


def _layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None,
    eps: float = 1e-5, cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    some = first_stacked(input, weight, bias)
    if some.stack.size == 1 and not rows_of(input, some.stack).is_cuda:
        return row_by_row(functional.layer_norm, input, normalized_shape, weight, bias, eps)
    x, shape = rows_of(input, some.stack), list(normalized_shape)
    if not isinstance(weight, Stacked) and not isinstance(bias, Stacked):
        return some.like(functional.layer_norm(x, shape, weight, bias, eps))
    w, b = (
        None if part is None else rows_of(part, some.stack).flatten(1) for part in (weight, bias)
    )
    result = kernel_functions.layer_norm(x, math.prod(shape), w, b, eps)
    if result is not NotImplemented:
        return some.like(result)
    with torch.autocast(x.device.type, enabled=False):
        y = functional.layer_norm(x, shape, eps=eps)
        leading = [1] * (x.ndim - 1 - len(shape))
        return some.like(_scaled(y, weight, bias, [*leading, *shape], some))


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Any:
    some = first_stacked(input, weight)
    x, shape = rows_of(input, some.stack), list(normalized_shape)
    if not isinstance(weight, Stacked):
        return some.like(functional.rms_norm(x, shape, weight, eps))
    y = functional.rms_norm(x, shape, None, eps)
    leading = [1] * (x.ndim - 1 - len(shape))
    return some.like(_scaled(y, weight, None, [*leading, *shape], some))


def _group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    some = first_stacked(input, weight, bias)
    if some.stack.size == 1 and not rows_of(input, some.stack).is_cuda:
        return row_by_row(functional.group_norm, input, num_groups, weight, bias, eps)
    x = rows_of(input, some.stack)
    if x.ndim < 3:
        return NotImplemented
    w, b = (None if part is None else rows_of(part, some.stack) for part in (weight, bias))
    result = kernel_functions.group_norm(x, num_groups, w, b, eps)
    if result is not NotImplemented:
        return some.like(result)
    with torch.autocast(x.device.type, enabled=False):
        y = functional.group_norm(x.flatten(0, 1), num_groups, eps=eps).view(x.shape)
        return some.like(_scaled(y, weight, bias, [1, x.shape[2], *[1] * (x.ndim - 3)], some))


def _batch_norm(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    if running_mean is not None or running_var is not None or not training:
        # Statistics that a pass would change, or that are used as they are.
        return NotImplemented
    some = first_stacked(input, weight, bias)
    x = rows_of(input, some.stack)
    # The channels of all rows side by side: [B, n · C, ...].
    channels = x.transpose(0, 1).flatten(1, 2)
    y = functional.batch_norm(channels, None, None, training=True, momentum=momentum, eps=eps)
    y = y.unflatten(1, (len(x), -1)).transpose(0, 1)  # type: ignore[no-untyped-call]
    return some.like(_scaled(y, weight, bias, [1, x.shape[2], *[1] * (x.ndim - 3)], some))


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Any:
    """Weights of direction v and length g; the length is over all dimensions but `dim`."""
    some = first_stacked(v, g)
    direction, length = rows_of(v, some.stack), rows_of(g, some.stack)
    others = tuple(other for other in range(1, direction.ndim) if other != dim + 1 or dim < 0)
    norm = torch.linalg.vector_norm(direction, dim=others, keepdim=True)
    if dim < 0:
        length = length.view(norm.shape)
    return some.like(direction * (length / norm))


def _scaled(y: Tensor, weight: Any, bias: Any, shape: list[int], some: Stacked) -> Tensor:
    """w·y + b with weights and biases in this shape, in the type of y."""
    w, b = (
        None if part is None else rows_of(part, some.stack).to(y.dtype).reshape(len(y), *shape)
        for part in (weight, bias)
    )
    if w is not None and b is not None:
        return torch.addcmul(b, y, w)
    return y * w if w is not None else y if b is None else y + b


def _taped_layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """Rows of some dimensions with mean 0 and variance 1, times a weight."""
    if not is_sample(input) or is_sample(weight) or is_sample(bias):
        return NotImplemented
    shape, seen = tuple(normalized_shape), Kept(input.rows)

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        by_output = gradient.reshape(len(gradient), -1, *shape)
        if isinstance(weight, Taped):
            normal = functional.layer_norm(seen.get(), shape, eps=eps)
            yield weight, (by_output * normal.view(by_output.shape)).sum(1)
        if isinstance(bias, Taped):
            yield bias, by_output.sum(1)

    y = functional.layer_norm(input.rows, shape, numbers_of(weight), numbers_of(bias), eps)
    return tape_of(weight, bias).noted(y, pieces)


def _taped_group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """Groups of channels of [n, C, ...] with mean 0 and variance 1, times a weight."""
    if not is_sample(input) or is_sample(weight) or is_sample(bias):
        return NotImplemented
    x = input.rows.flatten(0, 1)
    seen, samples, shape = Kept(x), len(input.rows), input.rows.shape

    def by_channel(x: Tensor) -> Tensor:
        return x.reshape(samples, -1, shape[2], math.prod(shape[3:])).sum((1, 3))

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        if isinstance(weight, Taped):
            normal = functional.group_norm(seen.get(), num_groups, eps=eps)
            yield weight, by_channel(gradient * normal.view(shape))
        if isinstance(bias, Taped):
            yield bias, by_channel(gradient)

    y = functional.group_norm(x, num_groups, numbers_of(weight), numbers_of(bias), eps)
    return tape_of(weight, bias).noted(y.view(shape), pieces)


RULES: dict[Any, Rule] = {
    **dict.fromkeys((functional.layer_norm, torch.layer_norm), _layer_norm),
    **dict.fromkeys((functional.rms_norm, torch.rms_norm), _rms_norm),
    **dict.fromkeys((functional.group_norm, torch.group_norm), _group_norm),
    functional.batch_norm: _batch_norm,
    torch._weight_norm: _weight_norm,
}
TAPED: dict[Any, Rule] = {
    functional.layer_norm: _taped_layer_norm,
    functional.group_norm: _taped_group_norm,
}
