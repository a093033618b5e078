"""Which devices rows can live on."""

from __future__ import annotations

import torch

from tacit.core.errors import Misuse


def check_device(device: torch.device | str, key: str = "device") -> torch.device:
    """The device, or a refusal of one that is not here; `key` is what the user called it."""
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
