"""Layers with parameters that all samples have in common: linear ones, convolutions, tables.

Each computes for all samples with one matrix, and notes the parts of each sample's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.core.native import per_sample
from tacit.core.native.per_sample import Geometry
from tacit.gradients.convolution import noted_convolution
from tacit.gradients.products import Lookups, OuterProducts, position_products, stay_apart
from tacit.gradients.stacked import Rule, Stacked
from tacit.gradients.taped import Kept, Piece, Positions, Tape, Taped


def _seen_only(x: Any) -> bool:
    """Whether a tensor comes from samples."""
    return isinstance(x, Stacked) and not isinstance(x, Taped)


def _number(x: Tensor | None) -> Tensor | None:
    """The numbers of a parameter, which autograd does not see, or a plain tensor itself."""
    return x.unrecorded if isinstance(x, Taped) else x


def _flat(rows: Tensor) -> Tensor:
    """Rows [B, ..., D] as [B, T, D]."""
    return rows.reshape(len(rows), -1, rows.shape[-1])


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """[..., I], [O, I] → [..., O]."""
    if not _seen_only(input) or not isinstance(weight, Taped) or weight.dim() != 2:
        return NotImplemented
    if _seen_only(bias):
        return NotImplemented
    assert isinstance(input, Stacked)
    seen = Kept(input.rows)

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        left = _flat(gradient)
        yield weight, Positions(left, _flat(seen.get()))
        if isinstance(bias, Taped):
            yield bias, left.sum(1)

    # One product: torch may compute one for each sample of three dimensions, several times as slow.
    x = input.rows
    y = functional.linear(x.reshape(-1, x.shape[-1]), weight.unrecorded, _number(bias))
    return weight.stack.noted(y.view(*x.shape[:-1], y.shape[-1]), pieces)


def matmul(left: Tensor, right: Tensor, *, out: Any = None) -> Any:
    """[..., I] @ [I, O] → [..., O], with the matrix on the right or on the left."""
    if out is not None:
        return NotImplemented
    if isinstance(right, Taped) and right.dim() == 2 and _seen_only(left):
        matrix, other = right, left
        assert isinstance(other, Stacked)
        seen = Kept(other.rows)

        def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
            yield matrix, Positions(_flat(seen.get()), _flat(gradient))

        x = other.rows
        y = x.reshape(-1, x.shape[-1]) @ matrix.unrecorded
        return matrix.stack.noted(y.view(*x.shape[:-1], y.shape[-1]), pieces)
    if isinstance(left, Taped) and left.dim() == 2 and _seen_only(right) and right.dim() == 1:
        return linear(right, left)
    return NotImplemented


def _addmm(
    added: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Any:
    product = matmul(left, right)
    if product is NotImplemented or (beta, alpha, out) != (1, 1, None):
        return NotImplemented
    return product + added


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table [V, D]."""
    if not _seen_only(input) or not isinstance(weight, Taped):
        return NotImplemented
    if max_norm is not None or scale_grad_by_freq:
        return NotImplemented
    assert isinstance(input, Stacked)
    size, width = weight.unrecorded.shape
    index = Kept(input.rows)

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        chosen = index.get().flatten(1)
        by_row = gradient.reshape(len(gradient), -1, width)
        if padding_idx is not None:
            by_row = by_row.masked_fill((chosen == padding_idx % size)[:, :, None], 0)
        yield weight, Lookups.of(chosen, by_row, size)

    return weight.stack.noted(functional.embedding(input.rows, weight.unrecorded), pieces)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """Rows of some dimensions with mean 0 and variance 1, times a weight."""
    if not _seen_only(input) or _seen_only(weight) or _seen_only(bias):
        return NotImplemented
    assert isinstance(input, Stacked)
    shape, seen = tuple(normalized_shape), Kept(input.rows)

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        by_output = gradient.reshape(len(gradient), -1, *shape)
        if isinstance(weight, Taped):
            normal = functional.layer_norm(seen.get(), shape, eps=eps)
            yield weight, (by_output * normal.view(by_output.shape)).sum(1)
        if isinstance(bias, Taped):
            yield bias, by_output.sum(1)

    y = functional.layer_norm(input.rows, shape, _number(weight), _number(bias), eps)
    return _tape(weight, bias).noted(y, pieces)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """Groups of channels of [n, C, ...] with mean 0 and variance 1, times a weight."""
    if not _seen_only(input) or _seen_only(weight) or _seen_only(bias):
        return NotImplemented
    assert isinstance(input, Stacked)
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

    y = functional.group_norm(x, num_groups, _number(weight), _number(bias), eps)
    return _tape(weight, bias).noted(y.view(shape), pieces)


