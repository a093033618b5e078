"""Pooling over windows of an image that do not overlap, and the lookup of our Triton kernels.

Images [k, C, H, W, B] have the memory layout of k·C channels-last images with B channels, for which
torch has fast loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from tacit.tasks.layers.basic import WeightlessLayer

aten = torch.ops.aten


@dataclass(frozen=True)
class MaxPool(WeightlessLayer):
    """The largest number of each window.

    Saves the input and the position of the largest number, the first one among equals.
    """

    size: tuple[int, int]

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if (gpu := kernels_for(x)) is not None:
            y, where = gpu.pool(x.contiguous(), self.size, False)
            return y, (x, where)
        images = _to_torch(x)
        y, where = aten.max_pool2d_with_indices(images, self.size, self.size)
        return _from_torch(y, x), (images, where)

    def input_gradient(self, saved: tuple[Tensor, Tensor], dy: Tensor) -> Tensor:
        images, where = saved
        if (gpu := kernels_for(dy)) is not None:
            return gpu.unpool(dy.contiguous(), where, images.shape, self.size)  # type: ignore[no-any-return]
        with _no_determinism_warning(dy.device):
            dx = aten.max_pool2d_with_indices_backward(
                _to_torch(dy), images, self.size, self.size, (0, 0), (1, 1), False, where
            )
        return _from_torch(dx, dy)


@dataclass(frozen=True)
class MeanPool(WeightlessLayer):
    """The mean of each window; saves the input for its shape."""

    size: tuple[int, int]

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        images = _to_torch(x)
        return _from_torch(aten.avg_pool2d(images, self.size, self.size), x), images

    def input_gradient(self, saved: Tensor, dy: Tensor) -> Tensor:
        with _no_determinism_warning(dy.device):
            dx = aten.avg_pool2d_backward(
                _to_torch(dy), saved, self.size, self.size, (0, 0), False, True, None
            )
        return _from_torch(dx, dy)


def kernels_for(x: Tensor) -> ModuleType | None:
    """Our kernels for a tensor's device and type; None: use tensor operations instead."""
    return _kernels(x.device) if x.is_cuda and x.dtype == torch.float32 else None


@cache
def _kernels(device: torch.device) -> ModuleType | None:
    """Our kernels if one of them compiles and runs on the device: needs Triton and a C compiler."""
    try:
        from tacit.tasks.layers import gpu

        gpu.pool(torch.zeros(1, 1, 2, 2, 1, device=device), (2, 2), False)
    except Exception:
        # Triton's errors have no common base class. Tensor operations work in any case.
        return None
    return gpu


def _to_torch(x: Tensor) -> Tensor:
    """[k, C, H, W, B] as [k·C, B, H, W], without moving a number."""
    return x.contiguous().flatten(0, 1).permute(0, 3, 1, 2)


def _from_torch(y: Tensor, like: Tensor) -> Tensor:
    """[k·C, B, H, W] as [k, C, H, W, B]."""
    return y.permute(0, 2, 3, 1).contiguous().unflatten(0, like.shape[:2])  # type: ignore[no-untyped-call, no-any-return]


@contextmanager
def _no_determinism_warning(device: torch.device) -> Iterator[None]:
    """Silence torch's warning about non-deterministic sums.

    Windows that do not overlap never add to the same number, so the order of sums has no effect.
    """
    warns = torch.is_deterministic_algorithms_warn_only_enabled() and device.type == "cuda"
    if warns:
        torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        if warns:
            torch.use_deterministic_algorithms(True, warn_only=True)
