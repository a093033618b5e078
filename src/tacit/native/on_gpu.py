"""Whether our kernels for GPUs can be used: Triton comes with torch where there is a GPU for it."""

from __future__ import annotations

from functools import cache

import torch


@cache
def usable(device: torch.device) -> bool:
    """Whether one of them can be built and run on this device: that takes Triton and a C compiler."""
    if device.type != "cuda":
        return False
    try:
        from tacit.native import gpu_integers

        nobody = torch.zeros(1, dtype=torch.int64, device=device)
        gpu_integers.words(0, nobody, nobody, nobody, range(4))
    except Exception:  # Triton's errors have no common kind; whatever it is, tensor operations do the same
        return False
    return True
