"""Devices that rows can be on, copies to them, and their precision: full float32 or TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from tacit.core.errors import Misuse

# How gradients are computed: in float32; with products in TF32, where a GPU has it; or by torch's
# autocast in bfloat16. Models, messages and the updates of an algorithm are float32 in each.
Precision = Literal["float32", "tf32", "bf16"]


def check_device(device: torch.device | str, key: str = "device") -> torch.device:
    """Require a device that this machine has; `key` is what the user calls it."""
    try:
        wanted = torch.device(device)
    except RuntimeError:
        wanted = torch.device("meta")
    if wanted.type not in ("cpu", "cuda"):
        raise Misuse(f"{key} = {str(device)!r} is not a device for this.", 'Use "cpu" or "cuda".')
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted.type == "cuda" and (wanted.index or 0) >= present:
        raise Misuse(
            f"{key} = {str(device)!r}, but this machine has {present or 'no'} CUDA devices.",
            'Use "cpu".',
        )
    return wanted


def to_device(numbers: Tensor, device: torch.device | str) -> Tensor:
    """Copy from the host to a device, without waiting for a GPU."""
    if torch.device(device).type != "cuda":
        return numbers.to(device)
    # Torch keeps the pinned pages until the GPU has read them.
    return numbers.pin_memory().to(device, non_blocking=True)


def tf32_allowed() -> bool:
    """Whether float32 products may use TF32 (`torch.set_float32_matmul_precision`)."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:
        # Set by the newer switches, which cannot be mixed with the older ones.
        return getattr(torch.backends.cuda.matmul, "fp32_precision", "ieee") == "tf32"


@contextmanager
def consistent_tf32() -> Iterator[None]:
    """Let cuDNN, which uses TF32 by default, use it only where products do."""
    try:
        before = torch._C._get_cudnn_allow_tf32()
    except RuntimeError:
        # Set by the newer switches, one by one: that was a deliberate choice.
        yield
        return
    torch._C._set_cudnn_allow_tf32(tf32_allowed())
    try:
        yield
    finally:
        torch._C._set_cudnn_allow_tf32(before)
