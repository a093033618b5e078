"""An eavesdropper's sliding mean, in which zero-mean masks shrink as the window grows."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.core.checks import is_count
from tacit.core.errors import Misuse


def sliding_mean(rows: Tensor, window: int) -> Tensor:
    """(1/w) Σ_{s = t}^{t+w−1} rows[s] for every t: rows [T, P] ↦ [T − w + 1, P], in O(T·P).

    Running sums are in float64, so that the end of a long transcript stays accurate.

    >>> sliding_mean(torch.tensor([[1.0], [3.0], [5.0]]), 2)
    tensor([[2.],
            [4.]])
    """
    if rows.ndim != 2 or not rows.is_floating_point():
        raise Misuse(
            f"The rows have shape {tuple(rows.shape)} and type {rows.dtype}.",
            "Give one vector per message: floating-point numbers [messages, parameters].",
        )
    if not is_count(window) or window > len(rows):
        raise Misuse(
            f"window is {window!r} for {len(rows)} rows.", f"Give a number from 1 to {len(rows)}."
        )
    if not bool(rows.isfinite().all()):
        raise Misuse(
            "The rows have numbers that are not finite.",
            "Leave out the messages of clients that diverged.",
        )
    sums = torch.zeros(len(rows) + 1, rows.shape[1], dtype=torch.float64, device=rows.device)
    torch.cumsum(rows, 0, dtype=torch.float64, out=sums[1:])
    return ((sums[window:] - sums[:-window]) / window).to(rows.dtype)
