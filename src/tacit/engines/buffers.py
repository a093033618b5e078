"""Memory that is used again: rows of a state that is gone become the rows of the next one.

New memory costs as much time as what is written into it. So an iteration of N clients with P parameters takes what
the last one left, as long as nobody else can see it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from functools import cache
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


def is_uniquely_owned(state: Any) -> bool:
    """Whether only the caller can see a state's tensors: then they may be written into."""
    return _counts_can_be_trusted() and _is_alone(state)


def left_over(before: Any, after: Any) -> list[Tensor]:
    """The tensors of an earlier state that only the caller can see, without those that the next one has taken over."""
    if not (_counts_can_be_trusted() and sys.getrefcount(before) <= ALONE):
        return []
    kept = {getattr(after, field.name).untyped_storage().data_ptr() for field in fields(after)}
    found = []
    for field in fields(before):
        tensor = getattr(before, field.name)
        if tensor.untyped_storage().data_ptr() not in kept and _is_unseen(tensor, 1):
            found.append(tensor)
    return found


def _is_alone(state: Any) -> bool:
    if sys.getrefcount(state) > ALONE + 1:  # one more: the question came through another function
        return False
    own = getattr(state, "__dict__", [])
    if sys.getrefcount(own) > ALONE:
        return False
    return all(_is_unseen(getattr(state, field.name), 0) for field in fields(state))


def _is_unseen(tensor: Tensor, variables: int) -> bool:
    """Whether a state, and so many variables of the caller, are all that refer to a tensor or its storage."""
    storage = tensor.untyped_storage()
    # Asking counts as one use of the storage, the tensor is the other; views and arrays count too.
    if storage_uses is None or storage_uses(storage._cdata) > 2 or sys.getrefcount(storage) > ALONE:
        return False
    return sys.getrefcount(tensor) <= ALONE + variables


@dataclass
class _Probe:
    rows: Tensor


@dataclass
class _Holder:
    state: Any


@cache
def _counts_can_be_trusted() -> bool:
    """Whether this Python and this torch count as we think: tried out on states that are seen and not seen."""
    if storage_uses is None:
        return False
    probes = [_Holder(_Probe(torch.zeros(2, 2))) for _ in range(4)]
    elsewhere = [probes[1].state, probes[2].state.rows, probes[3].state.rows[0]]
    answers = [_asked(holder) for holder in probes]
    return len(elsewhere) == 3 and answers == [True, False, False, False]


def _asked(holder: _Holder) -> bool:
    """The question as `is_nobody_elses` asks it."""
    return _passed_on(holder.state)


def _passed_on(state: Any) -> bool:
    return _is_alone(state)
