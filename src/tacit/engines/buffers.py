"""Memory that is used again: tensors whose last use has passed.

New memory costs as much time as writing to it, so an iteration of N clients with P parameters
takes what the last one left, as long as nothing else refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

import torch
from torch import Tensor

KEPT = 4  # tensors that wait to be used again
# Private, so there may be torch without it: memory is not used again then.
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
        for index, tensor in enumerate(self._free):
            if _are_alike(tensor, like):
                return self._free.pop(index)
        held = self._held or []
        for index in range(len(held)):
            if _are_alike(held[index], like) and _is_alone(held, index):
                return held[index]
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
        if tensor.is_contiguous() and all(tensor is not other for other in self._free):
            self._free = [*self._free[1 - KEPT :], tensor]

    def held(self) -> list[Tensor]:
        """The tensors that are held for good."""
        return list(self._held or ())

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is one of those that are held for good."""
        return any(tensor is held for held in self._held or ())


def _are_alike(tensor: Tensor, like: Tensor) -> bool:
    same = (tensor.shape, tensor.dtype, tensor.device) == (like.shape, like.dtype, like.device)
    return same and tensor is not like and tensor.is_contiguous()


def references(items: list[Any], index: int = -1) -> int:
    """Python's count of references to an object in a list, which no variable must refer to."""
    return getrefcount(items[index])


# The count of an object that only a list refers to. It is measured, in the call that is used, since
# versions of Python differ in what they count: 3.14 leaves out variables on its stack.
ONLY_IN_LIST = references([object()])


def is_only_in(items: list[Any], index: int = -1) -> bool:
    """Whether nothing but a list refers to an object in it; no variable must."""
    return references(items, index) <= ONLY_IN_LIST


def is_only_reference(tensors: list[Tensor], buffers: Buffers) -> bool:
    """Whether only this list and the buffers refer to its last tensor and to that one's memory."""
    return _is_alone(tensors, -1, others=1 if buffers.holds(tensors[-1]) else 0)


def _is_alone(tensors: list[Tensor], index: int, others: int = 0) -> bool:
    counts = _counts_of_unshared_memory()
    if counts is None or references(tensors, index) > ONLY_IN_LIST + others:
        return False
    storage = tensors[index].untyped_storage()
    # Torch must have allocated this memory, for this process only: not NumPy or another library.
    shared = storage.device.type == "cpu" and storage.is_shared()
    if shared or not storage.resizable():
        return False
    del storage
    # A tensor made in inference mode cannot be written into outside of it.
    if tensors[index].is_inference() or getweakrefcount(tensors[index]):
        return False
    return _memory_counts(tensors, index) == counts


def _memory_counts(tensors: list[Tensor], index: int = -1) -> tuple[int, int]:
    """References to the memory of a tensor: Python's, and torch's, with those of views."""
    assert storage_uses is not None
    storages = [tensors[index].untyped_storage()]
    return references(storages), storage_uses(storages[0]._cdata)


@cache
def _counts_of_unshared_memory() -> tuple[int, int] | None:
    """The counts of memory that one tensor refers to; None if this torch does not tell it apart."""
    if storage_uses is None:
        return None
    alone, viewed, exported = (torch.zeros(2, 2) for _ in range(3))
    users = [viewed[0], exported.numpy()]
    counts = _memory_counts([alone])
    differ = all(_memory_counts([tensor]) != counts for tensor in (viewed, exported))
    return counts if differ and len(users) == 2 else None
