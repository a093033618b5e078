"""Convolutions and pooling, with filters that differ from row to row or that all have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.core.native.layers import Geometry
from tacit.gradients import kernel_functions
from tacit.gradients.batch_last import (
    Convolved,
    is_batch_last,
    loops_for,
    max_pool,
    noted_convolution,
    opened,
    pools_fused,
    step_of,
)
from tacit.gradients.elementwise import elementwise
from tacit.gradients.products import OuterProducts, position_products, stay_apart
from tacit.gradients.rowwise import folded, row_by_row
from tacit.gradients.stacked import Rule, Stacked, first_stacked, rows_of
from tacit.gradients.taped import Kept, Piece, Positions, Taped, is_sample, numbers_of

DIMENSIONS: dict[Any, int] = {
    torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3,
    torch.conv_transpose1d: 1, torch.conv_transpose2d: 2, torch.conv_transpose3d: 3,
}  # fmt: skip
# Pixels of a window that loops pool.
LARGEST_WINDOW = 256


def _convolution(
    func: Any, input: Any, weight: Tensor, bias: Any = None, *args: Any, **kwargs: Any
) -> Any:
    if not isinstance(weight, Stacked) and not isinstance(bias, Stacked):
        return folded(func, DIMENSIONS[func] + 1, input, weight, bias, *args, **kwargs)
    return row_by_row(func, input, weight, bias, *args, **kwargs)


def _conv2d(
    input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Any:  # fmt: skip
    options = (stride, padding, dilation, groups)
    some = first_stacked(input, weight, bias)
    plain = isinstance(weight, Stacked) and not isinstance(padding, str) and groups == 1
    if not plain or input.dim() != 4:
        return _convolution(torch.conv2d, input, weight, bias, *options)
    (top, left), stride, dilation = _each(padding, 2), _each(stride, 2), _each(dilation, 2)
    x, b = rows_of(input, some.stack), None if bias is None else rows_of(bias, some.stack)
    if isinstance(bias, Stacked | None) and is_batch_last(x, weight.rows):
        step = step_of(x.movedim(1, -1), weight.rows, b, stride, (top, left), dilation)
        places = weight.gradient, None if bias is None else bias.gradient
        return opened(replace(step, places=places), some.stack)
    if dilation == (1, 1):
        result = kernel_functions.convolve(x, weight.rows, b, stride, (top, left))
        if result is not NotImplemented:
            return some.like(result)
    return _convolution(torch.conv2d, input, weight, bias, *options)


def _relu(func: Any, input: Stacked, inplace: bool = False) -> Any:
    if isinstance(input, Convolved) and input.is_open and torch.is_grad_enabled():
        step = replace(input.step, relu=True)
        if (func is functional.relu and not inplace) or func in (torch.relu, Tensor.relu):
            return Convolved.of(step, input.stack)
        input.step = step
        return input
    options = (inplace,) if func is functional.relu else ()
    return elementwise(func, input, *options)


def _max_pool2d(
    input: Stacked, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    size: Any = _each(kernel_size, 2)
    step: Any = _each(stride, 2) if stride else size
    plain = _each(padding, 2) == (0, 0) and _each(dilation, 2) == (1, 1) and not ceil_mode
    if plain and math.prod(size) <= LARGEST_WINDOW and not return_indices:
        if isinstance(input, Convolved) and _takes_pooling(input, size, step):
            return input.like(replace(input.step, pool=(size, step)).computed())
        result = max_pool(input.rows, size, step)
        if result is not NotImplemented:
            return input.like(result)
    return _pooled(
        functional.max_pool2d, input, kernel_size, stride, padding, dilation, ceil_mode,
        return_indices,
    )  # fmt: skip


def _takes_pooling(input: Convolved, size: Any, step: Any) -> bool:
    """Whether pooling can be a part of a convolution."""
    recorded = input.is_open and torch.is_grad_enabled()
    return recorded and pools_fused(input.step.x, size, step)


def _pooled(func: Any, input: Stacked, *args: Any, **kwargs: Any) -> Any:
    """Pooling, of which torch has fast loops for channels that are last in memory.

    Windows are of one channel of one sample. So the samples can be the channels, where they are
    last in memory, as compiled loops leave them.
    """
    x = input.rows
    for samples in (0, 1) if x.is_cpu and x.ndim == 5 else ():
        if x.shape[samples] > 1 and x.movedim(samples, -1).is_contiguous():
            y: Tensor = func(x.movedim(samples, 2).flatten(0, 1), *args, **kwargs)
            by_channel = y.view(-1, x.shape[2], *y.shape[1:])
            return input.like(by_channel.movedim(2, samples))
    return folded(func, 3, input, *args, **kwargs)


def _taped_convolution(
    func: Callable[..., Tensor],
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Convolution of [n, C, *sizes] or [C, *sizes] with [O, C/groups, *kernel]."""
    if not is_sample(input) or not isinstance(weight, Taped) or is_sample(bias):
        return NotImplemented
    kernel = weight.unrecorded.shape[2:]
    steps, spread = _each(stride, dims), _each(dilation, dims)
    if dims == 2 and groups == 1 and input.dim() == 4 and not isinstance(padding, str):
        result = _noted_for_samples(input, weight, bias, (steps, _each(padding, 2), spread))
        if result is not NotImplemented:
            return result
    x = input.rows.reshape(-1, *input.rows.shape[-dims - 1 :])
    if isinstance(padding, str):
        pairs = zip(spread, kernel, strict=True)
        totals = [gap * (taps - 1) if padding == "same" else 0 for gap, taps in pairs]
        # As torch does: what is left of an odd number is added on the right.
        x = functional.pad(x, [p for t in reversed(totals) for p in (t // 2, t - t // 2)])
        padding = 0
    paddings = _each(padding, dims)
    y = func(x, weight.unrecorded, numbers_of(bias), steps, paddings, spread, groups)
    seen, samples = Kept(x), len(input.rows)

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        by_output = gradient.reshape(len(x), -1, *gradient.shape[-dims:])
        windows = _windows(seen.get(), kernel, steps, paddings, spread, by_output.shape[2:])
        yield weight, _by_filters(by_output, windows, samples, groups)
        if isinstance(bias, Taped):
            yield bias, _by_channels(by_output, samples)

    result = y.view(*input.rows.shape[: -dims - 1], *y.shape[1:])
    return weight.stack.noted(result, pieces)


def _noted_for_samples(input: Stacked, weight: Taped, bias: Tensor | None, options: Any) -> Any:
    """A convolution of images whose samples are last in memory, where that is faster."""

    def note(x: Tensor, by_output: Tensor, geometry: Geometry) -> None:
        count = geometry.filters * geometry.taps
        gradients = x.new_empty(x.shape[-1], count + geometry.filters * geometry.bias)
        squares = x.new_empty(len(gradients), 1, dtype=torch.float64)
        loops_for(x).filter_gradients(x[0], by_output[0], geometry, gradients, squares[:, 0])
        by_filters, by_bias = gradients.tensor_split([count], 1)
        weight.stack.pieces.append((weight, OuterProducts(by_filters, squares=squares)))
        if isinstance(bias, Taped):
            weight.stack.pieces.append((bias, by_bias))

    return noted_convolution(
        input.rows, weight.unrecorded, numbers_of(bias), options, note, weight.stack.anchor,
        weight.stack,
    )  # fmt: skip


def _taped_transposed_convolution(
    func: Callable[..., Tensor],
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """Transposed convolution of [n, C, *sizes] with [C, O/groups, *kernel]."""
    if not is_sample(input) or not isinstance(weight, Taped) or is_sample(bias):
        return NotImplemented
    kernel = weight.unrecorded.shape[2:]
    steps, spread, paddings = (_each(value, dims) for value in (stride, dilation, padding))
    x = input.rows.reshape(-1, *input.rows.shape[-dims - 1 :])
    more = _each(output_padding, dims)
    y = func(x, weight.unrecorded, numbers_of(bias), steps, paddings, more, groups, spread)
    seen, samples = Kept(x), len(input.rows)

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        # The layer is the transpose of a convolution, whose output has the shape of x.
        by_output = gradient.reshape(len(x), -1, *gradient.shape[-dims:])
        windows = _windows(by_output, kernel, steps, paddings, spread, x.shape[2:])
        yield weight, _by_filters(seen.get(), windows, samples, groups)
        if isinstance(bias, Taped):
            yield bias, _by_channels(by_output, samples)

    result = y.view(*input.rows.shape[: -dims - 1], *y.shape[1:])
    return weight.stack.noted(result, pieces)


def _each(value: Any, dims: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * dims
    return tuple(value) * (dims if len(value) == 1 else 1)


def _windows(
    x: Tensor,
    kernel: torch.Size,
    steps: tuple[int, ...],
    paddings: tuple[int, ...],
    spread: tuple[int, ...],
    sizes: torch.Size,
) -> Tensor:
    """What each tap of a kernel sees of images [N, C, ...]: [N, C, taps, positions]."""
    x = functional.pad(x, [p for side in reversed(paddings) for p in (side, side)]).contiguous()
    # The last window may end behind the image: a step that does not fit, or output_padding.
    missing = [
        max(0, (size - 1) * step + (taps - 1) * gap + 1 - length)
        for size, step, taps, gap, length in zip(
            sizes, steps, kernel, spread, x.shape[2:], strict=True
        )
    ]
    if any(missing):
        x = functional.pad(x, [p for side in reversed(missing) for p in (0, side)])
    strides = x.stride()
    view = x.as_strided(
        (*x.shape[:2], *kernel, *sizes),
        (
            *strides[:2],
            *(s * gap for s, gap in zip(strides[2:], spread, strict=True)),
            *(s * step for s, step in zip(strides[2:], steps, strict=True)),
        ),
    )
    return view.reshape(*x.shape[:2], math.prod(kernel), math.prod(sizes))


def _by_filters(outer: Tensor, windows: Tensor, samples: int, groups: int) -> Piece:
    """The gradient of each sample by filters [O, C/groups, taps].

    Args:
        outer: [N, O, ...], one number for each filter and position.
        windows: What the filters saw there, [N, C, taps, positions].
        samples: The number of samples B, of which each has N/B images.
        groups: Each group of filters saw a group of channels.
    """
    images, filters = outer.shape[:2]
    if groups == 1:
        # Positions of all images of a sample.
        left, right = (
            x.flatten(2).mT if images == samples else _of_images(x.flatten(2), samples)
            for x in (outer, windows.flatten(1, 2))
        )
        return (
            Positions(left, right)
            if stay_apart(left, left.shape[1], left.shape[2], right.shape[2])
            else position_products(left, right).rows()
        )
    left = outer.reshape(images * groups, filters // groups, -1)
    right = windows.reshape(images * groups, -1, windows.shape[3])
    by_image = torch.bmm(left, right.mT).view(samples, images // samples, -1)
    return by_image.sum(1) if images > samples else by_image[:, 0]


def _of_images(x: Tensor, samples: int) -> Tensor:
    """[N, D, L] as the positions [B, N/B · L, D] of samples with several images."""
    return x.mT.reshape(samples, -1, x.shape[1])


def _by_channels(gradient: Tensor, samples: int) -> Tensor:
    """The gradient of each sample by a bias: [N, O, ...] → [B, O]."""
    by_image = gradient.flatten(2).sum(2)
    return by_image.view(samples, -1, by_image.shape[1]).sum(1)


def _by_dims(name: str, rule: Rule) -> dict[Any, Rule]:
    """A rule for the functions of one, two and three dimensions."""
    functions = [getattr(functional, name.format(dims)) for dims in (1, 2, 3)]
    return {func: partial(rule, func, dims) for dims, func in enumerate(functions, 1)}


RULES: dict[Any, Rule] = {
    **{func: partial(_convolution, func) for func in DIMENSIONS},
    torch.conv2d: _conv2d,
    functional.max_pool2d: _max_pool2d,
    **{
        func: partial(_relu, func)
        for func in (functional.relu, torch.relu, Tensor.relu, torch.relu_, Tensor.relu_)
    },
}
TAPED: dict[Any, Rule] = {
    **_by_dims("conv{}d", _taped_convolution),
    **_by_dims("conv_transpose{}d", _taped_transposed_convolution),
}
