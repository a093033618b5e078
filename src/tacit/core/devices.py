"""Devices that rows can be on, copies to them, and the precision of gradients on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from tacit.core.checks import check_choice
from tacit.core.errors import Misuse

# How gradients are computed: in float32; with products in TF32, where a GPU has it; or by torch's
# autocast in bfloat16. Models, messages and the updates of an algorithm are float32 in each.
Precision = Literal["float32", "tf32", "bf16"]


def check_device(device: torch.device | str, key: str = "device") -> torch.device:
    """Require a device that this machine has; `key` is what the user calls it."""
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError):
        wanted = torch.device("meta")
    if wanted.type not in ("cpu", "cuda"):
        raise Misuse(f"{key} = {str(device)!r} is not a device for this.", 'Use "cpu" or "cuda".')
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted.type == "cuda" and (wanted.index or 0) >= present:
        raise Misuse(
            f"{key} = {str(device)!r}, but this machine has {present or 'no'} CUDA devices.",
            'Use "cpu".',
        )
    if wanted.type == "cuda":
        # Torch warns that products are not deterministic without it. Read at the first product.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
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
def float32_products(*, tf32: bool = False) -> Iterator[None]:
    """Compute products and convolutions of float32 numbers on a GPU in full precision, or in TF32.

    Whatever the process has set applies again afterwards.
    """
    try:
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        # Set by the newer switches, which cannot be mixed with the older ones.
        with _newer_switches("tf32" if tf32 else "ieee"):
            yield
        return
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def _newer_switches(precision: str) -> Iterator[None]:
    backends: Any = torch.backends
    switches = (backends.cuda.matmul, backends.cudnn.conv)
    before = [switch.fp32_precision for switch in switches]
    for switch in switches:
        switch.fp32_precision = precision
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


def autocast(precision: Precision, device: torch.device | str) -> AbstractContextManager[Any]:
    """The context in which torch computes in bf16 where that is safe, if that is the precision.

    Applies to the calling thread.
    """
    if precision != "bf16":
        return nullcontext()
    # Parameters change in every pass, so that nothing is used twice.
    return torch.autocast(torch.device(device).type, torch.bfloat16, cache_enabled=False)


def check_precision(precision: str, dtype: torch.dtype, key: str = "precision") -> None:
    """Raise Misuse for an unknown precision, or one that models of this type do not have."""
    check_choice(key, precision, get_args(Precision))
    if precision != "float32" and dtype != torch.float32:
        raise Misuse(
            f"{key} is {precision!r}, but the model's parameters are {dtype}.",
            "Make them float32 (model.float()), or leave the precision out.",
        )
