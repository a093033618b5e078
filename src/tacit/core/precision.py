"""Full float32 precision or TF32, whichever of torch's two interfaces asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
