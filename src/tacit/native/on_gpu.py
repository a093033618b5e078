"""Whether our kernels for GPUs can be used: Triton comes with torch where there is a GPU for it."""

from __future__ import annotations

from functools import cache

import torch

# Philox of the key 0 and the counters (0, 0, 0, 0) and (0, 0, 0, 1).
KNOWN = [
    [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
    [0x2DCE73E5, 0x1348E23F, 0xFCF8E0EC, 0xA287AADB],
]


@cache
def usable(device: torch.device) -> bool:
    """Whether a kernel built for this device draws the right integers: that takes Triton and a C compiler."""
    if device.type != "cuda":
        return False
    try:
        from tacit.native import gpu_integers

        nobody = torch.zeros(2, dtype=torch.int64, device=device)
        ticks = torch.arange(2, device=device)
        return gpu_integers.words(0, ticks, nobody, nobody, range(4)).tolist() == KNOWN
    except Exception:  # Triton's errors have no common kind; whatever it is, tensor operations do the same
        return False
