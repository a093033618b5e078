"""Convolutions and pooling of images whose samples are the last dimension in memory.

With images [n, C, height, width, B], windows are contiguous runs of numbers, and nothing is copied
between layers. Tensors have their usual order of dimensions, [n, B, C, height, width], with strides
of that order. Filters may differ from row to row.

On a CPU, compiled loops compute this, and on a GPU our kernels, which have the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tacit.core.native import layers
from tacit.core.native.layers import Geometry, Pair
from tacit.gradients.kernel_functions import kernels_for, packed
from tacit.gradients.products import stay_apart
from tacit.gradients.stacked import GradientPlace, Stack, Stacked, written_gradient

# Numbers of an image, and of a client's filters, up to which compiled loops are faster than a
# library, which makes better use of caches.
CACHED = 1 << 16
# Samples that loops take at a time; with fewer they are slower, unless a client has few products.
SAMPLES, LITTLE_WORK = 16, 1 << 18
# Channels and filters up to which kernels are faster on a GPU than those for channels last.
NARROW = 32


def loops_for(x: Tensor) -> Any:
    """The loops for a tensor's device and type, a module; None if there are none."""
    if not x.is_cuda:
        return layers if layers.supports(x) else None
    kernels = kernels_for(x) if x.dtype == torch.float32 else None
    return None if kernels is None else kernels.images


@dataclass(frozen=True)
class Step:
    """A convolution of padded images, and what follows it: pooling, and ReLU.

    Bias and ReLU preserve the order of numbers, so they come after pooling: the same values and
    gradients, computed on fewer numbers.

    Attributes:
        x: Padded images [k, C, H, W, B].
        filters: The filters of each of k models.
        bias: What is added to each channel [k, F], if anything.
        geometry: The convolution.
        samples: Which dimension of a tensor's rows counts the B samples: 1 for clients [n, B, ...]
            with filters of their own, 0 for rows [B, 1, ...] that are samples themselves.
        places: Where gradients by filters and bias are collected.
        note: Takes padded images and the gradient by their convolutions, where autograd does not
            see the filters; `anchor` then is a number that requires a gradient.
        anchor: See there.
        relu: Whether numbers below zero become zero.
        pool: Height and width of windows, and their distances; None: there is no pooling.
    """

    x: Tensor
    filters: Tensor
    bias: Tensor | None
    geometry: Geometry
    samples: int = 1
    places: tuple[GradientPlace | None, GradientPlace | None] = (None, None)
    note: Callable[[Tensor, Tensor], None] | None = None
    anchor: Tensor | None = None
    relu: bool = False
    pool: tuple[Pair, Pair] | None = None

    def computed(self) -> Tensor:
        """The result [n, B, F, rows, columns], or [B, 1, F, rows, columns]."""
        y: Tensor = _Convolution.apply(self.x, self.filters, self.bias, self.anchor, self)  # type: ignore[no-untyped-call]
        return y.movedim(-1, self.samples)


class Convolved(Stacked):
    """The result of a convolution, computed when it is used: what follows may be a part of it."""

    step: Step
    _rows: Tensor | None

    @staticmethod
    def of(step: Step, stack: Stack) -> Convolved:
        batch, (height, width) = step.x.shape[-1], step.geometry.output
        row = batch * width
        parts = (step.x, step.filters, step.bias, step.anchor)
        made: Convolved = Tensor._make_wrapper_subclass(
            Convolved, (batch if step.samples else 1, step.geometry.filters, height, width),
            (1, height * row, row, batch), dtype=step.x.dtype, device=step.x.device,
            requires_grad=any(part is not None and part.requires_grad for part in parts),
        )  # fmt: skip
        made.step, made._rows, made.stack, made.gradient = step, None, stack, None
        return made

    @property
    def rows(self) -> Tensor:
        if self._rows is None:
            # It was recorded when it was called, whatever the mode is where it is used first.
            with torch.enable_grad():
                self._rows = self.step.computed()
        return self._rows

    @rows.setter
    def rows(self, rows: Tensor) -> None:
        self._rows = rows

    @property
    def is_open(self) -> bool:
        """Whether it is not computed yet, so that something can become a part of it."""
        return self._rows is None