def _tape(*values: Tensor | None) -> Tape:
    """The tape of the first parameter."""
    return next(x.stack for x in values if isinstance(x, Taped))


def convolution(
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
    if not _seen_only(input) or not isinstance(weight, Taped) or _seen_only(bias):
        return NotImplemented
    assert isinstance(input, Stacked)
    kernel = weight.unrecorded.shape[2:]
    steps, spread = _each(stride, dims), _each(dilation, dims)
    if dims == 2 and groups == 1 and input.dim() == 4 and not isinstance(padding, str):
        result = _compiled(input, weight, bias, (steps, _each(padding, 2), spread))
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
    y = func(x, weight.unrecorded, _number(bias), steps, paddings, spread, groups)
    seen, samples = Kept(x), len(input.rows)

    def pieces(gradient: Tensor) -> Iterator[tuple[Taped, Piece]]:
        by_output = gradient.reshape(len(x), -1, *gradient.shape[-dims:])
        windows = _windows(seen.get(), kernel, steps, paddings, spread, by_output.shape[2:])
        yield weight, _by_filters(by_output, windows, samples, groups)
        if isinstance(bias, Taped):
            yield bias, _by_channels(by_output, samples)

    result = y.view(*input.rows.shape[: -dims - 1], *y.shape[1:])
    return weight.stack.noted(result, pieces)


def _compiled(input: Stacked, weight: Taped, bias: Tensor | None, options: Any) -> Any:
    """A convolution of images by compiled loops, where they are faster."""

    def note(x: Tensor, by_output: Tensor, geometry: Geometry) -> None:
        count = geometry.filters * geometry.taps
        gradients = x.new_empty(x.shape[-1], count + geometry.filters * geometry.bias)
        squares = torch.empty(len(gradients), 1, dtype=torch.float64)
        per_sample.filter_gradients(x[0], by_output[0], geometry, gradients, squares[:, 0])
        by_filters, by_bias = gradients.tensor_split([count], 1)
        weight.stack.pieces.append((weight, OuterProducts(by_filters, squares=squares)))
        if isinstance(bias, Taped):
            weight.stack.pieces.append((bias, by_bias))

    return noted_convolution(
        input.rows, weight.unrecorded, _number(bias), options, note, weight.stack.anchor,
        weight.stack,
    )  # fmt: skip


def transposed_convolution(
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
    if not _seen_only(input) or not isinstance(weight, Taped) or _seen_only(bias):
        return NotImplemented
    assert isinstance(input, Stacked)
    kernel = weight.unrecorded.shape[2:]
    steps, spread, paddings = (_each(value, dims) for value in (stride, dilation, padding))
    x = input.rows.reshape(-1, *input.rows.shape[-dims - 1 :])
    more = _each(output_padding, dims)
    y = func(x, weight.unrecorded, _number(bias), steps, paddings, more, groups, spread)
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
    x = functional.pad(x, [p for own in reversed(paddings) for p in (own, own)]).contiguous()
    # The last window may end behind the image: a step that does not fit, or output_padding.
    missing = [
        max(0, (size - 1) * step + (taps - 1) * gap + 1 - length)
        for size, step, taps, gap, length in zip(
            sizes, steps, kernel, spread, x.shape[2:], strict=True
        )
    ]
    if any(missing):
        x = functional.pad(x, [p for own in reversed(missing) for p in (0, own)])
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
    found = torch.bmm(left, right.mT).view(samples, images // samples, -1)
    return found.sum(1) if images > samples else found[:, 0]


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


TAPED: dict[Any, Rule] = {
    functional.linear: linear,
    **dict.fromkeys((torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm), matmul),
    Tensor.__rmatmul__: lambda right, left: matmul(left, right),
    **dict.fromkeys((torch.addmm, Tensor.addmm), _addmm),
    functional.embedding: embedding,
    functional.layer_norm: layer_norm,
    functional.group_norm: group_norm,
    **_by_dims("conv{}d", convolution),
    **_by_dims("conv_transpose{}d", transposed_convolution),
}
