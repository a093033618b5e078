"""Whether our Triton kernels work on a GPU."""

from __future__ import annotations

from functools import cache

import torch

# Philox of the key 0 and the counters (0, 0, 0, 0) and (0, 0, 0, 1).
KNOWN_WORDS = [
    [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
    [0x2DCE73E5, 0x1348E23F, 0xFCF8E0EC, 0xA287AADB],
]


@cache
def gpu_usable(device: torch.device) -> bool:
    """Whether our Triton kernels work on this device; they need Triton and a C compiler."""
    if device.type != "cuda":
        return False
    try:
        from tacit.core.native import gpu_integers

        counters = torch.zeros(4, 2, dtype=torch.int64, device=device)
        counters[3, 1] = 1
        _, source, target, ticks = counters
        philox = gpu_integers.philox(counters, 0)
        words = gpu_integers.words(0, ticks, source, target, range(4))
        return bool(philox.tolist() == words.tolist() == KNOWN_WORDS)
    except Exception:
        # Triton's errors have no common class; tensor operations do the same.
        return False
