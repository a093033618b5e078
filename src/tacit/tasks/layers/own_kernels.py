"""Whether there are kernels of our own for a tensor: Triton comes with torch where there is a GPU for it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor


def kernels(x: Tensor) -> ModuleType | None:
    """The kernels for tensors such as this, or None: then tensor operations do the same."""
    return _module() if x.is_cuda and x.dtype == torch.float32 else None


@cache
def _module() -> ModuleType | None:
    try:
        return import_module("tacit.tasks.layers.gpu")
    except ImportError:
        return None
