"""Lookup of our Triton kernels for layers on a GPU."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
from torch import Tensor


def kernels_for(x: Tensor) -> ModuleType | None:
    """The kernels for a tensor's device and type; None: use tensor operations instead."""
    return _kernels(x.device) if x.is_cuda and x.dtype == torch.float32 else None


@cache
def _kernels(device: torch.device) -> ModuleType | None:
    """Our kernels if one of them compiles and runs on the device.

    That takes Triton and a C compiler.
    """
    try:
        from tacit.tasks.layers import gpu

        gpu.pool(torch.zeros(1, 1, 2, 2, 1, device=device), (2, 2), False)
    except Exception:
        # Triton's errors have no common base class. Tensor operations work in any case.
        return None
    return gpu
