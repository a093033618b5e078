"""Memory that is used again: rows of a state that is gone become the rows of the next one.

New memory costs as much time as what is written into it. So an iteration of N clients with P parameters takes what
the last one left, as long as nobody else can see it.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

KEPT = 4  # tensors waiting to be used again
ALONE = 3  # references to what only a state holds: the state's, a local variable's, the question's
storage_uses = getattr(torch._C, "_storage_Use_Count", None)


class Buffers:
    """Tensors that may be written into."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def take(self, like: Tensor) -> Tensor:
        """A tensor like this one, with any numbers in it."""
        for place, tensor in enumerate(self._free):
            if tensor.shape == like.shape and tensor.dtype == like.dtype and tensor is not like:
                return self._free.pop(place)
        return torch.empty(like.shape, dtype=like.dtype, device=like.device)

    def give(self, tensor: Tensor) -> None:
        """Give away a tensor that nobody needs any more."""
        if tensor.is_contiguous() and all(tensor is not one for one in self._free):
            self._free = [*self._free[1 - KEPT :], tensor]


def is_nobody_elses(state: Any) -> bool:
    """Whether only the caller can see a state's tensors: then they may be written into."""
    if storage_uses is None or sys.getrefcount(state) > ALONE:
        return False
    own = getattr(state, "__dict__", [])
    if sys.getrefcount(own) > ALONE:
        return False
    for field in fields(state):
        tensor = getattr(state, field.name)
        storage = tensor.untyped_storage()
        # Asking counts as one use of the storage, the tensor is the other; views and arrays count too.
        if storage_uses(storage._cdata) > 2 or sys.getrefcount(storage) > ALONE:
            return False
        if sys.getrefcount(tensor) > ALONE:
            return False
    return True
