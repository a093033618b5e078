"""Memory that is used again: tensors whose last use has passed.

New memory costs as much time as writing to it, so an iteration of N clients with P parameters
takes what the last one left, as long as nothing else refers to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from weakref import getweakrefcount

import torch
from torch import Tensor

KEPT = 4  # tensors that wait to be used again
ALONE = 3  # references to an object held by one variable: that, a parameter, and the argument
storage_uses = getattr(torch._C, "_storage_Use_Count", None)


class Buffers:
    """Tensors that may be written into.

    Args:
        held: The first tensors of buffers that hold all of theirs for good: addresses of captured
            iterations. By default, tensors that are not used again are freed.
    """

    def __init__(self, held: Iterable[Tensor] | None = None) -> None:
        self._free: list[Tensor] = []
        self._held = None if held is None else list(held)

    def take(self, like: Tensor) -> Tensor:
        """An uninitialised tensor of the same shape, dtype and device as `like`, never `like`."""
        for place, tensor in enumerate(self._free):
            if _are_alike(tensor, like):
                return self._free.pop(place)
        for tensor in self._held or ():
            if _are_alike(tensor, like) and is_only_reference(tensor, self):
                return tensor
        new = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        if self._held is not None:
            self._held.append(new)
        return new

    def clear(self) -> None:
        """Free all tensors that wait to be used again."""
        self._free = []

    def give(self, tensor: Tensor) -> None:
        """Offer a tensor that nothing refers to any more."""
        if self._held is not None:
            return
        if tensor.is_contiguous() and all(tensor is not one for one in self._free):
            self._free = [*self._free[1 - KEPT :], tensor]

    def held(self) -> list[Tensor]:
        """The tensors that are held for good."""
        return list(self._held or ())

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is one of those that are held for good."""
        return any(tensor is one for one in self._held or ())


def _are_alike(tensor: Tensor, like: Tensor) -> bool:
    same = (tensor.shape, tensor.dtype, tensor.device) == (like.shape, like.dtype, like.device)
    return same and tensor is not like and tensor.is_contiguous()


def is_only_reference(tensor: Tensor, buffers: Buffers) -> bool:
    """Whether only the caller's variable and the buffers refer to a tensor and to its memory."""
    return _counts_can_be_trusted() and _is_alone(tensor, buffers.holds(tensor))


def _is_alone(tensor: Tensor, held: bool = False) -> bool:
    # One more: the question came through another function.
    if storage_uses is None or sys.getrefcount(tensor) > ALONE + 1 + held:
        return False
    storage = tensor.untyped_storage()
    # Torch must have allocated this memory, for this process only: not NumPy or another library.
    shared = storage.device.type == "cpu" and storage.is_shared()
    if shared or not storage.resizable():
        return False
    # A tensor made in inference mode cannot be written into outside of it.
    if tensor.is_inference() or getweakrefcount(tensor):
        return False
    # `storage` counts as one use and the tensor as the other; views and arrays count too.
    return storage_uses(storage._cdata) <= 2 and sys.getrefcount(storage) <= ALONE


@cache
def _counts_can_be_trusted() -> bool:
    """Whether this Python and this torch count references as assumed, tried on known cases."""
    if storage_uses is None:
        return False

    def checked(tensor: Tensor) -> bool:
        return _is_alone(tensor)

    alone = torch.zeros(2, 2)
    held, viewed = torch.zeros(2, 2), torch.zeros(2, 2)
    elsewhere = [held, viewed[0], viewed.numpy()]
    return len(elsewhere) == 3 and checked(alone) and not checked(held) and not checked(viewed)
