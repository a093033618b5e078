"""Float32 in full, or TF32 where torch was asked for it: by either of the two ways in which it can be asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def short_products_wanted() -> bool:
    """Whether products in float32 may be computed in TF32 (`torch.set_float32_matmul_precision`)."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except (
        RuntimeError
    ):  # asked for by the newer switches, which the older do not want to be mixed with
        return getattr(torch.backends.cuda.matmul, "fp32_precision", "ieee") == "tf32"


@contextmanager
def convolutions_like_products() -> Iterator[None]:
    """Let cuDNN, which takes TF32 unasked, take it only where products do."""
    try:
        before = torch._C._get_cudnn_allow_tf32()
    except RuntimeError:  # set by the newer switches, one by one: somebody knows what he wants
        yield
        return
    torch._C._set_cudnn_allow_tf32(short_products_wanted())
    try:
        yield
    finally:
        torch._C._set_cudnn_allow_tf32(before)