class _Convolution(torch.autograd.Function):
    """A step of padded images [n, C, H, W, B], filters and b: [n, F, rows, columns, B]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, anchor: Tensor | None, step: Step
    ) -> Tensor:
        geometry, loops = step.geometry, loops_for(x)
        y = x.new_empty(len(x), geometry.filters, *geometry.output, x.shape[-1])
        ctx.step, ctx.loops, ctx.shape = step, loops, y.shape
        if step.pool is not None:
            loops.convolve(x, w.flatten(2), geometry, y)
            result: Tensor
            result, pooled = loops.pool(y, *step.pool, b, step.relu)
            ctx.save_for_backward(x, w, b, *pooled)
            return result
        loops.convolve(x, w.flatten(2), geometry, y, b, step.relu)
        # Not the result without need: it may be changed in place.
        ctx.save_for_backward(x, w, b, *([y] if step.relu else []))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dy = gradients[0].contiguous()
        x, w, b, *results = ctx.saved_tensors
        step: Step = ctx.step
        loops = ctx.loops
        of_x, of_w, of_b, *_ = ctx.needs_input_grad
        w_place, b_place = step.places
        by_x = by_w = by_b = b_target = None
        if of_b:
            b_target, by_b = written_gradient(b_place, b)
        if step.pool is not None:
            dy = loops.unpool(dy, tuple(results), ctx.shape, *step.pool, step.relu, b_target)
        else:
            if step.relu:
                dy = torch.ops.aten.threshold_backward(dy, results[0], 0)
            if b_target is not None:
                torch.sum(dy, (2, 3, 4), out=b_target)
        by_x = torch.empty_like(x) if of_x else None

        def write_image_gradients() -> None:
            if by_x is not None:
                loops.image_gradients(dy, w.flatten(2), step.geometry, by_x)

        with _concurrently(write_image_gradients, dy.device) if of_x else nullcontext():
            if of_w:
                w_target, by_w = written_gradient(w_place, w)
                loops.weight_gradients(x, dy, step.geometry, w_target.flatten(2))
            if step.note is not None:
                step.note(x, dy)
        return by_x, by_w, by_b, None, None


def pools_fused(x: Tensor, size: Pair, stride: Pair) -> bool:
    """Whether pooling can be a part of a convolution: on a CPU if windows do not overlap."""
    return loops_for(x) is not layers or (stride[0] >= size[0] and stride[1] >= size[1])


class _MaxPool(torch.autograd.Function):
    """The largest numbers of windows, which may overlap, of images [k, C, H, W, B] on a GPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: Pair, stride: Pair, kernels: Any) -> Tensor:
        y: Tensor
        y, pooled = kernels.pool(x, size, stride, None, False)
        ctx.save_for_backward(*pooled)
        ctx.options, ctx.kernels = (x.shape, size, stride, False, None), kernels
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.kernels.unpool(gradients[0], ctx.saved_tensors, *ctx.options), None, None, None


def max_pool(x: Tensor, size: Pair, stride: Pair) -> Any:
    """The largest number of each window of images [n, B, C, H, W], as torch has it, on a GPU.

    NotImplemented where torch is as good: for windows that do not overlap, unless samples are last
    in memory. Where they overlap, torch adds gradients in an order that differs from time to time.
    """
    kernels = loops_for(x)
    if kernels is None or kernels is layers or x.ndim != 5:
        return NotImplemented
    for samples in (0, 1):
        images = x.movedim(samples, -1)
        if images.is_contiguous():
            y: Tensor = _MaxPool.apply(images, size, stride, kernels)  # type: ignore[no-untyped-call]
            return y.movedim(-1, samples)
    if stride[0] >= size[0] and stride[1] >= size[1]:
        return NotImplemented
    # Images of one sample each.
    images = x.flatten(0, 1).unsqueeze(-1).contiguous()
    pooled: Tensor = _MaxPool.apply(images, size, stride, kernels)  # type: ignore[no-untyped-call]
    return pooled.squeeze(-1).unflatten(0, x.shape[:2])  # type: ignore[no-untyped-call]


