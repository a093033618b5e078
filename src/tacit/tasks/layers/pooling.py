"""Pooling over windows of an image that do not overlap.

Images [k, C, H, W, B] lie in memory as torch lays out k·C images of B channels with the channels last, for which it
has loops of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.tasks.layers.own_kernels import kernels

aten = torch.ops.aten


@dataclass(frozen=True)
class MaxPool:
    """The largest number of each window."""

    size: tuple[int, int]
    width: int = 0

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Keeps the input, and where in it the largest numbers are: the first of equal ones."""
        if (gpu := kernels(x)) is not None:
            y, where = gpu.pool(x.contiguous(), self.size, False)
            return y, (x, where)
        images = _images(x)
        y, where = aten.max_pool2d_with_indices(images, self.size, self.size)
        return _back(y, x), (images, where)

    def backward(
        self,
        weights: Tensor,
        kept: tuple[Tensor, Tensor],
        dy: Tensor,
        gradient: Tensor,
        further: bool,
    ) -> Tensor | None:
        """The place of the largest number gets the gradient."""
        if not further:
            return None
        images, where = kept
        if (gpu := kernels(dy)) is not None:
            return gpu.unpool(dy.contiguous(), where, images.shape, self.size)  # type: ignore[no-any-return]
        with _no_two_meet(dy.device):
            dx = aten.max_pool2d_with_indices_backward(
                _images(dy), images, self.size, self.size, (0, 0), (1, 1), False, where
            )
        return _back(dx, dy)


@dataclass(frozen=True)
class MeanPool:
    """The mean of each window."""

    size: tuple[int, int]
    width: int = 0

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps the input, for its shape."""
        images = _images(x)
        return _back(aten.avg_pool2d(images, self.size, self.size), x), images

    def backward(
        self, weights: Tensor, kept: Tensor, dy: Tensor, gradient: Tensor, further: bool
    ) -> Tensor | None:
        """The same share for all."""
        if not further:
            return None
        with _no_two_meet(dy.device):
            dx = aten.avg_pool2d_backward(
                _images(dy), kept, self.size, self.size, (0, 0), False, True, None
            )
        return _back(dx, dy)


def _images(x: Tensor) -> Tensor:
    """[k, C, H, W, B] as [k·C, B, H, W], without moving a number."""
    return x.contiguous().flatten(0, 1).permute(0, 3, 1, 2)


def _back(y: Tensor, like: Tensor) -> Tensor:
    """[k·C, B, H, W] as [k, C, H, W, B]."""
    return y.permute(0, 2, 3, 1).contiguous().unflatten(0, like.shape[:2])  # type: ignore[no-untyped-call, no-any-return]


@contextmanager
def _no_two_meet(device: torch.device) -> Iterator[None]:
    """Windows that do not overlap never add to the same number, so no order of sums can change a result.

    Torch, which does not look whether they do, would warn of it.
    """
    before = torch.is_deterministic_algorithms_warn_only_enabled() and device.type == "cuda"
    if before:
        torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        if before:
            torch.use_deterministic_algorithms(True, warn_only=True)
