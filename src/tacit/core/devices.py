"""Devices that rows can be on, and copies to them."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.core.errors import Misuse


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
