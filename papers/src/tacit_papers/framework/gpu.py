"""What a measurement leaves behind on the GPU, and which of its failures others can survive."""

from __future__ import annotations

import gc

import torch


def release_memory() -> None:
    """Return what torch keeps for later to the GPU, which other processes measure on, too."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def lacks_memory(problem: Exception) -> bool:
    """Whether the GPU had too little memory left: the same may succeed later."""
    return isinstance(problem, torch.OutOfMemoryError)


def is_broken(problem: Exception) -> bool:
    """Whether the GPU failed in a way after which this process cannot trust its results."""
    is_from_gpu = any(library in str(problem) for library in ("CUDA", "cuDNN"))
    return isinstance(problem, RuntimeError) and is_from_gpu and not lacks_memory(problem)
