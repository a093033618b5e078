"""Sending numbers of the host to where the rows are."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(numbers: Tensor, device: torch.device | str) -> Tensor:
    """The numbers on a device. A GPU is not waited for: it fetches them when it comes to it."""
    if torch.device(device).type != "cuda":
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)  # the pages are kept until it has