@contextmanager
def _concurrently(work: Callable[[], None], device: torch.device) -> Iterator[None]:
    """Run work on a second CUDA stream next to the body; both are complete at the end.

    The memory that work uses must belong to the stream of the caller. On a CPU, work comes first.
    """
    if device.type != "cuda":
        work()
        yield
        return
    main, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(main)
    with torch.cuda.stream(side):
        work()
    try:
        yield
    finally:
        main.wait_stream(side)


def noted_convolution(
    x: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    options: tuple[Pair, Pair, Pair],
    note: Callable[[Tensor, Tensor, Geometry], None],
    anchor: Tensor,
    stack: Stack,
) -> Any:
    """A convolution of samples [B, 1, C, H, W] with filters that all have in common.

    Args:
        x: The samples.
        filters: [F, C, kh, kw].
        bias: [F], or None.
        options: Stride, padding and dilation.
        note: Takes padded images [1, C, H, W, B], the gradient by their convolutions, and what was
            computed.
        anchor: A number that requires a gradient.
        stack: What the samples have in common.

    Returns:
        NotImplemented where a library is faster: a function of a sample's shapes, type and device.
    """
    if x.shape[1] != 1 or not _is_small(x, filters):
        return NotImplemented
    b = None if bias is None else bias[None]
    step = step_of(x.movedim(0, -1), filters.contiguous()[None], b, *options)
    if stay_apart(x, math.prod(step.geometry.output), len(filters), step.geometry.taps):
        return NotImplemented

    def noted(images: Tensor, gradient: Tensor) -> None:
        note(images, gradient, step.geometry)

    return opened(replace(step, samples=0, note=noted, anchor=anchor), stack)


def step_of(
    x: Tensor, filters: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair
) -> Step:
    """The convolution of images [k, C, H, W, B]."""
    top, left = padding
    x = functional.pad(x, (0, 0, left, left, top, top)) if top or left else x
    bias = packed(bias)
    size = (filters.shape[3], filters.shape[4])
    rows, columns = (
        (n - (s - 1) * d - 1) // apart + 1
        for n, s, d, apart in zip(x.shape[2:4], size, dilation, stride, strict=True)
    )
    image = (x.shape[1], x.shape[2], x.shape[3])
    geometry = Geometry(
        image, size, stride, dilation, (rows, columns), filters.shape[1], bias is not None
    )
    return Step(x.contiguous(), filters, bias, geometry)


def opened(step: Step, stack: Stack) -> Stacked:
    """The result of a step."""
    # What is computed without gradients stays so, whenever it is used.
    recorded = torch.is_grad_enabled()
    return Convolved.of(step, stack) if recorded else Stacked(step.computed(), stack)


def is_batch_last(x: Tensor, w: Tensor) -> bool:
    """Whether loops are faster for images [n, B, ...] and filters [n, F, ...] of n clients.

    A function of a client's shapes, type and device.
    """
    work = x.shape[1] * math.prod(x.shape[3:]) * math.prod(w.shape[1:])
    enough = x.shape[1] >= SAMPLES or (x.is_cpu and work <= LITTLE_WORK)
    return enough and _is_small(x, w) and w[0].is_contiguous()


def _is_small(x: Tensor, w: Tensor) -> bool:
    """Whether there are loops that are fast for images [..., C, H, W] and filters [..., F, C, ...].

    A function of these dimensions, the types and the device.
    """
    plain = x.dtype == w.dtype and not torch.is_autocast_enabled(x.device.type)
    cached = max(math.prod(x.shape[-3:]), math.prod(w.shape[-4:])) <= CACHED
    narrow = not x.is_cuda or max(w.shape[-4:-2]) <= NARROW
    return plain and cached and narrow and loops_for(x) is not None
