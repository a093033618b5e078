"""How much memory a pass may take."""

from __future__ import annotations

import torch

# Numbers that one pass of one worker may take, roughly; on a GPU also at most a part of its memory.
WORKSPACE = {"cpu": 1 << 25, "cuda": 1 << 33}


def pass_numbers(device: torch.device) -> int:
    """Numbers that one pass may take, roughly: on a GPU a quarter of its memory at most.

    If half of the free memory is less than that, it is the limit.
    """
    if device.type != "cuda":
        return WORKSPACE[device.type]
    free, total = torch.cuda.mem_get_info(device)
    # What torch has reserved and does not use is free for it.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(WORKSPACE[device.type], min(total // 4, free // 2) // 4)
