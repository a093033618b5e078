"""Our GPU kernels, where they can be used, and the type in which products are computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType

import torch
from torch import Tensor


@dataclass(frozen=True)
class Kernels:
    """Modules of kernels for images and vectors with channels last."""

    convolution: ModuleType
    norm: ModuleType
    layer_norm: ModuleType


def kernels_for(x: Tensor) -> Kernels | None:
    """Kernels for a tensor's device and type; None: use tensor operations instead."""
    if not x.is_cuda or x.dtype not in (torch.float32, torch.bfloat16):
        return None
    return _kernels(x.device)


def packed(w: Tensor | None) -> Tensor | None:
    """Weights [k, ...] of which each client's are contiguous, as our kernels read them."""
    return w if w is None or w[0].is_contiguous() else w.contiguous()


def compute_type(x: Tensor) -> torch.dtype:
    """The type in which products of x are computed: that of autocast, if it is on."""
    kind = x.device.type
    if x.dtype == torch.float32 and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype


@cache
def _kernels(device: torch.device) -> Kernels | None:
    """Our kernels if one of them compiles and runs on the device: needs Triton and a C compiler."""
    try:
        from tacit.gradients import gpu_convolution, gpu_group_norm, gpu_layer_norm

        gpu_group_norm.forward(torch.zeros(1, 1, 1, 1, device=device), None, None, 1, 1e-5)
    except Exception:
        # Triton's errors have no common base class. Tensor operations work in any case.
        return None
    return Kernels(gpu_convolution, gpu_group_norm, gpu_layer_norm)
