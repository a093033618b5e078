"""How our GPU kernels multiply float32 numbers."""

from __future__ import annotations

from tacit.core.devices import tf32_allowed


def product_precision() -> str:
    """TF32 where products may use it, else three products in TF32.

    The three are of leading and remaining digits. Their sum is at least as exact as a sum in
    float32, and several times as fast.
    """
    return "tf32" if tf32_allowed() else "tf32x3"
